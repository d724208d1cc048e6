// Shown before anything is typed: a dot that moves over lines of bars.

import { draw, make } from "../parts/dom.js";

const LINES = [[34, 58, 46, 72, 40], [64, 30, 82, 44], [48, 70, 36]];
const HEIGHT = 9;

export function emptyState() {
  const bars = LINES.flatMap((line, row) => {
    let x = 0;
    return line.map((width) => {
      const bar = draw("rect", { x, y: 22 + 34 * row, width, height: HEIGHT, rx: HEIGHT / 2 });
      x += width + 12;
      return bar;
    });
  });
  const dot = draw("g", { class: "reader" }, draw("circle", { r: 9, class: "halo" }), draw("circle", { r: 3.5, class: "point" }));
  const picture = draw("svg", { viewBox: "-12 0 330 112", width: 330, height: 112, "aria-hidden": "true", focusable: "false" }, bars, dot);
  return make("div", { class: "empty-state" }, picture, make("p", { text: "Type, and watch what it reads." }));
}
