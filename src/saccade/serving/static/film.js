// What each word of a caption looked at: the picture once for each, in a row.

import { make } from "./dom.js";
import { spotlight } from "./sight.js";

export function film({ onChoose }) {
  const strip = make("div", { class: "strip" });
  const element = make("section", { class: "card film", "aria-label": "Where each word looked", hidden: true }, make("div", { class: "bar" }, make("h2", { text: "Where each word looked" })), strip);
  const show = (picture, map) => {
    element.hidden = !map;
    if (!map) return;
    strip.replaceChildren(...map.queries.map((name, step) => {
      const copy = make("canvas", { width: picture.width, height: picture.height, "aria-hidden": "true" });
      copy.getContext("2d").drawImage(picture, 0, 0);
      const shade = make("canvas", { class: "shade", "aria-hidden": "true" });
      spotlight(shade, map.weights[step], map.shape);
      const word = name === "</s>" ? "end" : name;
      return make("button", { type: "button", class: "still", "aria-pressed": "false", onclick: () => onChoose(step) }, make("span", { class: "frame" }, copy, shade), make("span", { text: word }));
    }));
  };
  const mark = (step) => [...strip.children].forEach((still, at) => still.setAttribute("aria-pressed", String(at === step)));
  return { element, show, mark };
}
