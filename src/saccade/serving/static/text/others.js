// The next best outputs of a sentence, to choose from.

import { make } from "../parts/dom.js";

export function otherOutputs({ title, onChoose }) {
  const list = make("ol", { class: "others" });
  const element = make("section", { class: "more", "aria-label": `${title}: other outputs`, hidden: true }, make("h3", { text: "Other outputs" }), list);
  const row = ({ text, score }) => {
    const choose = make("button", { type: "button", class: "other", dir: "auto", text, onclick: () => onChoose(text) });
    return make("li", {}, choose, make("small", { text: score.toFixed(2).replace("-", "−"), title: "Its score: log p" }));
  };
  const show = (choices, shown) => {
    const rest = choices.filter(({ text }) => text !== shown);
    element.hidden = !rest.length;
    list.replaceChildren(...rest.map(row));
  };
  return { element, show };
}
