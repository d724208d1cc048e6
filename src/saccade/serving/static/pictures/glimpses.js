// A label for a picture, with the path of glimpses.

import { isStill, make } from "../parts/dom.js";
import { bars, headline, named } from "../parts/probabilities.js";
import { scrubber } from "../parts/steps.js";

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
      return `${named(answer)}, after ${path.length} glimpses`;
    },
    redraw: () => {},
    light: () => {},
  };
}
