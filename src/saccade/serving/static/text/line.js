// An answer in one line, for tasks without a view of their own.

import { make } from "../parts/dom.js";

export function lineView() {
  const element = make("p", { class: "text", dir: "auto" });
  return {
    element,
    show: ([{ insight }]) => (element.textContent = insight.line),
    redraw: () => {},
    light: () => {},
    from: () => null,
  };
}
