// An output written word by word: a translation, sentence after sentence, or a caption.

import { mapOf, sides, strongest, toWords, withSpaces } from "../../shared/insight.js";
import { words } from "../../shared/words.js";
import { make, percent } from "../parts/dom.js";
import { stepSlider } from "../parts/steps.js";
import { thumbnails } from "../pictures/thumbnails.js";
import { otherOutputs } from "./others.js";
import { wordsAt } from "./positions.js";

const END = "</s>";
const PENDING = { text: "…", pieces: ["…"], words: ["…"], word_of_piece: [0] }; // a sentence without an answer yet
const FULL = 0.4; // the least weight that is lit in full

/** Return the probability of each word: the product of those of its pieces. */
function confidences(side, logProbabilities) {
  const sums = side.words.map(() => 0);
  logProbabilities.forEach((value, piece) => (sums[side.word_of_piece[piece]] += value));
  return sums.map(Math.exp);
}

/** Return the weights of each step, by the words of the source. */
function stepsOf(insight, wanted) {
  const map = mapOf(insight, { ...wanted, byWords: false });
  const { keys } = sides(insight, "cross");
  return toWords(map.weights, map.weights.map((_, step) => step), keys.word_of_piece);
}

const nameOf = (word) => (word === END ? "the end" : word);

/** Collect everything about one sentence; `starts` are its first word, step and key in the whole text. */
function partOf({ insight, before = "", choices = [] }, starts, wanted) {
  const side = insight?.sides.output ?? PENDING;
  const shown = withSpaces(side).filter(({ word }, index) => word !== END || index < side.words.length - 1);
  if (shown.length) shown[0].before = before;
  const hasWeights = Boolean(insight?.attention?.cross);
  return {
    insight, side, shown, choices, ...starts,
    map: hasWeights ? mapOf(insight, wanted) : null,
    read: hasWeights ? stepsOf(insight, wanted) : [],
    sure: insight ? confidences(side, insight.answer.log_probabilities) : [1],
  };
}

/**
 * `on.read(reading | null)`, `on.say(line)`, `on.wanted(insight)`: the map to show while a word is selected, `on.activate(part)`: show
 * the inside of another sentence, `on.choose(part, text)`: show another output of it.
 */
export function outputView(on) {
  const holder = make("div", { class: "text output" });
  const sure = make("input", { type: "checkbox", id: `sure-${on.slot}`, checked: true, onchange: () => element.classList.toggle("plain", !sure.checked) });
  const scale = make("span", { class: "scale", "aria-hidden": "true" }, make("i", { text: "unsure" }), make("b"), make("i", { text: "sure" }));
  const differs = make("span", { class: "differing", text: "Framed words differ", hidden: true });
  const legend = make("div", { class: "legend" }, sure, make("label", { for: sure.id, text: "Confidence" }), scale, differs);
  const list = words(holder, { label: `${on.title}: output, word by word`, onSelect: (index) => select(index) });
  const slider = stepSlider({ label: "Step by step", describe: (step) => describeStep(...stepAt(step)), onStep: (step) => showStep(step) });
  const strip = thumbnails({ onChoose: (word) => slider.to(parts[0].side.word_of_piece.indexOf(word)) });
  const others = otherOutputs({ title: on.title, onChoose: (text) => on.choose?.(active, text) });
  const element = make("div", { class: "sentence" }, holder, slider.element, legend, strip.element, others.element);
  let answers = [];
  let parts = [];
  let active = 0;
  let selected = null;

  const options = () => [...list.element.querySelectorAll(".word")];
  const partAt = (index, start, size) => parts.findIndex((part) => index >= part[start] && index < part[start] + size(part));
  const wordAt = (index) => {
    const part = partAt(index, "firstWord", ({ shown }) => shown.length);
    return [part, index - parts[part].firstWord];
  };
  const stepAt = (step) => {
    const part = partAt(step, "firstStep", ({ side }) => side.pieces.length);
    return [part, step - parts[part].firstStep];
  };
  const build = () => {
    parts = [];
    for (const one of answers) {
      const last = parts.at(-1);
      const starts = {
        firstWord: last ? last.firstWord + last.shown.length : 0,
        firstStep: last ? last.firstStep + last.side.pieces.length : 0,
        firstKey: last ? last.firstKey + last.numKeys : 0,
        numKeys: one.numKeys ?? one.insight?.sides.source?.words.length ?? 0,
      };
      parts.push(partOf(one, starts, one.insight && on.wanted(one.insight)));
    }
  };
  /** Return a row of weights over the words of the whole text. */
  const reading = (number, weights, index) => {
    const { firstKey, map, firstWord, shown } = parts[number];
    const from = options()[firstWord + Math.min(index, shown.length - 1)];
    return { weights: [...new Array(firstKey).fill(0), ...weights], shape: map.shape, from, query: index, part: number };
  };
  const describeWord = ({ insight, map, sure: shares }, index) => {
    if (!insight) return "This sentence is not answered yet";
    const read = map && !map.shape ? strongest(map, index).map(({ name, weight }) => `${nameOf(name)} ${percent(weight)}`).join(", ") : "";
    return `${percent(shares[index])} sure${read ? `; read ${read}` : ""}`;
  };
  const select = (index) => {
    selected = index;
    if (!parts.length) return;
    list.light(null, index);
    strip.mark(index);
    if (index === null) {
      on.say("");
      return on.read(null);
    }
    const [number, word] = wordAt(index);
    const part = parts[number];
    if (list.element.contains(document.activeElement)) activate(number);
    else on.need(number);
    on.say(`${part.shown[word].word}: ${describeWord(part, word)}`);
    on.read(part.map && reading(number, part.map.weights[word], word));
  };
  const describeStep = (number, step) => {
    const { side, read, map, insight } = parts[number];
    const piece = nameOf(side.pieces[step].replace("▁", ""));
    if (!read[step] || map.shape) return piece;
    const best = read[step].indexOf(Math.max(...read[step]));
    return `${piece}: read ${nameOf(sides(insight, "cross").keys.words[best])} ${percent(read[step][best])}`;
  };
  const showStep = (step) => {
    if (!parts.length) return;
    const [number, own] = step === null ? [null, null] : stepAt(step);
    const word = step === null ? null : parts[number].side.word_of_piece[own];
    const until = step === null ? Infinity : parts[number].firstWord + word;
    options().forEach((one, index) => one.classList.toggle("later", index > until));
    list.light(null, step === null ? null : until);
    strip.mark(step === null ? null : until);
    on.say(step === null ? "" : describeStep(number, own));
    if (step !== null) activate(number);
    on.read(step === null || !parts[number].read[own] ? null : reading(number, parts[number].read[own], word));
  };
  const activate = (number) => {
    on.need(number);
    if (number === active) return;
    active = number;
    listOthers();
    on.activate(number);
  };
  const listOthers = () => others.show(parts[active].choices, parts[active].insight?.answer.text);
  const decorate = () => {
    const flat = parts.flatMap((part) => part.shown.map((_, index) => [part, index]));
    options().forEach((one, index) => {
      const [part, word] = flat[index];
      one.classList.toggle("pending", !part.insight);
      one.style.setProperty("--sure", part.sure[word].toFixed(3));
      one.setAttribute("aria-description", describeWord(part, word));
    });
  };

  return {
    element,
    slider,
    show: (found, first = 0) => {
      answers = found;
      active = Math.min(first, found.length - 1);
      selected = null;
      build();
      list.update({ words: parts.flatMap(({ shown }) => shown) });
      decorate();
      listOthers();
      differs.hidden = true;
      if (parts[0].map?.shape) strip.show(on.picture(), parts[0].map, parts[0].shown.length);
      slider.reset(parts.reduce((sum, { side }) => sum + side.pieces.length, 0));
      return parts.map(({ insight, shown }) => `${shown[0]?.before ?? ""}${insight?.answer.text ?? ""}`).join("");
    },
    /** Show the same words with the weights that are known now. */
    fill: (found) => {
      answers = found;
      build();
      decorate();
      listOthers();
      if (selected !== null) select(selected);
      else if (slider.step !== null) showStep(slider.step);
    },
    /** Show another map. */
    redraw: () => {
      build();
      decorate();
    },
    /** Light the output words by how much they read the source word at a place. */
    light: (place, among) => {
      const keys = place ? wordsAt(place, among) : [];
      const share = ({ map, firstKey }, word) => keys.reduce((sum, key) => sum + (map?.weights[word][key - firstKey] ?? 0), 0);
      const shares = parts.flatMap((part) => part.shown.map((_, word) => share(part, word)));
      const most = Math.max(FULL, ...shares);
      list.light(place ? shares.map((one) => one / most) : null);
    },
    /** Mark a word of the active sentence. */
    select: (word) => list.light(null, word === null ? null : parts[active].firstWord + word),
    /** Light what an output word read of the output before it: <s> first, then each word one later. */
    own: (weights, word) => {
      const { firstWord, shown } = parts[active];
      list.light([...new Array(firstWord).fill(0), ...shown.map((_, index) => weights[index + 1] ?? 0)], word === null ? null : firstWord + word);
    },
    from: (word) => options()[parts[active].firstWord + word] ?? null,
    firstKey: () => parts[active].firstKey,
    /** The words of each sentence, by the place of the sentence in the source. */
    get words() {
      return parts.map(({ shown }, number) => ({ at: answers[number].at, words: shown.map(({ word }) => word) }));
    },
    /** Frame the words at these places; null: none. */
    mark: (places) => {
      differs.hidden = !places?.size;
      options().forEach((one, index) => one.classList.toggle("differs", places?.has(index) ?? false));
    },
  };
}
