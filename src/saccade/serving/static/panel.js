// One model: its answer, and its inside.

import { inside } from "./attention/inside.js";
import { choice, copy, make } from "./parts/dom.js";
import { glimpseView } from "./pictures/glimpses.js";
import { emptyState } from "./shell/empty.js";
import { labelView } from "./text/labels.js";
import { lineView } from "./text/line.js";
import { outputView } from "./text/output.js";
import { wordPlaces } from "./text/positions.js";
import { spanView } from "./text/spans.js";

const VIEWS = { text: outputView, label: labelView, spans: spanView, path: glimpseView }; // by what an answer is
const READING = ["cross", "pooling"]; // the kinds of attention from an answer to the input

/**
 * `on.chooseModel(name)`, `on.ask()` more about the same input, `on.read(panel, reading | null)`,
 * `on.rest(panel, reading | null)`, `on.path(panel, places, step)`, `on.choose(panel, part, text)`, `on.notice(line)`,
 * `on.picture()`: the canvas of the input.
 */
export function panel({ slot, title, on }) {
  const model = choice(title, [], "", (name) => on.chooseModel(name));
  const line = make("p", { class: "line" });
  const error = make("p", { class: "error", role: "alert" });
  const body = make("div", { class: "body" });
  const time = make("span", { class: "time" });
  const copyButton = make("button", { type: "button", class: "quiet", text: "Copy", hidden: true, onclick: () => copyAnswer() });
  const actions = make("div", { class: "actions" });
  const bar = make("div", { class: "bar" }, model.element, actions);
  const foot = make("div", { class: "foot" }, line, time, copyButton);
  const element = make("section", { class: `card answer answer-${slot}`, "aria-label": `${title}: answer` }, bar, error, body, emptyState(), foot);
  const within = inside({
    title: `${title}: inside`,
    onNeed: () => on.ask(),
    onChange: () => view.redraw(),
    onSelect: (selection) => showSelection(selection),
  });
  within.element.classList.add(`inside-${slot}`);
  let described = null;
  let parts = [];
  let active = 0;
  let view = null;
  let answerText = "";
  let places = [];

  const copyAnswer = async () => {
    await copy(answerText);
    on.notice("The answer is copied.");
  };
  const insight = () => parts[active]?.insight ?? null;
  const readingKind = () => described.kinds.find((kind) => READING.includes(kind));
  /** The map to show while a word is selected: the chosen one if it is of the right kind. */
  const wanted = () => {
    const kind = readingKind();
    const isChosen = within.choices.chosen.kind === kind && parts.every((part) => within.choices.isIn(part.insight));
    return isChosen ? within.choices.wanted(true) : { kind, byWords: true };
  };
  const isReading = () => within.choices.chosen.kind === readingKind() && within.choices.chosen.units === "words";
  const context = {
    slot,
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
      within.show(insight());
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
      return parts.map((part) => part.insight);
    },
    get view() {
      return view;
    },
    get places() {
      return places;
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
      view.element.hidden = copyButton.hidden = true;
      error.textContent = line.textContent = time.textContent = "";
      within.show(null);
      element.classList.remove("waiting");
    },
    wait: () => {
      view.slider?.stop();
      element.classList.add("waiting");
    },
    show: (found, text, { milliseconds, first = 0 }) => {
      parts = found;
      active = Math.min(first, found.length - 1);
      places = wordPlaces(found, text);
      element.classList.remove("waiting");
      error.textContent = "";
      view.element.hidden = false;
      within.show(insight());
      answerText = view.show(found, active);
      copyButton.hidden = !answerText;
      time.textContent = `${Math.round(milliseconds)} ms`;
      return answerText;
    },
    fail: (message) => {
      element.classList.remove("waiting");
      error.textContent = message;
    },
    /** Light what read a place of the source. */
    light: (place) => parts.length && view.light(place, places),
  };
  return self;
}

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
