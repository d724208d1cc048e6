// Arcs from a word to the words that it read, and a dot that jumps to the heaviest.

import { draw, prefersReducedMotion } from "../parts/dom.js";

const LEAST = 0.05;
const MAX_ARCS = 6; // at once
const RISE = 7; // pixels: less than the space between two lines of text

/** `over` is an SVG that covers the cards; `onMove(place | null)` tells where the dot is. */
export function arcs(over, onMove) {
  const curves = draw("g", { class: "curves" });
  const jumps = draw("g", { class: "jumps" });
  const dot = draw("g", { class: "dot" }, draw("circle", { r: 9, class: "halo" }), draw("circle", { r: 3.5, class: "point" }));
  let last = null;
  over.replaceChildren(jumps, curves, dot);

  /** Draw from a place (a DOMRect, or null) to places with weights; the dot lands on the heaviest. */
  const show = (from, targets) => {
    const frame = over.getBoundingClientRect();
    const heaviest = targets.filter(({ place, weight }) => place && weight >= LEAST).sort((a, b) => b.weight - a.weight).slice(0, MAX_ARCS);
    curves.replaceChildren(...(from ? heaviest.map(({ place, weight }) => arc(from, place, weight, frame)) : []));
    over.classList.toggle("shown", heaviest.length > 0);
    if (!heaviest.length) {
      last = null;
      return onMove(null);
    }
    const { x, y } = top(heaviest[0].place, frame);
    if (last && !prefersReducedMotion() && (last.x !== x || last.y !== y)) jumps.append(jump(last, { x, y }));
    last = { x, y };
    dot.style.transform = `translate(${x}px, ${y}px)`;
    onMove({ x: x + frame.left, y: y + frame.top });
  };
  addEventListener("resize", () => show(null, []));
  jumps.addEventListener("animationend", (event) => event.target.remove());
  return { show, hide: () => show(null, []) };
}

const point = ({ x, y }) => `${x.toFixed(1)} ${y.toFixed(1)}`;

/** Draw from word to word: over the tops if both stand side by side, else from the top of one to the bottom of the other. */
function arc(from, to, weight, frame) {
  const isAbove = to.bottom + 40 < from.top;
  const [a, b] = [top(from, frame), isAbove ? { ...top(to, frame), y: to.bottom - frame.top - 2 } : top(to, frame)];
  const rise = isAbove ? (a.y - b.y) / 2 : RISE;
  const path = `M${point(a)}C${point({ x: a.x, y: a.y - rise })} ${point({ x: b.x, y: b.y - (isAbove ? -rise : rise) })} ${point(b)}`;
  return draw("path", { d: path, "stroke-width": (1 + 1.2 * weight).toFixed(2), "stroke-opacity": (0.2 + 0.7 * weight).toFixed(2) });
}

/** Draw the way of the dot, which fades. */
function jump(from, to) {
  const rise = Math.min(26, 6 + 0.1 * Math.hypot(from.x - to.x, from.y - to.y));
  const middle = { x: (from.x + to.x) / 2, y: Math.min(from.y, to.y) - rise };
  return draw("path", { class: "jump", d: `M${point(from)}Q${point(middle)} ${point(to)}` });
}

function top(place, frame) {
  return { x: place.left + place.width / 2 - frame.left, y: place.top - frame.top + 1 };
}
