// Which language a text seems to be in, and the way back: the model that translates in the other direction.

import { ask } from "../parts/api.js";
import { $, make, percent } from "../parts/dom.js";

const LEAST = 12; // characters; shorter texts tell nothing
const MOST = 1000; // characters that are sent
const [SURE, FOREIGN] = [50, 10]; // percent

/** `onUse(model)`: use another model for the same text; `onSwap(model)`: translate the output back with it. */
export function languageTools({ onUse, onSwap }) {
  const [seems, swap] = [$("detected"), $("swap")];
  let models = [];
  let model = null;

  const isBetween = (source, target) => models.find(({ languages }) => languages?.source.code === source && languages.target.code === target);
  const back = () => model?.languages && isBetween(model.languages.target.code, model.languages.source.code);
  const describe = (found) => {
    const { source } = model.languages;
    const best = found[0];
    const own = found.find(({ language }) => language === source.code)?.confidence ?? 0;
    if (own >= SURE) return [`looks like ${source.name}, ${percent(own / 100)}`];
    const other = best.confidence >= SURE && models.find(({ languages }) => languages?.source.code === best.language);
    if (other) return [`looks like ${other.languages.source.name}: `, make("button", { type: "button", class: "quiet", text: `translate from ${other.languages.source.name}`, onclick: () => onUse(other) })];
    return own < FOREIGN ? [`does not look like ${source.name}`] : [];
  };
  swap.addEventListener("click", () => onSwap(back()));
  return {
    use: (all, chosen) => {
      [models, model] = [all, chosen];
      seems.replaceChildren();
      const other = back();
      swap.hidden = !other;
      if (other) swap.setAttribute("aria-label", `Swap: from ${other.languages.source.name} to ${other.languages.target.name}`);
    },
    /** Say which language a text seems to be in; a failure is no matter. */
    detect: async (text, signal) => {
      const asked = model;
      if (!asked.languages || text.trim().length < LEAST) return seems.replaceChildren();
      const found = await ask("detect", { body: { q: text.slice(0, MOST) }, signal }).catch(() => []);
      if (!signal.aborted && model === asked) seems.replaceChildren(...(found.length ? describe(found) : []));
    },
    clear: () => seems.replaceChildren(),
  };
}
