// Attention with vectors of two numbers: drag the query, or move the sliders, and see the weights.
import { make, slider, softmax, weightTable } from "./parts.js";

const KEYS = [[1.6, 0.3], [0.7, 1.4], [-0.9, 1.2], [-1.5, -0.4], [0.6, -1.4]];
const NAMES = ["A", "B", "C", "D", "E"];
const REACH = 2.2, SIZE = 320, LONGEST = 2;

export function attend(query, keys) {
  return softmax(keys.map((key) => (query[0] * key[0] + query[1] * key[1]) / Math.SQRT2));
}

const across = (x) => (SIZE / 2) * (1 + x / REACH);
const down = (y) => (SIZE / 2) * (1 - y / REACH);

export function draw(figure) {
  figure.replaceChildren();
  const plane = make("svg:svg", { viewBox: `0 0 ${SIZE} ${SIZE}`, role: "img" }, figure);
  const title = make("svg:title", {}, plane);
  make("svg:path", { d: `M0 ${SIZE / 2}H${SIZE}M${SIZE / 2} 0V${SIZE}`, class: "axes" }, plane);
  const arrows = KEYS.map((key, place) => {
    make("svg:line", { x1: across(0), y1: down(0), x2: across(key[0]), y2: down(key[1]), class: "key" }, plane);
    const dot = make("svg:circle", { cx: across(key[0]), cy: down(key[1]), class: "dot" }, plane);
    make("svg:text", { x: across(key[0] * 1.22), y: down(key[1] * 1.22) + 5, "text-anchor": "middle" }, plane, NAMES[place]);
    return dot;
  });
  const line = make("svg:line", { x1: across(0), y1: down(0), class: "query" }, plane);
  const tip = make("svg:circle", { r: 9, class: "tip" }, plane);

  const side = make("div", { class: "side" }, figure);
  const turn = slider(side, "direction of the query", [-180, 180, 1, 35]);
  const length = slider(side, "its length", [0, LONGEST, 0.05, 1]);
  const tell = weightTable(side, "weight of each key", NAMES);

  function show() {
    const angle = (Number(turn.value) * Math.PI) / 180, long = Number(length.value);
    const query = [long * Math.cos(angle), long * Math.sin(angle)];
    const weights = attend(query, KEYS);
    line.setAttribute("x2", across(query[0]));
    line.setAttribute("y2", down(query[1]));
    tip.setAttribute("cx", across(query[0]));
    tip.setAttribute("cy", down(query[1]));
    weights.forEach((weight, place) => arrows[place].setAttribute("r", 3 + 16 * Math.sqrt(weight)));
    tell([weights]);
    const best = weights.indexOf(Math.max(...weights));
    title.textContent = `Five keys and a query; key ${NAMES[best]} has the largest weight, ${weights[best].toFixed(2)}`;
    turn.setAttribute("aria-valuetext", `${turn.value} degrees`);
  }

  function drag(event) {
    const box = plane.getBoundingClientRect();
    const x = (2 * (event.clientX - box.left)) / box.width - 1, y = 1 - (2 * (event.clientY - box.top)) / box.height;
    turn.value = Math.round((Math.atan2(y, x) * 180) / Math.PI);
    length.value = Math.min(LONGEST, REACH * Math.hypot(x, y));
    show();
  }

  plane.addEventListener("pointerdown", (event) => {
    plane.setPointerCapture(event.pointerId);
    drag(event);
  });
  plane.addEventListener("pointermove", (event) => {
    if (plane.hasPointerCapture(event.pointerId)) drag(event);
  });
  for (const input of [turn, length]) input.addEventListener("input", show);
  show();
}

for (const figure of document.querySelectorAll('[data-figure="attend"]')) draw(figure);
