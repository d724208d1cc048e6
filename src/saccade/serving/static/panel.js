// One model: its answer, and what is inside of it.

import { inside } from "./attention/inside.js";
import { choice, copy, make } from "./parts/dom.js";
import { glimpsed } from "./pictures/glimpses.js";
import { idle } from "./shell/empty.js";
import { judged } from "./text/labels.js";
import { sentence } from "./text/output.js";
import { places } from "./text/positions.js";
import { tagged } from "./text/spans.js";

const VIEWS = { translate: sentence, caption: sentence, classify: judged, tag: tagged, glimpse: glimpsed };
const TASKS = { translate: "Translate", classify: "Label texts", tag: "Tag words", caption: "Tell pictures", glimpse: "Glimpse at pictures" };
const READING = { translate: "cross", caption: "cross", classify: "pooling" };

/**
 * `on.turned(name)` another model is chosen, `on.ask()` more is wanted of the same input, `on.read(panel, reading | null)`,
 * `on.rest(panel, reading | null)`, `on.path(panel, places, step)`, `on.choose(panel, part, text)`, `on.notice(line)`,
 * `on.picture()`: the canvas that was looked at.
 */
export function panel({ slot, title, on }) {
  const model = choice(title, [], "", (name) => on.turned(name));
  const line = make("p", { class: "line" });
  const trouble = make("p", { class: "trouble", role: "alert" });
  const body = make("div", { class: "body" });
  const time = make("span", { class: "time" });
  const copier = make("button", { type: "button", class: "quiet", text: "Copy", hidden: true, onclick: () => copied() });
  const actions = make("div", { class: "actions" });
  const bar = make("div", { class: "bar" }, model.element, actions);
  const foot = make("div", { class: "foot" }, line, time, copier);
  const element = make("section", { class: `card answer answer-${slot}`, "aria-label": `${title}: answer` }, bar, trouble, body, idle(), foot);
  const within = inside({
    title: `${title}: inside`,
    onNeed: () => on.ask(),
    onChange: () => view.redraw(),
    onSelect: (selection) => pointed(selection),
  });
  within.element.classList.add(`inside-${slot}`);
  let described = null;
  let parts = [];
  let active = 0;
  let view = null;
  let said = "";
  let spots = [];

  const copied = async () => {
    await copy(said);
    on.notice("The answer is copied.");
  };
  const insight = () => parts[active]?.insight ?? null;
  /** Which map counts as reading: the chosen one where it is of that kind. */
  const wanted = () => {
    const kind = READING[described.task];
    const isChosen = within.choices.chosen.kind === kind && parts.every((part) => within.choices.isIn(part.insight));
    return isChosen ? within.choices.wanted(true) : { kind, byWords: true };
  };
  const isReading = () => within.choices.chosen.kind === READING[described.task] && within.choices.chosen.units === "words";
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
  /** A weight of the heat map, or one of its names, is pointed at: light what it is about. */
  const pointed = (selection) => {
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
    if (query === null && queries !== "source") view.light(spots[first + key] ?? null, spots);
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
    get spots() {
      return spots;
    },
    /** What may be chosen from. */
    models: (all) => {
      model.fill(all.map((one) => [one.name, titled(one)]), described.name);
      grouped(model.select, all);
      model.select.value = described.name;
    },
    use: (one) => {
      described = one;
      view?.scrubber?.stop();
      view = VIEWS[one.task](context);
      body.replaceChildren(view.element);
      body.lang = one.languages?.target.code ?? "";
      within.offer(one);
      self.clear();
    },
    clear: () => {
      view.scrubber?.stop();
      parts = [];
      view.element.hidden = copier.hidden = true;
      trouble.textContent = line.textContent = time.textContent = "";
      within.show(null);
      element.classList.remove("waiting");
    },
    wait: () => {
      view.scrubber?.stop();
      element.classList.add("waiting");
    },
    show: (found, text, { milliseconds, first = 0 }) => {
      parts = found;
      active = Math.min(first, found.length - 1);
      spots = places(found, text);
      element.classList.remove("waiting");
      trouble.textContent = "";
      view.element.hidden = false;
      within.show(insight());
      said = view.show(found, active);
      copier.hidden = !said;
      time.textContent = `${Math.round(milliseconds)} ms`;
      return said;
    },
    fail: (message) => {
      element.classList.remove("waiting");
      trouble.textContent = message;
    },
    /** A place in the source is pointed at. */
    light: (place) => parts.length && view.light(place, spots),
  };
  return self;
}

/** A model as people call it. */
export function titled({ name, languages }) {
  return languages ? `${languages.source.name} → ${languages.target.name} · ${name}` : name;
}

function grouped(select, all) {
  const tasks = [...new Set(all.map(({ task }) => task))];
  if (tasks.length < 2) return;
  const options = [...select.options];
  const group = (task) => make("optgroup", { label: TASKS[task] ?? task }, options.filter((_, index) => all[index].task === task));
  select.replaceChildren(...tasks.map(group));
}
