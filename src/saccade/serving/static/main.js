// The page: an input on one side, one or two models on the other, and the gaze between them.

import { gaze } from "./attention/arcs.js";
import { looked } from "./look.js";
import { panel } from "./panel.js";
import { ask, key, Trouble } from "./parts/api.js";
import { $, make } from "./parts/dom.js";
import { sight } from "./pictures/picture.js";
import { figure } from "./shell/figure.js";
import * as fragment from "./shell/link.js";
import { eye } from "./shell/logo.js";
import { share } from "./shell/share.js";
import { editor } from "./text/editor.js";
import { transferred } from "./text/positions.js";

const PAUSE = 300; // milliseconds without a key before it is asked
const FULL = 0.4; // a weight that lights in full even where none is greater
const KINDS = ["cross", "pooling", "encoder", "decoder"]; // the one that tells most first
const THROUGH = { translate: ["cross", "encoder", "decoder"], classify: ["pooling", "encoder"], tag: ["encoder"] }; // for rollout and flow
const SEES = new Set(["caption", "glimpse"]);

const page = { models: [], limit: null, panels: [], rest: null, targets: new Map(), given: {} };
const look = eye($("eye"));
const trail = gaze($("gaze"), (place) => look.follow(place));
const text = editor({ onChange: (_, isComposing) => isComposing || later(), onSelect: (index) => pointed(index) });
const picture = sight({ onChange: () => later(0), onTrouble: (line) => page.panels[0].fail(line) });
let asked = new AbortController();
let timer = null;

const notice = (line) => ($("notice").textContent = line);
const isSeeing = () => SEES.has(page.panels[0].model.task);
const alike = () => page.models.filter(({ task }) => SEES.has(task) === isSeeing());

const on = {
  notice,
  read,
  ask: () => later(0),
  rest: (one, reading) => {
    if (one !== page.panels[0]) return;
    page.rest = reading;
    read(one, null);
  },
  picture: () => picture.canvas,
  path: (one, places, step) => (one === page.panels[0] || step !== null) && picture.path(places, step),
  choose: (one, part, output) => {
    page.targets.set(`${one.model.name}\n${one.parts[part].text}`, output);
    later(0);
  },
};

/** Light what was read; null: what is lit while nothing is pointed at. */
function read(one, reading) {
  const shown = reading ?? (one === page.panels[0] ? page.rest : null);
  if (isSeeing()) {
    picture.light(shown?.weights, shown?.shape);
    return;
  }
  const weights = shown ? transferred(shown.weights, one.spots.slice(0, shown.weights.length), text.places) : null;
  const most = Math.max(FULL, ...(weights ?? []));
  text.light(weights?.map((weight) => weight / most), reading?.here ?? null);
  if (!reading) return trail.away();
  trail.look(reading.from?.getBoundingClientRect() ?? null, weights.map((weight, index) => ({ place: text.placeOf(index), weight })));
}

/** A word of the source is pointed at: who read it? */
function pointed(index) {
  const place = index === null ? null : text.places[index];
  for (const one of page.panels) one.light(place);
  if (index === null) read(page.panels[0], null);
  else text.light(null, index);
}

/** Ask as soon as there is a pause. */
function later(wait = PAUSE) {
  if (!page.panels.length) return; // the models aren't known yet; it is asked when they are
  clearTimeout(timer);
  asked.abort();
  trail.away();
  counted();
  if (!isSeeing() && !text.text.trim()) return empty();
  document.body.classList.remove("empty");
  for (const one of page.panels) one.wait();
  timer = setTimeout(answer, wait);
}

function empty() {
  document.body.classList.add("empty");
  page.rest = null;
  page.targets.clear();
  $("live").textContent = "";
  for (const one of page.panels) one.clear();
}

async function answer() {
  asked = new AbortController();
  notice("");
  await Promise.all(page.panels.map((one) => answered(one, asked.signal)));
}

async function answered(one, signal) {
  const began = performance.now();
  const given = isSeeing() ? { image: picture.data() } : { text: text.text };
  const onWait = (seconds) => notice(`The server is busy; asking again in ${seconds} s.`);
  try {
    const parts = await looked(one.model, given, { needs: one.inside.choices.needs(), targets: page.targets }, { signal, onWait });
    if (signal.aborted) return;
    notice("");
    shown(one, parts, performance.now() - began);
  } catch (error) {
    if (!signal.aborted) failed(one, error);
  }
}

function failed(one, error) {
  one.fail(error instanceof Trouble ? error.message : "Something went wrong on this page. Reload it to go on.");
  if (error.wantsKey) keyed(true);
  if (!(error instanceof Trouble)) throw error;
}

function shown(one, parts, milliseconds) {
  const first = Math.max(0, parts.findLastIndex(({ at }) => at <= text.caret));
  const said = one.show(parts, text.text, { milliseconds, first });
  if (one === page.panels[0]) {
    if (!isSeeing()) text.words(one.spots);
    read(one, null);
  }
  $("live").textContent = page.panels.length > 1 ? `${one.model.name}: ${said}` : said;
  look.blink();
}

function counted() {
  const size = [...text.text].length;
  $("count").textContent = page.limit && size > 0.8 * page.limit ? `${size} of ${page.limit} characters` : "";
}

/** Another model in a place. */
function use(place, name) {
  const wasSeeing = page.panels[0].model ? isSeeing() : null;
  page.panels[place].use(page.models.find((one) => one.name === name) ?? page.models[0]);
  if (page.panels[1] && SEES.has(page.panels[1].model.task) !== isSeeing()) alone();
  if (place === 0) turned(wasSeeing);
  refilled();
}

/** The input that the first model reads. */
function turned(wasSeeing) {
  page.rest = null;
  page.targets.clear();
  const { task, languages, examples = [], picture: wanted } = page.panels[0].model;
  $("writing").hidden = isSeeing();
  text.language = languages?.source.code ?? "";
  picture.element.hidden = !isSeeing();
  $("source-title").textContent = isSeeing() ? "Picture" : "Text";
  $("examples").hidden = isSeeing() || !examples.length;
  $("examples").replaceChildren(make("span", { text: "Try" }), ...examples.slice(0, 4).map(chip));
  if (!isSeeing()) return;
  const isSame = picture.fit(wanted, task === "glimpse");
  if (!isSame || !wasSeeing) picture.example(Number(page.given.example) || picture.seed || 1);
}

function chip(line) {
  const choose = () => {
    text.text = line;
    later(0);
  };
  return make("button", { type: "button", class: "chip", dir: "auto", text: line, onclick: choose });
}

function refilled() {
  const [first, second] = page.panels;
  first.models(page.models);
  second?.models(alike());
  compare.hidden = Boolean(second) || alike().length < 2;
}

const compare = make("button", { type: "button", class: "quiet", text: "Compare", title: "Another model beside it", onclick: () => beside() });
const close = make("button", { type: "button", class: "quiet", text: "Close", "aria-label": "Close the second model", onclick: () => alone() });

function beside(name) {
  const own = page.panels[0].model;
  const others = alike().filter((one) => one !== own);
  const other = others.find((one) => one.name === name) ?? others.find(({ task }) => task === own.task) ?? others[0];
  if (!other) return;
  const second = panel({ slot: "b", title: "Second model", on: { ...on, turned: (chosen) => { use(1, chosen); later(0); } } });
  second.actions.append(close);
  page.panels.push(second);
  $("gaze").before(second.element, second.inside.element);
  $("stage").dataset.answers = "2";
  use(1, other.name);
  later(0);
}

function alone() {
  const second = page.panels.pop();
  second.element.remove();
  second.inside.element.remove();
  $("stage").dataset.answers = "1";
  refilled();
  compare.focus();
}

function keyed(isOpen) {
  $("key-button").hidden = false;
  $("key-form").hidden = !isOpen;
  $("key-button").setAttribute("aria-expanded", String(isOpen));
  if (isOpen) $("key").focus();
}

$("key-button").addEventListener("click", () => keyed($("key-form").hidden));
$("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  key.set($("key").value.trim());
  keyed(false);
  notice("");
  if (page.panels.length) later(0);
  else start();
});

share({
  notice,
  name: () => `saccade-${page.panels[0].model.name}`,
  json: () => {
    const found = page.panels.flatMap(({ insights }) => insights);
    return found.length > 1 ? found : found[0] ?? null;
  },
  link: () => {
    const [first, second] = page.panels;
    const state = { model: first.model.name, beside: second?.model.name, ...first.inside.choices.chosen };
    return `#${fragment.written({ ...state, ...(isSeeing() ? { example: picture.seed } : { text: text.text }) })}`;
  },
  figure: () => figure({ panel: page.panels[0], picture: isSeeing() ? picture : null }),
});

async function start() {
  try {
    const [{ models }, settings] = await Promise.all([ask("v1/models"), ask("frontend/settings")]);
    page.models = models.map(offering);
    page.limit = settings.charLimit > 0 ? settings.charLimit : null;
    if (settings.keyRequired) keyed(!key.get());
    begin();
  } catch (error) {
    notice(error.message);
    if (error.wantsKey) keyed(true);
    if (!(error instanceof Trouble)) throw error;
  }
}

/** A model with what may be asked of it. */
function offering(model) {
  const isThrough = THROUGH[model.task]?.every((kind) => model.kinds.includes(kind));
  return { ...model, kinds: KINDS.filter((kind) => model.kinds.includes(kind)), views: isThrough ? ["rollout", "flow"] : [] };
}

/** With the first model, or as a link says. */
function begin() {
  page.given = fragment.read(location.hash);
  const { model, beside: other, text: line, kind, view, units, layer, head } = page.given;
  const first = panel({ slot: "a", title: "Model", on: { ...on, turned: (name) => { use(0, name); later(0); } } });
  first.actions.append(compare);
  page.panels = [first];
  $("gaze").before(first.element, first.inside.element);
  if (line) text.text = line;
  const number = (given) => Math.max(0, Math.floor(Number(given)) || 0);
  const chosen = { kind, view, units: units === "pieces" ? units : null, layer: layer && number(layer), head: head && number(head) };
  const given = Object.entries(chosen).filter(([, value]) => value !== null && value !== undefined);
  Object.assign(first.inside.choices.chosen, Object.fromEntries(given));
  use(0, model);
  if (other) beside(other);
  later(0);
}

addEventListener("hashchange", () => location.hash.includes("=") && location.reload()); // another link
start();
