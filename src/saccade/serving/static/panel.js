// One model: its answer, and its inside.

import { inside } from "./attention/inside.js";
import { choice, copy, make } from "./parts/dom.js";
import { glimpseView } from "./pictures/glimpses.js";
import { emptyState } from "./shell/empty.js";
import { continuationView } from "./text/continuation.js";
import { labelView } from "./text/labels.js";
import { lineView } from "./text/line.js";
import { outputView } from "./text/output.js";
import { wordPlaces } from "./text/positions.js";
import { spanView } from "./text/spans.js";
import { speechView } from "./text/speech.js";

const VIEWS = { text: outputView, elements: outputView, label: labelView, spans: spanView, path: glimpseView, continuation: continuationView, sound: speechView }; // by what an answer is
const READING = ["cross", "copy", "pooling"]; // the kinds of attention from an answer to the input
const DWELL = 120; // milliseconds on a word of a sentence that nobody looked at, before its weights are asked for

/**
 * `on.chooseModel(name)`, `on.ask()` more about the same input, `on.look(panel, part)`: ask for the weights of a part, `on.read(panel, reading | null)`,
 * `on.rest(panel, reading | null)`, `on.path(panel, places, step)`, `on.choose(panel, part, text)`, `on.notice(line)`,
 * `on.places(panel)`: other places of words, `on.settings(panel)`: other choices inside, `on.fit(panel)`: the lines fit otherwise, `on.picture()`: the canvas of the input.
 */
export function panel({ slot, title, on }) {
  const model = choice(title, [], "", (name) => on.chooseModel(name));
  const line = make("p", { class: "line" });
  const error = make("p", { class: "error", role: "alert" });
  const body = make("div", { class: "body" });
  const progress = make("div", { class: "progress", role: "progressbar", "aria-label": `${title}: working` });
  const time = make("span", { class: "time" });
  const copyButton = make("button", { type: "button", class: "quiet", text: "Copy", hidden: true, onclick: () => copyAnswer() });
  const actions = make("div", { class: "actions" });
  const bar = make("div", { class: "bar" }, model.element, actions);
  const foot = make("div", { class: "foot" }, line, time, copyButton);
  const element = make("section", { class: `card answer answer-${slot}`, "aria-label": `${title}: answer` }, progress, bar, error, body, emptyState(), foot);
  const within = inside({
    title: `${title}: inside`,
    onNeed: () => on.ask(),
    onChange: () => view.redraw(),
    onSelect: (selection) => showSelection(selection),
    onChoose: () => on.settings(self),
    onFit: () => on.fit(self),
  });
  within.element.classList.add(`inside-${slot}`);
  let described = null;
  let parts = [];
  let input = "";
  let active = 0;
  let view = null;
  let answerText = "";
  let places = [];
  let timer = null;

  const copyAnswer = async () => {
    await copy(answerText);
    on.notice("The answer is copied.");
  };
  const insight = () => parts[active]?.insight ?? null;
  const readingKind = () => described.kinds.find((kind) => READING.includes(kind));
  /** The map to show while a word is selected: the chosen one if it is of the right kind. */
  const wanted = (found) => {
    const kind = readingKind();
    const isChosen = within.choices.chosen.kind === kind && within.choices.isIn(found);
    return isChosen ? within.choices.wanted(true) : { kind, byWords: true };
  };
  const isReading = () => within.choices.chosen.kind === readingKind() && within.choices.chosen.units === "words";
  const lacksWeights = (number) => parts[number]?.insight && parts[number].isPlain && described.kinds.length > 0;
  const showInside = () => {
    if (lacksWeights(active)) within.wait();
    else within.show(insight(), parts.length > 1 ? parts[active].text : "");
  };
  const context = {
    slot,
    title,
    wanted,
    say: (text) => (line.textContent = text),
    read: (reading) => {
      within.light(reading && isReading() && (reading.part ?? 0) === active ? { query: reading.query, key: null } : null);
      on.read(self, reading);
    },
    rest: (reading) => on.rest(self, reading),
    path: (path, step) => on.path(self, path, step),
    picture: on.picture,
    choose: (part, text) => on.choose(self, part, text),
    activate: (number) => {
      active = number;
      showInside();
    },
    need: (number) => {
      clearTimeout(timer);
      if (lacksWeights(number)) timer = setTimeout(() => lacksWeights(number) && on.look(self, number), DWELL);
    },
  };
  /** Light the words of the weight or the name that is selected in the heat map. */
  const showSelection = (selection) => {
    if (!selection) {
      view.select?.(null);
      return on.read(self, null);
    }
    const { kind, units } = within.choices.chosen;
    const { queries, keys } = insight().attention[kind];
    const word = (side, index) => (index === null || units === "words" ? index : insight().sides[side].word_of_piece[index]);
    const [query, key] = [word(queries, selection.query), word(keys, selection.key)];
    const row = query === null ? null : within.byWords().weights[query];
    if (queries === "output") view.select?.(query);
    if (keys === "read") return view.own?.(row ?? [], query);
    const first = view.firstKey?.() ?? 0;
    const only = (weight, index) => (key === null || key === index ? weight : 0);
    const weights = row ? row.map(only) : within.byWords().keys.map((_, index) => Number(index === key));
    if (query === null && queries !== "source") view.light(places[first + key] ?? null, places);
    const from = queries === "output" && query !== null ? view.from(query) : null;
    const here = queries === "source" && query !== null ? first + query : null;
    on.read(self, { weights: [...new Array(first).fill(0), ...weights], shape: null, from, here, query });
  };
  const place = () => {
    const found = wordPlaces(parts, input);
    parts = parts.map((part, number) => ({ ...part, numKeys: found[number].length }));
    places = found.flat();
  };
  /** What stands there is no answer to the input: it is grey, and can't be copied. */
  const setStale = (isStale) => {
    element.classList.toggle("stale", isStale);
    copyButton.hidden = isStale || !answerText;
    if (!isStale) return;
    time.textContent = "";
    within.wait();
  };
  const setWaiting = (isWaiting) => {
    element.classList.toggle("waiting", isWaiting);
    body.setAttribute("aria-busy", String(isWaiting));
    progress.removeAttribute("aria-valuenow");
    progress.style.removeProperty("--done");
  };

  const self = {
    slot,
    element,
    actions,
    inside: within,
    get model() {
      return described;
    },
    get insight() {
      return insight();
    },
    get parts() {
      return parts;
    },
    get insights() {
      return parts.flatMap((part) => part.insight ?? []);
    },
    get view() {
      return view;
    },
    get places() {
      return places;
    },
    get answer() {
      return answerText;
    },
    get active() {
      return active;
    },
    /** Offer these models. */
    models: (all) => {
      model.fill(all.map((one) => [one.name, titleOf(one)]), described.name);
      groupByTask(model.select, all);
      model.select.value = described.name;
    },
    use: (one) => {
      described = one;
      view?.slider?.stop();
      view = (VIEWS[one.answers] ?? lineView)(context);
      body.replaceChildren(view.element);
      body.lang = one.languages?.target.code ?? "";
      within.offer(one);
      self.clear();
    },
    clear: () => {
      view.slider?.stop();
      parts = [];
      answerText = "";
      view.element.hidden = copyButton.hidden = true;
      error.textContent = line.textContent = time.textContent = "";
      within.show(null);
      setWaiting(false);
      setStale(false);
    },
    wait: () => {
      view.slider?.stop();
      clearTimeout(timer);
      setWaiting(true);
      setStale(true);
    },
    /** Show how many sentences of a long text are answered. */
    progress: (done, all) => {
      progress.setAttribute("aria-valuenow", String(Math.round((100 * done) / all)));
      progress.style.setProperty("--done", (done / all).toFixed(3));
      time.textContent = `${done} of ${all} sentences`;
    },
    /** Show a part of an answer that is being written. */
    grow: (text, part) => {
      error.textContent = "";
      view.element.hidden = false;
      element.classList.remove("stale");
      view.grow(text, part);
    },
    /** Show an answer; without `milliseconds` it is not complete yet. */
    show: (found, text, { milliseconds, first = 0 }) => {
      [parts, input] = [found, text];
      active = Math.min(first, found.length - 1);
      place();
      error.textContent = "";
      view.element.hidden = false;
      showInside();
      answerText = view.show(parts, active);
      element.classList.remove("stale");
      if (milliseconds === undefined) return (copyButton.hidden = true);
      setWaiting(false);
      setStale(false);
      time.textContent = `${Math.round(milliseconds)} ms`;
    },
    /** Show the weights of a part, which somebody looked at. */
    fill: (number, found) => {
      parts = parts.map((part, at) => (at === number ? { ...part, ...found } : part));
      place();
      on.places(self);
      const written = parts[number].insight.answer.text;
      if (view.words?.[number].words.join("") === shownWords(parts[number].insight)) view.fill(parts);
      else answerText = view.show(parts, active); // it wrote something else this time
      if (number === active) showInside();
      return written;
    },
    fail: (message) => {
      setWaiting(false);
      setStale(true);
      error.textContent = message;
    },
    /** Say why the inside of a part can't be shown; its answer stays. */
    failInside: (message) => {
      within.show(null);
      line.textContent = message;
    },
    /** Light what read a place of the source. */
    light: (source) => {
      if (!parts.length) return;
      view.light(source, places);
      const number = source ? parts.findIndex(({ at, text }) => at < source[1] && source[0] < at + text.length) : -1;
      if (number >= 0) context.need(number);
    },
  };
  return self;
}

const shownWords = ({ sides: { output } }) => output.words.filter((word, at) => word !== "</s>" || at < output.words.length - 1).join("");

/** Return the title of a model in the menu. */
export function titleOf({ name, title, languages, texts }) {
  if (languages) return `${languages.source.name} → ${languages.target.name} · ${name}`;
  return texts ? `${title} · ${name}` : name;
}

function groupByTask(select, all) {
  const tasks = [...new Set(all.map(({ task }) => task))];
  if (tasks.length < 2) return;
  const options = [...select.options];
  const group = (task) => make("optgroup", { label: all.find((one) => one.task === task).title }, options.filter((_, index) => all[index].task === task));
  select.replaceChildren(...tasks.map(group));
}
