// A label for a text, with the words that weighed in.

import { mapOf, strongest } from "../../shared/insight.js";
import { make, percent } from "../parts/dom.js";
import { bars, headline, named } from "../parts/probabilities.js";
import { at } from "./positions.js";

const mean = (rows) => rows[0].map((_, key) => rows.reduce((sum, row) => sum + row[key], 0) / rows.length);

/** `on.rest(reading | null)`: what is lit while nothing is pointed at. */
export function judged(on) {
  const [verdict, all] = [headline(), bars()];
  let insight = null;
  let map = null;
  const redraw = () => {
    map = insight.attention?.pooling ? mapOf(insight, on.wanted()) : null;
    on.rest(map && { weights: mean(map.weights), shape: null });
  };
  return {
    element: make("div", { class: "judged" }, verdict.element, all.element),
    show: ([part]) => {
      insight = part.insight;
      verdict.show(insight.answer);
      all.show(insight.answer.probabilities);
      redraw();
      const most = map ? strongest({ ...map, weights: [mean(map.weights)] }, 0).map(({ name, weight }) => `${name} ${percent(weight)}`) : [];
      return `${named(insight.answer)}${most.length ? `; it read most: ${most.join(", ")}` : ""}`;
    },
    redraw,
    light: (place, among) => {
      const [key] = place ? at(place, among) : [];
      on.say(key === undefined || !map ? "" : `${map.keys[key]}: ${percent(mean(map.weights)[key])} of the weight`);
    },
  };
}
