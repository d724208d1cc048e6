// Sinusoidal positions: how alike all places are to the one that is chosen.
import { make, slider } from "./parts.js";

const PLACES = 48, WIDE = 480, HIGH = 160, BASE = 10000;

export function alike(place, other, width) {
  // p_s . p_t over its largest value: the mean of cos((s - t) w_i).
  let sum = 0;
  for (let pair = 0; pair < width / 2; pair += 1) sum += Math.cos((place - other) / BASE ** ((2 * pair) / width));
  return sum / (width / 2);
}

export function draw(figure) {
  figure.replaceChildren();
  const side = make("div", { class: "side" }, figure);
  const place = slider(side, "place", [0, PLACES - 1, 1, 12]);
  const power = slider(side, "numbers of a position (2 to 256)", [1, 8, 1, 5]);
  const said = make("p", { role: "status" }, side);
  const plot = make("svg:svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", class: "wide" }, figure);
  const title = make("svg:title", {}, plot);
  const zero = HIGH * 0.62;
  make("svg:path", { d: `M0 ${zero}H${WIDE}`, class: "axes" }, plot);
  const bars = Array.from({ length: PLACES }, () => make("svg:rect", { width: WIDE / PLACES - 2 }, plot));

  function show() {
    const width = 2 ** Number(power.value), own = Number(place.value);
    bars.forEach((bar, other) => {
      const height = alike(own, other, width) * zero * 0.95;
      bar.setAttribute("x", (other * WIDE) / PLACES + 1);
      bar.setAttribute("y", height < 0 ? zero : zero - height);
      bar.setAttribute("height", Math.abs(height));
      bar.setAttribute("class", other === own ? "tip" : "dot");
    });
    const next = alike(own, own + 1, width).toFixed(2), far = alike(own, own + 10, width).toFixed(2);
    said.textContent = `${width} numbers: a neighbour is ${next} alike, a place ten away ${far}.`;
    title.textContent = `How alike ${PLACES} places are to place ${own}`;
    power.setAttribute("aria-valuetext", `${width} numbers`);
  }

  for (const input of [place, power]) input.addEventListener("input", show);
  show();
}

for (const figure of document.querySelectorAll('[data-figure="places"]')) draw(figure);
