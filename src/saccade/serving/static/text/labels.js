// A label for a text, and how much each word weighed.

import { mapOf, sentencesOf, strongest, withSentences, withSpaces } from "../../shared/insight.js";
import { words } from "../../shared/words.js";
import { make, percent } from "../parts/dom.js";
import { bars, describeLabel, headline } from "../parts/probabilities.js";
import { wordsAt } from "./positions.js";

const mean = (rows) => rows[0].map((_, key) => rows.reduce((sum, row) => sum + row[key], 0) / rows.length);

/** `on.rest(reading | null)`: what to light while nothing is selected. */
export function labelView(on) {
  const [prediction, all] = [headline(), bars()];
  const box = make("div", { class: "document" });
  const sentenceWords = words(box, { label: "Sentences and their weights", onSelect: (key) => tell(key) });
  let insight = null;
  let map = null;
  const tell = (key) => on.say(key === null || key === undefined || !map ? "" : `${map.keys[key]}: ${percent(mean(map.weights)[key])} of the weight`);
  /** Show a document on two levels: a bar for each sentence, and its words lit by their weight. */
  const showSentences = () => {
    const sentences = sentencesOf(insight);
    box.hidden = !sentences || !map;
    if (box.hidden) return;
    sentenceWords.update({ words: withSentences(withSpaces(insight.sides.source), sentences) });
    const weights = mean(map.weights);
    const most = Math.max(1e-9, ...weights);
    sentenceWords.light(weights.map((weight) => weight / most));
  };
  const redraw = () => {
    map = insight.attention?.pooling ? mapOf(insight, on.wanted(insight)) : null;
    on.rest(map && { weights: mean(map.weights), shape: null });
  };
  return {
    element: make("div", { class: "labels" }, prediction.element, all.element, box),
    show: ([part]) => {
      insight = part.insight;
      prediction.show(insight.answer);
      all.show(insight.answer.probabilities);
      redraw();
      showSentences();
      const most = map ? strongest({ ...map, weights: [mean(map.weights)] }, 0).map(({ name, weight }) => `${name} ${percent(weight)}`) : [];
      return `${describeLabel(insight.answer)}${most.length ? `; it read most: ${most.join(", ")}` : ""}`;
    },
    redraw,
    light: (place, among) => {
      const [key] = place ? wordsAt(place, among) : [];
      tell(key);
    },
  };
}
