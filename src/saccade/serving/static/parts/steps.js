// A slider through the steps of an output or a path, with a button that plays them.

import { make } from "./dom.js";

const PAUSE = 750; // milliseconds

/** `describe(step)` names a step; `onStep(step | null)` shows all up to it (null: everything, as at first). */
export function stepSlider({ label, describe, onStep }) {
  const slider = make("input", { type: "range", min: 1, max: 1, value: 1, "aria-label": label });
  const button = make("button", { type: "button", class: "round play", "aria-label": `Play: ${label.toLowerCase()}` });
  const place = make("span", { class: "place", "aria-hidden": "true" });
  const element = make("div", { class: "steps", role: "group", "aria-label": label, hidden: true }, button, slider, place);
  let timer = null;
  let count = 0;
  let shown = null;

  const show = (step) => {
    shown = step;
    slider.value = step === null ? count : step + 1;
    place.textContent = `${slider.value} / ${count}`;
    slider.setAttribute("aria-valuetext", count ? `Step ${slider.value} of ${count}: ${describe(Number(slider.value) - 1)}` : "");
    slider.style.setProperty("--done", count > 1 ? ((slider.value - 1) / (count - 1)).toFixed(3) : "1");
    onStep(step);
  };
  const stop = () => {
    clearTimeout(timer);
    timer = null;
    button.classList.remove("playing");
    button.setAttribute("aria-label", `Play: ${label.toLowerCase()}`);
  };
  const play = (step) => {
    show(step);
    timer = setTimeout(() => (step + 1 < count ? play(step + 1) : (stop(), show(null))), step + 1 < count ? PAUSE : 2 * PAUSE);
  };
  const start = () => {
    button.classList.add("playing");
    button.setAttribute("aria-label", "Pause");
    const at = Number(slider.value) - 1;
    play(at + 1 < count ? at : 0);
  };
  button.addEventListener("click", () => (timer === null ? start() : stop()));
  slider.addEventListener("input", () => {
    stop();
    show(Number(slider.value) - 1);
  });
  slider.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    stop();
    show(null);
  });
  return {
    element,
    /** Set the number of steps and show all of them. */
    reset: (steps) => {
      stop();
      count = steps;
      slider.max = Math.max(1, steps);
      element.hidden = steps < 2;
      show(null);
    },
    play: start,
    /** The step that is shown; null: all. */
    get step() {
      return shown;
    },
    to: (step) => {
      stop();
      show(Math.min(count - 1, Math.max(0, step)));
    },
    stop,
  };
}
