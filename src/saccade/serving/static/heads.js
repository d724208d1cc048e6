// Every layer and head of a kind as a small picture; the chosen one is marked, and a click chooses.

import { make } from "./dom.js";

const MOST = 96; // pictures; a larger model is chosen from with the selectors

export function heads({ onChoose }) {
  const grid = make("div", { class: "heads" });
  const element = make("details", { class: "gallery", open: true, hidden: true }, make("summary", { text: "All heads" }), grid);

  const show = (insight, { kind, layer, head, view }) => {
    const layers = insight.attention?.[kind]?.weights ?? [];
    const count = layers.length * (layers[0]?.length ?? 0);
    element.hidden = count < 2 || count > MOST;
    if (element.hidden) return;
    const colours = [colour("--heat-low"), colour("--heat-high")];
    const isPressed = (row, column) => (view === "weights" ? row === layer && column === head : view === "aligning" ? row === insight.aligning.layer && column === insight.aligning.head : false);
    const button = (weights, row, column) => {
      const label = `Layer ${row + 1}, head ${column + 1}`;
      return make("button", { type: "button", class: "head", "aria-label": label, title: label, "aria-pressed": String(isPressed(row, column)), onclick: () => onChoose({ layer: row, head: column }) }, thumbnail(weights, colours));
    };
    const focused = grid.contains(document.activeElement) ? document.activeElement.getAttribute("aria-label") : null;
    grid.replaceChildren(...layers.map((one, row) => make("div", { class: "layer", role: "group", "aria-label": `Layer ${row + 1}` }, make("span", { text: `Layer ${row + 1}`, "aria-hidden": "true" }), one.map((weights, column) => button(weights, row, column)))));
    if (focused) grid.querySelector(`[aria-label="${focused}"]`)?.focus();
  };
  return { element, show };
}

function thumbnail(weights, [low, high]) {
  const [rows, columns] = [weights.length, weights[0].length];
  const canvas = make("canvas", { width: columns, height: rows, "aria-hidden": "true" });
  const context = canvas.getContext("2d");
  const pixels = context.createImageData(columns, rows);
  const most = Math.max(0.0001, ...weights.flat());
  weights.flat().forEach((weight, at) => {
    const share = Math.sqrt(weight / most);
    for (let band = 0; band < 3; band += 1) pixels.data[4 * at + band] = low[band] + share * (high[band] - low[band]);
    pixels.data[4 * at + 3] = 255;
  });
  context.putImageData(pixels, 0, 0);
  return canvas;
}

/** A colour of the theme as [r, g, b]. */
export function colour(name) {
  const value = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  return [1, 3, 5].map((at) => parseInt(value.slice(at, at + 2), 16));
}
