// The most probable label, and all labels with their probabilities, the most probable first.

import { make, percent } from "./dom.js";

const NUM_SHOWN = 10; // labels; components.css has the same number

export function bars() {
  const list = make("ol", { class: "bars", "aria-label": "Labels and their probabilities" });
  const rest = make("button", { type: "button", class: "quiet", onclick: () => { list.classList.add("all"); rest.hidden = true; } });
  const element = make("div", {}, list, rest);
  const rows = new Map();
  const set = (name, share) => {
    const { bar, value } = rows.get(name);
    bar.style.setProperty("--share", share.toFixed(4));
    value.textContent = percent(share);
  };
  const row = (name) => {
    const [bar, value] = [make("i", { "aria-hidden": "true" }), make("b")];
    rows.set(name, { bar, value });
    return make("li", {}, make("span", { text: name, dir: "auto" }), bar, value);
  };
  const show = (probabilities) => {
    const ranked = Object.entries(probabilities).sort(([, one], [, other]) => other - one);
    list.classList.remove("all");
    rows.clear();
    rest.hidden = ranked.length <= NUM_SHOWN;
    rest.textContent = `${ranked.length - NUM_SHOWN} more`;
    list.replaceChildren(...ranked.map(([name]) => row(name)));
    ranked.forEach(([name, share]) => set(name, share));
  };
  /** Show other probabilities, in the same order. */
  const update = (probabilities) => Object.entries(probabilities).forEach(([name, share]) => set(name, share));
  return { element, show, update };
}

/** The most probable label and its probability. */
export function headline() {
  const name = make("strong", { dir: "auto" });
  const share = make("span");
  const show = ({ label, probabilities }) => {
    name.textContent = label;
    share.textContent = percent(probabilities[label]);
  };
  return { element: make("p", { class: "prediction" }, name, share), show };
}

export const describeLabel = ({ label, probabilities }) => `${label}, ${percent(probabilities[label])}`;
