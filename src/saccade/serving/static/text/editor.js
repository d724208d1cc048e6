// The text area, with highlights behind its words. A mirror of the text, letter by letter, tells where the words are.

import { $, make } from "../parts/dom.js";

const NAVIGATION = /^(Arrow|Home|End|Page)/;
const LEAST_SHARE = 0.05;

/** `onChange(text, isComposing)` as the text changes, `onSelect(index | null)` as the pointer or the caret enters a word. */
export function editor({ onChange, onSelect }) {
  const [area, mirror, highlights, frame] = [$("text"), $("mirror"), $("highlights"), $("writing")];
  const usualHint = area.placeholder;
  let marks = [];
  let places = [];
  let chosen = null;

  /** Set the places of the words; they can be selected until the text changes. A place behind the text is its end. */
  const words = (newPlaces) => {
    const isEnd = ([first]) => first >= area.value.length;
    const before = places[chosen];
    places = newPlaces;
    mirror.textContent = `${area.value}\u200b`; // as in the text area, a last empty line is a line
    marks = newPlaces.map((place) => place && make("span", isEnd(place) ? { class: "highlight end", text: "end" } : { class: "highlight" }));
    highlights.replaceChildren(...marks.filter(Boolean));
    arrange();
    if (before) choose(find((_, [first, last]) => first < before[1] && before[0] < last)); // it may have another number now
  };
  /** Put each highlight behind its word. Spans around the words would make lines a little longer, and break them elsewhere. */
  const arrange = () => {
    const range = document.createRange();
    const boxes = marks.map((mark, index) => {
      if (!mark) return null;
      range.setStart(mirror.firstChild, places[index][0]);
      range.setEnd(mirror.firstChild, places[index][1]);
      return joined([...range.getClientRects()]);
    });
    const origin = highlights.getBoundingClientRect();
    marks.forEach((mark, index) => { // only now: each style that is set between two boxes costs a layout
      if (!mark) return;
      const [first, ...others] = boxes[index]; // a sentence may stand on several lines
      put(mark, first, origin);
      if (mark.matches(".end")) mark.style.width = "";
      else mark.replaceChildren(...others.map((box) => put(make("i"), box, first)));
    });
  };
  /** Join boxes that touch: the space at the end of a line has its own. */
  const joined = ([first = new DOMRect(), ...others]) => others.reduce((lines, box) => {
    const last = lines.at(-1);
    if (last.top !== box.top || Math.abs(last.right - box.left) > 1) return [...lines, box];
    last.width += box.width;
    return lines;
  }, [first]);
  const put = (element, { left, top, width, height }, origin) => {
    Object.assign(element.style, { left: `${left - origin.left}px`, top: `${top - origin.top}px`, width: `${width}px`, height: `${height}px` });
    return element;
  };
  const light = (shares, here = null) => {
    marks.forEach((mark, index) => {
      const share = shares?.[index] ?? 0;
      mark?.style.setProperty("--share", Math.min(1, share).toFixed(3));
      mark?.classList.toggle("lit", share > LEAST_SHARE);
      mark?.classList.toggle("here", index === here);
    });
  };
  const choose = (index) => {
    if (index === chosen) return;
    chosen = index;
    onSelect(index);
  };
  const find = (test) => {
    const index = marks.findIndex((mark, at) => mark && !mark.matches(".end") && test(mark, places[at]));
    return index < 0 ? null : index;
  };
  const under = ({ clientX: x, clientY: y }) => {
    const holds = ({ left, right, top, bottom }) => left <= x && x <= right && top <= y && y <= bottom;
    return find((mark) => [mark, ...mark.children].some((line) => holds(line.getBoundingClientRect())));
  };
  const atCaret = () => choose(find((_, [first, last]) => first <= area.selectionStart && area.selectionStart <= last));

  area.addEventListener("input", (event) => {
    words([]);
    choose(null);
    onChange(area.value, event.isComposing);
  });
  area.addEventListener("compositionend", () => onChange(area.value, false));
  area.addEventListener("pointermove", (event) => event.pointerType === "mouse" && choose(under(event)));
  area.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && choose(null));
  area.addEventListener("keyup", (event) => NAVIGATION.test(event.key) && atCaret());
  area.addEventListener("click", atCaret);
  area.addEventListener("blur", () => choose(null));
  frame.parentElement.addEventListener("click", (event) => event.target === event.currentTarget && area.focus()); // the empty part of the card
  new ResizeObserver(arrange).observe(mirror);
  words([]);
  return {
    words,
    light,
    /** Tell once more which word is selected. */
    reselect: () => chosen !== null && onSelect(chosen),
    /** Return where a word is; null, if it is scrolled out of sight. */
    placeOf: (index) => {
      const place = marks[index]?.getBoundingClientRect();
      const seen = frame.getBoundingClientRect();
      return place && place.bottom > seen.top && place.top < seen.bottom ? place : null;
    },
    /** Scroll a long text to a word; return whether it was out of sight. */
    reveal: (index) => {
      const [place, seen] = [marks[index], frame].map((one) => one?.getBoundingClientRect());
      if (!place || (place.top >= seen.top && place.bottom <= seen.bottom)) return false;
      frame.scrollTop += (place.top + place.bottom - seen.top - seen.bottom) / 2;
      return true;
    },
    get places() {
      return places;
    },
    get caret() {
      return area.selectionStart;
    },
    /** The language of the text, for screen readers. */
    set language(code) {
      area.lang = code;
    },
    /** What an empty text says; null: the usual. */
    set hint(line) {
      area.placeholder = line ?? usualHint;
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
