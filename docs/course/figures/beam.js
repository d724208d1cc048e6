// A beam search to step through: which beginnings are kept, dropped and finished.
import { make } from "./parts.js";

const NEXT = {
  "<s>": { a: 0.55, the: 0.45 },
  a: { cat: 0.4, dog: 0.35, "</s>": 0.25 },
  the: { cat: 0.9, dog: 0.1 },
  cat: { sleeps: 0.6, "</s>": 0.4 },
  dog: { sleeps: 0.7, "</s>": 0.3 },
  sleeps: { "</s>": 0.9, the: 0.1 },
};
const WIDEST = 4, LONGEST = 6, END = "</s>";

export function search(width, next = NEXT) {
  // All steps: for each the beginnings with p, and whether they are kept, finished or dropped.
  let live = [{ words: ["<s>"], p: 1 }];
  const steps = [], finished = [];
  for (let number = 0; live.length && number < LONGEST; number += 1) {
    const all = live.flatMap(({ words, p }) =>
      Object.entries(next[words.at(-1)]).map(([word, q]) => ({ words: [...words, word], p: p * q })),
    );
    all.sort((one, other) => other.p - one.p);
    const shown = all.map((one, place) => {
      const isDropped = place >= width;
      return { ...one, fate: isDropped ? "dropped" : one.words.at(-1) === END ? "finished" : "kept" };
    });
    finished.push(...shown.filter((one) => one.fate === "finished"));
    live = shown.filter((one) => one.fate === "kept");
    steps.push(shown);
    const best = Math.max(0, ...finished.map((one) => one.p));
    if (live.every((one) => one.p <= best)) break; // p only falls: none can still win
  }
  finished.sort((one, other) => other.p - one.p);
  return { steps, best: finished[0] };
}

export function draw(figure) {
  figure.replaceChildren();
  const bar = make("div", { class: "controls" }, figure);
  const label = make("label", {}, bar, "width of the beam ");
  const width = make("select", {}, label);
  for (let number = 1; number <= WIDEST; number += 1) make("option", { value: number }, width, number);
  const back = make("button", { type: "button" }, bar, "Back");
  const forth = make("button", { type: "button" }, bar, "Step");
  const board = make("div", { class: "board", role: "region", "aria-label": "steps of the search", tabindex: "0" }, figure);
  const said = make("p", { role: "status" }, figure);
  let number = 0;

  function show() {
    const { steps, best } = search(Number(width.value));
    number = Math.max(0, Math.min(number, steps.length));
    board.replaceChildren();
    steps.slice(0, number).forEach((step, place) => {
      const column = make("section", {}, board);
      make("h3", {}, column, `step ${place + 1}`);
      const list = make("ol", {}, column);
      for (const { words, p, fate } of step) {
        const item = make("li", { class: fate }, list, `${words.slice(1).join(" ")} `);
        make("span", { class: "p" }, item, p.toFixed(3));
        make("span", { class: "fate" }, item, fate);
      }
    });
    back.disabled = number === 0;
    forth.disabled = number === steps.length;
    said.textContent = forth.disabled
      ? `Done: “${best.words.slice(1, -1).join(" ")}”, p = ${best.p.toFixed(4)}. No beginning that is left can be better.`
      : `${number} of ${steps.length} steps.`;
  }

  forth.addEventListener("click", () => { number += 1; show(); });
  back.addEventListener("click", () => { number -= 1; show(); });
  width.addEventListener("change", () => { number = 0; show(); });
  show();
}

for (const figure of document.querySelectorAll('[data-figure="beam"]')) draw(figure);
