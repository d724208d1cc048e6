// Inside one model: the heat map of what was chosen, the same as threads, and all heads at a glance.

import { heatmap } from "../../shared/heatmap.js";
import { mapOf } from "../../shared/insight.js";
import { make } from "../parts/dom.js";
import { controls, KINDS, VIEWS } from "./controls.js";
import { heads } from "./heads.js";
import { threads } from "./lines.js";

const NARROWEST = 240; // pixels, for threads
const LONG = 16; // keys: more leave no room beside the heat map

/**
 * `onNeed()` when something is chosen that the insight lacks, `onChange()` when another map is shown,
 * `onSelect({query, key} | null)` while a weight or a name is pointed at.
 */
export function inside({ title, onNeed, onChange, onSelect }) {
  const table = make("div", { class: "table" });
  const woven = make("div", { class: "woven" });
  const choices = controls({ onChange: () => turned() });
  const gallery = heads({ onChoose: (place) => turned(Object.assign(choices.chosen, { view: "weights", ...place })) });
  const bar = make("div", { class: "bar" }, make("h2", { text: "Inside" }), choices.element);
  const maps = make("div", { class: "maps" }, table, woven);
  const element = make("section", { class: "card inside", "aria-label": title, hidden: true }, bar, maps, gallery.element);
  let insight = null;
  let offered = null;
  let weave = null;
  let lit = null;

  const current = () => (insight && choices.isIn(insight) ? mapOf(insight, choices.wanted(choices.chosen.units === "words")) : null);
  const heat = heatmap(table, {
    onSelect: (selection) => {
      lit = selection;
      weave?.select(selection);
      onSelect(selection);
    },
  });
  const turned = () => {
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
    lit = null;
    maps.classList.toggle("long", map.keys.length > LONG);
    woven.replaceChildren();
    drawThreads(map);
    gallery.show(insight, choices.chosen);
  };
  const drawThreads = (map) => {
    const width = Math.floor(woven.clientWidth);
    weave = null;
    if (width < NARROWEST || map.shape) return woven.replaceChildren();
    const select = (selection) => {
      lit = selection;
      heat.select(selection);
      onSelect(selection);
    };
    weave = threads(map, { width, label: "The same weights as threads between the words", onSelect: select });
    weave.select(lit);
    woven.replaceChildren(weave.element);
  };
  new ResizeObserver(() => {
    const map = element.hidden ? null : current();
    if (map && Number(weave?.element.getAttribute("width")) !== Math.floor(woven.clientWidth)) drawThreads(map);
  }).observe(woven);
  new MutationObserver(() => {
    gallery.redraw();
    if (!element.hidden) gallery.show(insight, choices.chosen);
  }).observe(document.documentElement, { attributeFilter: ["data-theme"] }); // canvases don't change their colours by themselves

  return {
    element,
    choices,
    current,
    /** The same map by words, whatever is shown. */
    byWords: () => mapOf(insight, choices.wanted(true)),
    /** Another model: {kinds, views, layers, heads} that may be asked of it. */
    offer: (model) => {
      offered = model;
      if (!model.kinds.includes(choices.chosen.kind)) choices.chosen.kind = model.kinds[0] ?? "";
    },
    show: (found) => {
      insight = found;
      const map = found?.attention?.[choices.chosen.kind];
      if (map) choices.fill(found, offered);
      element.hidden = !map || map.shape || !choices.isIn(found); // where a picture's cells are read, the picture shows it
      if (!element.hidden) redraw();
    },
    light: (selection) => {
      lit = selection;
      heat.select(selection);
      weave?.select(selection);
    },
  };
}
