// The gaze: arcs from a word to what it read, and a dot that jumps there, as eyes do.

import { draw } from "./dom.js";

const LEAST = 0.05;
const MOST = 6; // arcs at once

/** `over` is an SVG that covers the stage. */
export function gaze(over, onMove) {
  const arcs = draw("g", { class: "arcs" });
  const dot = draw("g", { class: "dot" }, draw("circle", { r: 9, class: "halo" }), draw("circle", { r: 3.5, class: "point" }));
  over.replaceChildren(arcs, dot);

  /** From a place (a DOMRect, or null) to places with weights; the dot lands on the heaviest. */
  const look = (from, targets) => {
    const frame = over.getBoundingClientRect();
    const seen = targets.filter(({ place, weight }) => place && weight >= LEAST).sort((a, b) => b.weight - a.weight).slice(0, MOST);
    arcs.replaceChildren(...(from ? seen.map(({ place, weight }) => arc(from, place, weight, frame)) : []));
    over.classList.toggle("looking", seen.length > 0);
    if (!seen.length) return onMove(null);
    const { x, y } = top(seen[0].place, frame);
    dot.style.transform = `translate(${x}px, ${y}px)`;
    onMove({ x: x + frame.left, y: y + frame.top });
  };
  return { look, away: () => look(null, []) };
}

function arc(from, to, weight, frame) {
  const [a, b] = [top(from, frame), top(to, frame)];
  const rise = Math.min(32, 10 + 0.06 * Math.hypot(a.x - b.x, a.y - b.y));
  const point = (x, y) => `${x.toFixed(1)} ${y.toFixed(1)}`;
  const path = `M${point(a.x, a.y)}C${point(a.x, a.y - rise)} ${point(b.x, b.y - rise)} ${point(b.x, b.y)}`;
  return draw("path", { d: path, "stroke-width": (1 + 2 * weight).toFixed(2), "stroke-opacity": (0.2 + 0.75 * weight).toFixed(2) });
}

function top(place, frame) {
  return { x: place.left + place.width / 2 - frame.left, y: place.top - frame.top + 1 };
}
