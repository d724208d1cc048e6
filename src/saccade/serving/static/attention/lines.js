// Two rows of words with a line for each weight between them; two columns if rows don't fit.

import { draw } from "../parts/dom.js";

const LEAST = 0.04;
const FONT = 15;
const GAP = { least: 12, most: 36 };
const LINE = 27;
const DROP = 150; // between two rows

/** Lay out words and lines: {width, height, keys, queries: [{x, y, anchor}], links: [{query, key, weight, path}]}. */
export function layout({ queries, keys, weights }, width, measure, { inRows = fitsInRows({ queries, keys }, width, measure), drop = DROP } = {}) {
  const [above, below] = [keys, queries].map((words) => words.map(measure));
  const ends = inRows ? rows(above, below, width, drop) : columns(above, below, width);
  const links = weights.flatMap((row, query) =>
    row.flatMap((weight, key) => (weight >= LEAST ? [{ query, key, weight, path: ends.path(ends.keys[key], ends.queries[query]) }] : [])),
  );
  return { width, height: ends.height, keys: ends.keys, queries: ends.queries, links: links.sort((a, b) => a.weight - b.weight) };
}

/** Return whether rows of words fit. */
export function fitsInRows({ queries, keys }, width, measure) {
  return Math.max(...[queries, keys].map((words) => length(words.map(measure), GAP.least))) <= width;
}

/** Return the width of the rows if there is room for all. */
export function naturalWidth({ queries, keys }, measure) {
  return Math.max(...[queries, keys].map((words) => length(words.map(measure), GAP.most)));
}

const length = (widths, gap) => widths.reduce((sum, one) => sum + one + gap, -gap);

function rows(above, below, width, drop) {
  const places = (widths, y) => {
    const gap = Math.min(GAP.most, (width - length(widths, 0)) / Math.max(1, widths.length - 1));
    let at = (width - length(widths, gap)) / 2;
    return widths.map((wide) => {
      const x = at + wide / 2;
      at += wide + gap;
      return { x, y, anchor: "middle" };
    });
  };
  const [first, last] = [FONT + 3, FONT + 3 + drop + FONT];
  const path = (key, query) => {
    const [from, to] = [key.y + 8, query.y - FONT - 2];
    const bend = (to - from) * 0.5;
    return `M${key.x.toFixed(1)} ${from}C${key.x.toFixed(1)} ${from + bend} ${query.x.toFixed(1)} ${to - bend} ${query.x.toFixed(1)} ${to}`;
  };
  return { keys: places(above, first), queries: places(below, last), height: last + 10, path };
}

function columns(above, below, width) {
  const [keys, queries] = [above, below].map((widths) => Math.max(...widths, 0));
  const room = (own, other) => Math.min(own, width * Math.max(0.36, 0.72 - other / width)); // between them at least 0.28
  const most = Math.max(above.length, below.length);
  const places = (widths, x, anchor, longest) => widths.map((_, at) => ({ x, y: LINE * (at + 0.5 + (most - widths.length) / 2) + 5, anchor, longest }));
  const path = (key, query) => {
    const bend = (query.x - key.x) * 0.5;
    const [a, b] = [{ x: key.x + 6, y: key.y - 5 }, { x: query.x - 6, y: query.y - 5 }];
    return `M${a.x} ${a.y}C${a.x + bend} ${a.y} ${b.x - bend} ${b.y} ${b.x} ${b.y}`;
  };
  const [left, right] = [room(keys, queries), room(queries, keys)];
  return { keys: places(above, left, "end", left), queries: places(below, width - right, "start", right), height: LINE * most, path };
}

let ruler = null;

/** Measure the width of a word as it is drawn. */
export function measure(word) {
  ruler ??= document.createElement("canvas").getContext("2d");
  ruler.font = `${FONT}px ${getComputedStyle(document.documentElement).getPropertyValue("--sans")}`;
  return ruler.measureText(word).width;
}

/** Draw links as paths; a greater weight is thicker. */
export function drawLinks(links) {
  const strength = (weight) => ({ "stroke-width": (0.75 + 5 * weight).toFixed(2), "stroke-opacity": (0.08 + 0.72 * weight).toFixed(2) });
  const line = ({ query, key, weight, path }) => draw("path", { class: "link", d: path, fill: "none", "data-query": query, "data-key": key, ...strength(weight) });
  return links.map(line);
}

/** Cut what is longer than so many pixels. */
function shorten(text, most = Infinity) {
  const letters = [...text];
  const cut = () => `${letters.join("").trimEnd()}…`;
  if (measure(text) <= most) return text;
  while (letters.length > 1 && measure(cut()) > most) letters.pop();
  return cut();
}

/** Draw words in their places; `end` is their side, "key" or "query". */
export function drawWords(words, places, end) {
  const place = ({ x, y, anchor }) => ({ x: x.toFixed(1), y, "text-anchor": anchor });
  return words.map((text, index) => draw("text", { class: "end", ...place(places[index]), [`data-${end}`]: index, text: shorten(text, places[index].longest) }));
}

/** Draw a map as SVG. `onSelect({query, key} | null)` as the pointer enters and leaves words. */
export function lines(map, { width, inRows, drop, label, onSelect = () => {} }) {
  const drawn = layout(map, width, measure, { inRows, drop });
  const height = Math.ceil(drawn.height);
  const frame = { class: "lines", role: "img", "aria-label": label, viewBox: `0 0 ${width} ${height}`, width, height };
  const element = draw("svg", frame, drawLinks(drawn.links), drawWords(map.keys, drawn.keys, "key"), drawWords(map.queries, drawn.queries, "query"));
  const select = (selection) => light(element, selection);
  element.addEventListener("pointerover", (event) => {
    const place = placeOf(event.target);
    select(place);
    onSelect(place);
  });
  element.addEventListener("pointerleave", () => {
    select(null);
    onSelect(null);
  });
  return { element, select };
}

function light(element, selection) {
  const is = (part, end) => part.dataset[end] !== undefined && Number(part.dataset[end]) === selection[end];
  const isOpen = (end) => selection[end] === null || selection[end] === undefined;
  const ends = ["query", "key"];
  const isChosen = (part) => (part.matches(".link") ? ends.every((end) => isOpen(end) || is(part, end)) : ends.some((end) => is(part, end)));
  element.classList.toggle("choosing", selection !== null);
  for (const part of element.querySelectorAll(".link, .end")) part.classList.toggle("lit", selection !== null && isChosen(part));
}

function placeOf(target) {
  if (target.dataset?.query === undefined && target.dataset?.key === undefined) return null;
  const number = (text) => (text === undefined ? null : Number(text));
  return { query: number(target.dataset.query), key: number(target.dataset.key) };
}
