// Two heads that look from a place to another one each, and one head that has to look for both.
import { make, slider, softmax, weightTable } from "./parts.js";
import { alike } from "./places.js";

const WORDS = ["the", "cat", "sat", "on", "the", "mat", "."];
const WIDTH = 32; // numbers of a position

export function look(places, sharpness) {
  // A head's query is the sum of the positions that it looks for.
  return softmax(WORDS.map((_, other) => sharpness * places.reduce((sum, place) => sum + alike(place, other, WIDTH), 0)));
}

function say(head, weights) {
  const ordered = weights.map((weight, place) => [weight, place]).sort(([one], [other]) => other - one);
  const read = ordered.filter(([weight]) => weight > 0.2).map(([weight, place]) => `${WORDS[place]} (${weight.toFixed(2)})`);
  return `${head} reads ${read.length ? read.join(" and ") : "a little of all"}`;
}

export function draw(figure) {
  figure.replaceChildren();
  const side = make("div", { class: "side" }, figure);
  const last = WORDS.length - 1;
  const place = slider(side, "word that asks", [0, last, 1, 2]);
  const first = slider(side, "head 1 looks by", [-last, last, 1, -1]);
  const second = slider(side, "head 2 looks by", [-last, last, 1, 3]);
  const length = slider(side, "length of the queries", [0, 100, 5, 60]);
  const names = ["head 1", "head 2", "one for both"];
  const show = weightTable(make("div", { class: "side" }, figure), "weight of each word", WORDS, names);
  const said = make("p", { role: "status" }, figure);

  function update() {
    const own = Number(place.value), sharpness = Number(length.value);
    const [one, other] = [first, second].map((head) => own + Number(head.value));
    const weights = [look([one], sharpness), look([other], sharpness), look([one, other], sharpness)];
    show(weights);
    said.textContent = `“${WORDS[own]}” asks: ${weights.map((head, number) => say(names[number], head)).join("; ")}.`;
    place.setAttribute("aria-valuetext", `${WORDS[own]}, word ${own + 1}`);
    for (const head of [first, second]) head.setAttribute("aria-valuetext", `${head.value} words`);
  }

  for (const input of [place, first, second, length]) input.addEventListener("input", update);
  update();
}

for (const figure of document.querySelectorAll('[data-figure="heads"]')) draw(figure);
