// Choose the map to show: kind of attention, view, layer, head, words or pieces.

import { choice, make } from "../parts/dom.js";

export const KINDS = {
  cross: "Output reads source", copy: "Output copies source", encoder: "Source reads source", decoder: "Output reads output", pooling: "Label reads words",
};
export const VIEWS = {
  aligning: "The head that aligns", weights: "One head", mean: "Mean of heads", maximum: "Maximum of heads", rollout: "Rollout", flow: "Flow", norms: "Norms of one head",
};
export const OF_ALL_LAYERS = ["rollout", "flow"];
const OF_ONE_HEAD = ["weights", "norms"];
const UNITS = [["words", "Words"], ["pieces", "Pieces"]];

/** `onChange()` after every choice. `chosen` may be written to before `fill`; a model that lacks a choice takes the nearest. */
export function controls({ onChange }) {
  const chosen = { kind: "", view: "", layer: null, head: 0, units: "words" };
  const change = (field, value) => {
    chosen[field] = value;
    if (field === "kind") Object.assign(chosen, { layer: null, head: 0 });
    onChange();
  };
  const kind = choice("Attention", [], "", (value) => change("kind", value));
  const view = choice("View", [], "", (value) => change("view", value));
  const layer = choice("Layer", [], "", (value) => change("layer", Number(value)));
  const head = choice("Head", [], "", (value) => change("head", Number(value)));
  const units = choice("Units", UNITS, "words", (value) => change("units", value));

  /** Return the views of the chosen kind. */
  const viewsOf = (insight, heads, { kinds, views, norms }) => {
    const has = { aligning: chosen.kind === "cross" && insight.aligning, weights: true, mean: heads > 1, maximum: heads > 1, norms };
    return Object.keys(VIEWS).filter((name) => has[name] ?? (chosen.kind === kinds[0] && views.includes(name)));
  };
  const fill = (insight, offered) => {
    const { kinds, layers: { [chosen.kind]: layers }, heads: { [chosen.kind]: heads } } = offered;
    const views = viewsOf(insight, heads, offered);
    if (!views.includes(chosen.view)) chosen.view = views.find((name) => name !== "weights" || heads < 2);
    chosen.layer = Math.min(chosen.layer ?? layers - 1, layers - 1);
    chosen.head = Math.min(chosen.head, heads - 1);
    kind.fill(kinds.map((name) => [name, KINDS[name] ?? name]), chosen.kind);
    view.fill(views.map((name) => [name, VIEWS[name]]), chosen.view);
    const isAligning = chosen.view === "aligning";
    const isOne = OF_ONE_HEAD.includes(chosen.view);
    const isLayered = !isAligning && !OF_ALL_LAYERS.includes(chosen.view);
    fillNumbers(layer, layers, isLayered, isLayered ? chosen.layer : isAligning ? insight.aligning.layer : null);
    fillNumbers(head, heads, isOne, isOne ? chosen.head : isAligning ? insight.aligning.head : null);
    units.select.value = chosen.units;
    kind.element.hidden = kinds.length < 2;
    view.element.hidden = views.length < 2;
  };
  return {
    chosen,
    fill,
    element: make("div", { class: "controls" }, [kind, view, layer, head, units].map(({ element }) => element)),
    /** The arguments of `mapOf` for this choice. */
    wanted: (byWords) => {
      return { kind: chosen.kind, view: chosen.view, layer: chosen.layer, head: OF_ONE_HEAD.includes(chosen.view) ? chosen.head : null, byWords };
    },
    /** What to ask the server for. */
    needs: () => ({ kinds: chosen.kind ? [chosen.kind] : [], views: OF_ALL_LAYERS.filter((name) => name === chosen.view), norms: chosen.view === "norms" }),
    isIn: (insight) => {
      const found = insight.attention?.[chosen.kind];
      if (OF_ALL_LAYERS.includes(chosen.view)) return Boolean(found && insight.views?.[chosen.view]);
      return Boolean(chosen.view === "norms" ? found?.norms : found);
    },
  };
}

/** Offer numbers from 0, as the command line counts; without a choice, show the only one, or "all". */
function fillNumbers(one, count, isFree, value) {
  const numbers = Array.from({ length: count }, (_, index) => [index, index]);
  one.fill(isFree ? numbers : [["", value ?? "all"]], isFree ? value : "");
  one.select.disabled = !isFree || count < 2;
  one.element.hidden = count < 2;
}
