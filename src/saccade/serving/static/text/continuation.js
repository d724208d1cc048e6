// A text that goes on, and which earlier words each of its words read.

import { mapOf, strongest, withSpaces } from "../../shared/insight.js";
import { words } from "../../shared/words.js";
import { make, percent } from "../parts/dom.js";

const KIND = "decoder";
const FULL = 0.4; // the least weight that is lit in full

export function continuationView(on) {
  const holder = make("div", { class: "text output" });
  const list = words(holder, { label: `${on.title}: text, word by word`, onSelect: (index) => select(index) });
  const options = () => [...list.element.querySelectorAll(".word")];
  let shown = [];
  let map = null;
  let grown = null; // the text while it is written, and what it goes on from

  /** Light what a word read: weights of <s> first, then of each word one later. */
  const own = (weights, word) => {
    const most = Math.max(FULL, ...weights);
    list.light(shown.map((_, index) => (weights[index + 1] ?? 0) / most), word);
  };
  const describe = (index) => {
    const read = strongest(map, index).map(({ name, weight }) => `${name} ${percent(weight)}`);
    return read.length ? `${map.queries[index]}: read ${read.join(", ")}` : map.queries[index];
  };
  const select = (index) => {
    if (!map) return;
    on.say(index === null ? "" : describe(index));
    own(index === null ? [] : map.weights[index], index);
    on.read(index === null ? null : { weights: [], shape: null, from: null, query: index });
  };
  /** Words of what was given are quiet. */
  const quiet = (given) => {
    let at = 0;
    options().forEach((one, index) => {
      at += shown[index].before.length;
      one.classList.toggle("given", at < given.trim().length);
      at += shown[index].word.length;
    });
  };

  return {
    element: make("div", { class: "sentence plain" }, holder),
    show: ([{ insight, given = "" }]) => {
      grown = null;
      shown = withSpaces(insight.sides.output);
      map = insight.attention[KIND] ? mapOf(insight, { kind: KIND }) : null;
      list.update({ words: shown });
      quiet(given);
      return insight.line;
    },
    grow: (given, part) => {
      if (grown?.given !== given) grown = { given, text: given.trimEnd() };
      grown.text += part;
      map = null;
      shown = withSpaces({ text: grown.text, words: grown.text.match(/\S+/g) ?? [] });
      list.update({ words: shown });
      quiet(given);
    },
    redraw: () => {},
    light: () => {},
    select: (word) => list.light(null, word),
    own,
    from: (word) => options()[word] ?? null,
  };
}
