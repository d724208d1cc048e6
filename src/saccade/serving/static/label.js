// A label for a text, with the words that weighed in; or for a picture, with the path of glimpses.

import { mapOf, strongest } from "../shared/insight.js";
import { bars } from "./bars.js";
import { isStill, make, percent } from "./dom.js";
import { at } from "./passage.js";
import { scrubber } from "./scrubber.js";

function headline() {
  const name = make("strong", { dir: "auto" });
  const share = make("span");
  const show = ({ label, probabilities }) => {
    name.textContent = label;
    share.textContent = percent(probabilities[label]);
  };
  return { element: make("p", { class: "verdict" }, name, share), show };
}

const said = ({ label, probabilities }) => `${label}, ${percent(probabilities[label])}`;
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
      return `${said(insight.answer)}${most.length ? `; it read most: ${most.join(", ")}` : ""}`;
    },
    redraw,
    light: (place, among) => {
      const [key] = place ? at(place, among) : [];
      on.say(key === undefined || !map ? "" : `${map.keys[key]}: ${percent(mean(map.weights)[key])} of the weight`);
    },
  };
}

/** `on.path(places, step)`: where it looked up to a step; null: all of it. */
export function glimpsed(on) {
  const [verdict, all] = [headline(), bars()];
  let path = [];
  let answer = null;
  const told = (step) => `x ${Math.round(path[step][0])}, y ${Math.round(path[step][1])}`;
  const walk = (step) => {
    if (!path.length) return;
    on.path(path, step);
    all.turn(answer.beliefs?.[step ?? path.length - 1] ?? answer.probabilities);
    on.say(step === null ? "" : `Glimpse ${step + 1} of ${path.length}: ${told(step)}`);
  };
  const play = scrubber({ label: "Glimpse by glimpse", describe: told, onStep: walk });
  return {
    element: make("div", { class: "judged" }, verdict.element, play.element, all.element),
    scrubber: play,
    show: ([{ insight }]) => {
      answer = insight.answer;
      path = answer.path;
      verdict.show(answer);
      all.show(answer.probabilities);
      play.reset(path.length);
      if (on.slot === "a" && !isStill()) play.play();
      return `${said(answer)}, after ${path.length} glimpses`;
    },
    redraw: () => {},
    light: () => {},
  };
}
