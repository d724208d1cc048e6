// Each layer and head of a kind as a small map; the chosen one is framed, and a click chooses.

import { tiles } from "../../shared/tiles.js";
import { make } from "../parts/dom.js";

const MAX_TILES = 96; // larger models have only the selectors

export function heads({ onChoose }) {
  const grid = make("div", { class: "heads" });
  const element = make("details", { class: "gallery", open: true, hidden: true }, make("summary", { text: "All heads" }), grid);
  const all = tiles(grid, { rows: [], onPick: (layer, head) => onChoose({ layer, head }) });
  let shown = null;

  const tile = (weights, layer, head) => ({ label: `Layer ${layer}, head ${head}`, weights, most: Math.max(...weights.flat()) });
  const show = (insight, { kind, view, layer, head }) => {
    const layers = insight.attention[kind].weights;
    const count = layers.length * layers[0].length;
    element.hidden = count < 2 || count > MAX_TILES;
    if (element.hidden) return;
    if (shown !== layers) all.update({ rows: layers.map((one, row) => one.map((weights, column) => tile(weights, row, column))) });
    shown = layers;
    const { layer: row, head: column } = view === "aligning" ? insight.aligning : ["weights", "norms"].includes(view) ? { layer, head } : {};
    all.mark(row, column);
  };
  return { element, show, redraw: () => (shown = null) };
}
