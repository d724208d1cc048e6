// Inside one model: the heat map of the chosen weights, the same as lines, and small maps of all heads.

import { heatmap } from "../../shared/heatmap.js";
import { mapOf } from "../../shared/insight.js";
import { make } from "../parts/dom.js";
import { controls, KINDS, VIEWS } from "./controls.js";
import { heads } from "./heads.js";
import { lines } from "./lines.js";

const MIN_WIDTH = 240; // pixels, for lines
const MANY_KEYS = 16; // more leave no room beside the heat map

/**
 * `onNeed()` when the insight lacks the chosen map, `onChange()` when another map is shown,
 * `onSelect({query, key} | null)` as the pointer or the focus enters and leaves a weight or a name.
 */
export function inside({ title, onNeed, onChange, onSelect }) {
  const table = make("div", { class: "table" });
  const diagram = make("div", { class: "diagram" });
  const choices = controls({ onChange: () => change() });
  const gallery = heads({ onChoose: (place) => change(Object.assign(choices.chosen, { view: "weights", ...place })) });
  const bar = make("div", { class: "bar" }, make("h2", { text: "Inside" }), choices.element);
  const maps = make("div", { class: "maps" }, table, diagram);
  const element = make("section", { class: "card inside", "aria-label": title, hidden: true }, bar, maps, gallery.element);
  let insight = null;
  let offered = null;
  let drawing = null;
  let selected = null;

  const current = () => (insight && choices.isIn(insight) ? mapOf(insight, choices.wanted(choices.chosen.units === "words")) : null);
  const heat = heatmap(table, {
    onSelect: (selection) => {
      selected = selection;
      drawing?.select(selection);
      onSelect(selection);
    },
  });
  const change = () => {
    if (!insight) return;
    choices.fill(insight, offered);
    if (!choices.isIn(insight)) return onNeed();
    redraw();
    onChange();
  };
  const redraw = () => {
    const map = current();
    const { kind, view } = choices.chosen;
    const label = `${KINDS[kind] ?? kind}: ${VIEWS[view].toLowerCase()}. Each row reads the columns; weights in percent.`;
    heat.update({ ...map, most: Math.max(0.0001, ...map.weights.flat()), label });
    selected = null;
    maps.classList.toggle("long", map.keys.length > MANY_KEYS);
    diagram.replaceChildren();
    drawLines(map);
    gallery.show(insight, choices.chosen);
  };
  const drawLines = (map) => {
    const width = Math.floor(diagram.clientWidth);
    drawing = null;
    if (width < MIN_WIDTH || map.shape) return diagram.replaceChildren();
    const select = (selection) => {
      selected = selection;
      heat.select(selection);
      onSelect(selection);
    };
    drawing = lines(map, { width, label: "The same weights as lines between the words", onSelect: select });
    drawing.select(selected);
    diagram.replaceChildren(drawing.element);
  };
  new ResizeObserver(() => {
    const map = element.hidden ? null : current();
    if (map && Number(drawing?.element.getAttribute("width")) !== Math.floor(diagram.clientWidth)) drawLines(map);
  }).observe(diagram);
  new MutationObserver(() => {
    gallery.redraw();
    if (!element.hidden) gallery.show(insight, choices.chosen);
  }).observe(document.documentElement, { attributeFilter: ["data-theme"] }); // canvases keep their colours until they are drawn again

  return {
    element,
    choices,
    current,
    /** The same map by words, even if pieces are shown. */
    byWords: () => mapOf(insight, choices.wanted(true)),
    /** Use another model, with the {kinds, views, layers, heads} that it has. */
    offer: (model) => {
      offered = model;
      if (!model.kinds.includes(choices.chosen.kind)) choices.chosen.kind = model.kinds[0] ?? "";
    },
    show: (found) => {
      insight = found;
      const map = found?.attention?.[choices.chosen.kind];
      if (map) choices.fill(found, offered);
      element.hidden = !map || map.shape || !choices.isIn(found); // the weights of a picture's cells are shown on the picture
      if (!element.hidden) redraw();
    },
    light: (selection) => {
      selected = selection;
      heat.select(selection);
      drawing?.select(selection);
    },
  };
}
