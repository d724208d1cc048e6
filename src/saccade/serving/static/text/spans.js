// A text with tagged words: each span is framed in the colour of its kind.

import { make, percent } from "../parts/dom.js";
import { wordsAt } from "./positions.js";

const COLOURS = 8;
const MOVES = { ArrowRight: 1, ArrowLeft: -1 };

export function spanView(on) {
  const text = make("p", { class: "text spans", dir: "auto" });
  const list = make("ul", { class: "kinds", "aria-label": "Kinds of spans" });
  const colours = new Map();
  let tokens = [];
  let answer = null;

  const colourOf = (kind) => {
    if (!colours.has(kind)) colours.set(kind, colours.size % COLOURS);
    return `kind-${colours.get(kind)}`;
  };
  /** Name the most probable kinds of a word, summed over its places in a span (B-PER, I-PER, ...). */
  const describe = (index) => {
    const kinds = new Map();
    for (const [tag, share] of Object.entries(answer.probabilities?.[index] ?? {})) {
      const kind = tag.replace(/^[A-Z]-/, "");
      kinds.set(kind, (kinds.get(kind) ?? 0) + share);
    }
    const ranked = [...kinds].sort(([, one], [, other]) => other - one);
    const shares = ranked.filter(([, share], place) => place === 0 || share >= 0.005).slice(0, 3);
    return shares.length ? shares.map(([kind, share]) => `${kind === "O" ? "nothing" : kind} ${percent(share)}`).join(", ") : answer.tags[index];
  };
  const select = (index) => {
    on.say(index === null ? "" : `${answer.words[index]}: ${describe(index)}`);
    on.read(index === null ? null : { weights: answer.words.map((_, one) => Number(one === index)), shape: null, from: tokens[index], query: index });
  };
  const token = (word, index) => {
    const name = { role: "option", "aria-selected": "false", "aria-description": describe(index), text: word };
    return make("span", { class: "token", tabindex: index ? -1 : 0, "data-index": index, ...name });
  };
  const indexOf = (target) => (target.dataset?.index === undefined ? null : Number(target.dataset.index));
  const frame = ({ kind }, inner) => make("mark", { class: colourOf(kind) }, ...inner, make("small", { text: kind }));

  text.setAttribute("role", "listbox");
  text.setAttribute("aria-orientation", "horizontal");
  text.setAttribute("aria-label", "Words and their tags");
  text.addEventListener("pointerover", (event) => select(indexOf(event.target)));
  text.addEventListener("pointerleave", () => select(null));
  text.addEventListener("focusin", (event) => select(indexOf(event.target)));
  text.addEventListener("focusout", () => select(null));
  text.addEventListener("keydown", (event) => {
    const next = MOVES[event.key] && tokens[indexOf(event.target) + MOVES[event.key]];
    if (!next) return;
    tokens.forEach((one) => (one.tabIndex = one === next ? 0 : -1));
    next.focus();
    event.preventDefault();
  });

  const write = () => {
    tokens = answer.words.map(token);
    const parts = [];
    for (let index = 0; index < tokens.length; ) {
      const span = answer.spans.find(({ first }) => first === index);
      const last = span ? span.last : index;
      const inner = tokens.slice(index, last + 1).flatMap((one, number) => (number ? [" ", one] : [one]));
      parts.push(index ? " " : "", ...(span ? [frame(span, inner)] : inner));
      index = last + 1;
    }
    text.replaceChildren(...parts);
  };
  const count = () => {
    const found = [...new Set(answer.spans.map(({ kind }) => kind))];
    const number = (kind) => answer.spans.filter((span) => span.kind === kind).length;
    const rows = found.map((kind) => make("li", { class: colourOf(kind), text: `${kind} · ${number(kind)}` }));
    list.replaceChildren(...(rows.length ? rows : [make("li", { text: "No spans were found in this text." })]));
  };
  return {
    element: make("div", { class: "tags" }, text, list),
    show: ([{ insight }]) => {
      answer = insight.answer;
      write();
      count();
      return answer.spans.length ? answer.spans.map((span) => `${span.text}: ${span.kind}`).join("; ") : "No spans were found in this text.";
    },
    redraw: () => {},
    light: (place, among) => {
      const [key] = place ? wordsAt(place, among) : [];
      tokens.forEach((one, index) => one.classList.toggle("here", index === key));
      on.say(key === undefined ? "" : `${answer.words[key]}: ${describe(key)}`);
    },
    from: (word) => tokens[word] ?? null,
  };
}
