// Inside one model: the heat map of the chosen weights, the same as lines, and small maps of all heads.

import { heatmap } from "../../shared/heatmap.js";
import { mapOf } from "../../shared/insight.js";
import { make } from "../parts/dom.js";
import { controls, KINDS, OF_ALL_LAYERS, VIEWS } from "./controls.js";
import { heads } from "./heads.js";
import { fitsInRows, lines, measure, naturalWidth } from "./lines.js";

const MIN_WIDTH = 240; // pixels, for lines
const COLUMNS_WIDTH = 460; // pixels, of two columns of words
const MANY_KEYS = 16; // more leave no room beside the heat map
const THROUGH_LAYERS = "Followed through all layers, most weights are small: colours go from 0 to 100 %. How far such a picture can be trusted, saccade look RUN --trust measures.";

/**
 * `onNeed()` when the insight lacks the chosen map, `onChange()` when another map is shown, `onChoose()` when a user chose it,
 * `onFit()` when the lines fit in rows or no longer do,
 * `onSelect({query, key} | null)` as the pointer or the focus enters and leaves a weight or a name.
 */
export function inside({ title, onNeed, onChange, onSelect, onChoose, onFit }) {
  const table = make("div", { class: "table" });
  const diagram = make("div", { class: "diagram" });
  const choices = controls({ onChange: () => choose() });
  const isNorms = () => choices.chosen.view === "norms";
  const gallery = heads({ onChoose: (place) => choose(Object.assign(choices.chosen, { ...place, view: isNorms() ? "norms" : "weights" })) });
  const sentence = make("p", { class: "sentence-shown", dir: "auto" });
  const bar = make("div", { class: "bar" }, make("h2", { text: "Inside" }), sentence, choices.element);
  const remark = make("p", { class: "remark", hidden: true, text: THROUGH_LAYERS });
  const maps = make("div", { class: "maps" }, table, diagram);
  const element = make("section", { class: "card inside", "aria-label": title, hidden: true }, bar, remark, maps, gallery.element);
  let insight = null;
  let offered = null;
  let drawing = null;
  let selected = null;
  let fits = true;
  let mayUseRows = true;
  let drawnFor = 0; // pixels

  const current = () => (insight && choices.isIn(insight) ? mapOf(insight, choices.wanted(choices.chosen.units === "words")) : null);
  const heat = heatmap(table, {
    onSelect: (selection) => {
      selected = selection;
      drawing?.select(selection);
      onSelect(selection);
    },
  });
  const choose = () => {
    change();
    onChoose();
  };
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
    const isThrough = OF_ALL_LAYERS.includes(view);
    remark.hidden = !isThrough;
    heat.update({ ...map, most: isThrough ? 1 : Math.max(0.0001, ...map.weights.flat()), label });
    showEdge();
    selected = null;
    maps.classList.toggle("long", map.keys.length > MANY_KEYS);
    diagram.replaceChildren();
    drawLines(map);
    gallery.show(insight, choices.chosen);
  };
  /** Show that the heat map goes on at the right. */
  const showEdge = () => table.classList.toggle("goes-on", table.scrollWidth - table.clientWidth - table.scrollLeft > 2);
  const drawLines = (map) => {
    const room = Math.floor(diagram.clientWidth);
    drawing = null;
    if (room < MIN_WIDTH || map.shape) return diagram.replaceChildren();
    const width = Math.min(room, Math.max(MIN_WIDTH, Math.ceil(naturalWidth(map, measure)) + 8));
    const fitted = fits;
    fits = fitsInRows(map, room, measure);
    const select = (selection) => {
      selected = selection;
      heat.select(selection);
      onSelect(selection);
    };
    const inRows = fits && mayUseRows;
    drawing = lines(map, { width: inRows ? width : Math.min(room, COLUMNS_WIDTH), inRows, label: "The same weights as lines between the words", onSelect: select });
    drawing.select(selected);
    diagram.replaceChildren(drawing.element);
    drawnFor = room;
    if (fits !== fitted) onFit();
  };
  new ResizeObserver(() => {
    const map = element.hidden ? null : current();
    showEdge();
    if (map && drawnFor !== Math.floor(diagram.clientWidth)) drawLines(map);
  }).observe(diagram);
  table.addEventListener("scroll", showEdge);
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
    /** Show what belongs to another sentence in grey until the weights of this one are there. */
    wait: () => element.classList.add("stale"),
    show: (found, shown = "") => {
      insight = found;
      element.classList.remove("stale");
      sentence.textContent = shown;
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
    /** Make the same choices as another model, as far as this one has them. */
    follow: (chosen) => {
      Object.assign(choices.chosen, chosen, offered.kinds.includes(chosen.kind) ? {} : { kind: choices.chosen.kind });
      change();
    },
    get fits() {
      return fits;
    },
    /** Draw lines between rows only if that is allowed: two models beside each other are drawn alike. */
    set mayUseRows(isAllowed) {
      if (isAllowed === mayUseRows) return;
      mayUseRows = isAllowed;
      const map = element.hidden ? null : current();
      if (map) drawLines(map);
    },
  };
}
