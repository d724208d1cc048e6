// Where one types. Behind the text area lies a mirror of it, letter by letter, that says where words lie; lights lie there.

import { $, make } from "../parts/dom.js";

const STEERING = /^(Arrow|Home|End|Page)/;
const LIT = 0.05;

/** `onChange(text, isComposing)` as one types, `onSelect(index | null)` as a word is pointed at or the caret is steered into it. */
export function editor({ onChange, onSelect }) {
  const [area, mirror, lights] = [$("text"), $("mirror"), $("lights")];
  let spots = [];
  let places = [];
  let chosen = null;

  /** Words that were answered: they may be pointed at until the text changes. A place behind the text is its end. */
  const words = (given) => {
    const isEnd = ([first]) => first >= area.value.length;
    places = given;
    mirror.textContent = `${area.value}\u200b`; // as in the text area, a last empty line is a line
    spots = given.map((place) => place && make("span", isEnd(place) ? { class: "spot end", text: "end" } : { class: "spot" }));
    lights.replaceChildren(...spots.filter(Boolean));
    arrange();
  };
  /** Where the letters are. Spans around words would do, but they make lines a little longer, which then break elsewhere. */
  const arrange = () => {
    const frame = lights.getBoundingClientRect();
    const range = document.createRange();
    spots.forEach((spot, index) => {
      if (!spot) return;
      range.setStart(mirror.firstChild, places[index][0]);
      range.setEnd(mirror.firstChild, places[index][1]);
      const { left, top, width, height } = range.getClientRects()[0] ?? range.getBoundingClientRect();
      Object.assign(spot.style, { left: `${left - frame.left}px`, top: `${top - frame.top}px`, height: `${height}px` });
      if (!spot.matches(".end")) spot.style.width = `${width}px`;
    });
  };
  const light = (shares, here = null) => {
    spots.forEach((spot, index) => {
      const share = shares?.[index] ?? 0;
      spot?.style.setProperty("--share", Math.min(1, share).toFixed(3));
      spot?.classList.toggle("lit", share > LIT);
      spot?.classList.toggle("here", index === here);
    });
  };
  const choose = (index) => {
    if (index === chosen) return;
    chosen = index;
    onSelect(index);
  };
  const found = (test) => {
    const index = spots.findIndex((spot, at) => spot && !spot.matches(".end") && test(spot, places[at]));
    return index < 0 ? null : index;
  };
  const under = ({ clientX: x, clientY: y }) => {
    const holds = ({ left, right, top, bottom }) => left <= x && x <= right && top <= y && y <= bottom;
    return found((spot) => holds(spot.getBoundingClientRect()));
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
  new ResizeObserver(arrange).observe(mirror);
  words([]);
  return {
    words,
    light,
    placeOf: (index) => spots[index]?.getBoundingClientRect() ?? null,
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
