// The picture once for each word of a caption, with the weights of that word.

import { make } from "../parts/dom.js";
import { spotlight } from "./picture.js";

/** `onChoose(word)` when a thumbnail is pressed. */
export function thumbnails({ onChoose }) {
  const element = make("div", { class: "thumbnails", role: "group", "aria-label": "Where each word looked", hidden: true });
  const thumbnail = (picture, map, word) => {
    const copy = make("canvas", { width: picture.width, height: picture.height, "aria-hidden": "true" });
    const shade = make("canvas", { class: "shade", "aria-hidden": "true" });
    copy.getContext("2d").drawImage(picture, 0, 0);
    spotlight(shade, map.weights[word], map.shape);
    const frame = make("span", { class: "frame" }, copy, shade);
    const name = make("span", { text: map.queries[word] });
    return make("button", { type: "button", class: "thumbnail", "aria-pressed": "false", onclick: () => onChoose(word) }, frame, name);
  };
  return {
    element,
    show: (picture, map, count) => {
      element.hidden = false;
      element.classList.toggle("strips", picture.width > 2 * picture.height);
      element.replaceChildren(...Array.from({ length: count }, (_, word) => thumbnail(picture, map, word)));
    },
    mark: (word) => [...element.children].forEach((one, index) => one.setAttribute("aria-pressed", String(index === word))),
  };
}
