// A label for a picture, and the path of glimpses that led to it.

import { make, prefersReducedMotion } from "../parts/dom.js";
import { bars, describeLabel, headline } from "../parts/probabilities.js";
import { stepSlider } from "../parts/steps.js";

/** `on.path(places, step)`: show the path up to a step; null: all of it. */
export function glimpseView(on) {
  const [prediction, all] = [headline(), bars()];
  let path = [];
  let answer = null;
  const describe = (step) => `x ${Math.round(path[step][0])}, y ${Math.round(path[step][1])}`;
  const showStep = (step) => {
    if (!path.length) return;
    on.path(path, step);
    all.update(answer.beliefs?.[step ?? path.length - 1] ?? answer.probabilities);
    on.say(step === null ? "" : `Glimpse ${step + 1} of ${path.length}: ${describe(step)}`);
  };
  const slider = stepSlider({ label: "Glimpse by glimpse", describe, onStep: showStep });
  return {
    element: make("div", { class: "labels" }, prediction.element, slider.element, all.element),
    slider,
    show: ([{ insight }]) => {
      answer = insight.answer;
      path = answer.path;
      prediction.show(answer);
      all.show(answer.probabilities);
      slider.reset(path.length);
      if (on.slot === "a" && !prefersReducedMotion()) slider.play();
      return `${describeLabel(answer)}, after ${path.length} glimpses`;
    },
    redraw: () => {},
    light: () => {},
  };
}
