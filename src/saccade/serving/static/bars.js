// Labels with their probabilities, the likeliest first.

import { make, percent } from "./dom.js";

const FIRST = 6;

export function bars() {
  const list = make("ol", { class: "bars", "aria-label": "Labels and their probabilities" });
  const rest = make("button", { type: "button", class: "quiet", onclick: () => { list.classList.add("all"); rest.hidden = true; } });
  const element = make("div", {}, list, rest);
  const show = (probabilities) => {
    const ranked = Object.entries(probabilities).sort(([, one], [, other]) => other - one);
    list.classList.remove("all");
    rest.hidden = ranked.length <= FIRST;
    rest.textContent = `${ranked.length - FIRST} more`;
    list.replaceChildren(...ranked.map(([name, share]) => {
      const bar = make("i", { "aria-hidden": "true" });
      bar.style.setProperty("--share", share.toFixed(4));
      return make("li", {}, make("span", { text: name, dir: "auto" }), bar, make("b", { text: percent(share) }));
    }));
  };
  return { element, show };
}
