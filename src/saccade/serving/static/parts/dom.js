// Build elements without markup, so that a model's output is always text.

const SVG = "http://www.w3.org/2000/svg";

/** make("button", { class: "word", text: "go", onclick, "aria-label": "Go" }, ...children) */
export function make(name, properties = {}, ...children) {
  return build(document.createElement(name), properties, children);
}

/** The same for SVG elements. */
export function draw(name, properties = {}, ...children) {
  return build(document.createElementNS(SVG, name), properties, children);
}

function build(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") element.textContent = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

export const $ = (id) => document.getElementById(id);

let numChoices = 0;

/** A select after its label. Choices: [[value, text], ...]. */
export function choice(label, choices, value, onChange) {
  const id = `choice-${(numChoices += 1)}`;
  const select = make("select", { id, onchange: () => onChange(select.value) });
  const fill = (options, chosen) => {
    select.replaceChildren(...options.map(([key, text]) => make("option", { value: key, text })));
    select.value = String(chosen);
  };
  fill(choices, value);
  return { element: make("div", { class: "choice" }, make("label", { for: id, text: label }), select), select, fill };
}

/** 0.5 %, 12 %, 99.6 %, 100 %: one more digit near 0 and near 100. */
export function percent(share) {
  const value = 100 * share;
  const isFine = (value >= 0.05 && value < 0.95) || (value >= 99.5 && value < 99.95);
  return `${isFine ? value.toFixed(1) : Math.round(value)} %`;
}

/** Copy to the clipboard. Pages that aren't secure (plain HTTP from another machine) have no `navigator.clipboard`. */
export async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = make("textarea", { class: "unseen" });
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

export const prefersReducedMotion = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

/** Give `take` the first file that is dropped anywhere on the page while an element is shown; its frame is lit. */
export function takeDropped(element, frame, take) {
  document.addEventListener("dragover", (event) => {
    if (element.hidden) return;
    event.preventDefault();
    frame.classList.add("over");
  });
  document.addEventListener("dragleave", (event) => event.relatedTarget || frame.classList.remove("over"));
  document.addEventListener("drop", (event) => {
    if (element.hidden) return;
    event.preventDefault();
    frame.classList.remove("over");
    const source = event.dataTransfer.files[0];
    if (source) take(source);
  });
}
