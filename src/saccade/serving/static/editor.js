// Where one types. Behind the text area lies a mirror of it, word by word, which can light up.

import { $, make } from "./dom.js";

const STEERING = /^(Arrow|Home|End|Page)/;
const LIT = 0.05;

/** `onChange(text, isComposing)` as one types, `onSelect(index | null)` as a word is pointed at or the caret is steered into it. */
export function editor({ onChange, onSelect }) {
  const [area, mirror] = [$("text"), $("mirror")];
  let spans = [];
  let places = [];
  let chosen = null;

  /** Words that were answered: they may be pointed at until the text changes. A place behind the text is its end. */
  const words = (given) => {
    const parts = [];
    let at = 0;
    places = given;
    spans = given.map((place) => {
      if (!place) return null;
      if (place[0] >= area.value.length) return make("span", { class: "spot end", text: "end" });
      const span = make("span", { class: "spot", text: area.value.slice(...place) });
      parts.push(area.value.slice(at, place[0]), span);
      at = place[1];
      return span;
    });
    mirror.replaceChildren(...parts, `${area.value.slice(at)}\u200b`, ...spans.filter((span) => span?.matches(".end")));
  };
  const light = (shares, here = null) => {
    spans.forEach((span, index) => {
      const share = shares?.[index] ?? 0;
      span?.style.setProperty("--share", Math.min(1, share).toFixed(3));
      span?.classList.toggle("lit", share > LIT);
      span?.classList.toggle("here", index === here);
    });
  };
  const choose = (index) => {
    if (index === chosen) return;
    chosen = index;
    onSelect(index);
  };
  const found = (test) => {
    const index = spans.findIndex((span, at) => span && !span.matches(".end") && test(span, places[at]));
    return index < 0 ? null : index;
  };
  const under = ({ clientX: x, clientY: y }) => {
    const holds = ({ left, right, top, bottom }) => left <= x && x <= right && top <= y && y <= bottom;
    return found((span) => [...span.getClientRects()].some(holds));
  };
  const atCaret = () => choose(found((_, [first, last]) => first <= area.selectionStart && area.selectionStart <= last));

  area.addEventListener("input", (event) => {
    words([]);
    choose(null);
    onChange(area.value, event.isComposing);
  });
  area.addEventListener("compositionend", () => onChange(area.value, false));
  area.addEventListener("pointermove", (event) => event.pointerType === "mouse" && choose(under(event)));
  area.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && choose(null));
  area.addEventListener("keyup", (event) => STEERING.test(event.key) && atCaret());
  area.addEventListener("click", atCaret);
  area.addEventListener("blur", () => choose(null));
  words([]);
  return {
    words,
    light,
    placeOf: (index) => spans[index]?.getClientRects()[0] ?? null,
    get places() {
      return places;
    },
    get caret() {
      return area.selectionStart;
    },
    /** What it is written in, for those who have it read out. */
    set language(code) {
      area.lang = code;
    },
    get text() {
      return area.value;
    },
    set text(value) {
      area.value = value;
      words([]);
      chosen = null;
    },
  };
}
