// An answer in one line: of a task that the page has no other view for.

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
