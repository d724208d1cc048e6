// The page: an input on one side, one or two models on the other, and arcs between their words.

import { sentenceName } from "./answers.js";
import { asking } from "./asking.js";
import { arcs } from "./attention/arcs.js";
import { panel } from "./panel.js";
import { ask, key, RequestError } from "./parts/api.js";
import { $, make } from "./parts/dom.js";
import { pictureInput } from "./pictures/picture.js";
import { figure } from "./shell/figure.js";
import { keyForm } from "./shell/key.js";
import { languageTools } from "./shell/languages.js";
import * as link from "./shell/link.js";
import { logo } from "./shell/logo.js";
import { share } from "./shell/share.js";
import { soundInput } from "./sounds/sound.js";
import { differences } from "./text/differences.js";
import { editor } from "./text/editor.js";
import { transfer } from "./text/positions.js";

const FULL = 0.4; // the least weight that is lit in full
const KINDS = ["cross", "copy", "pooling", "encoder", "decoder"]; // in the order in which they are offered

const page = { models: [], limit: null, panels: [], rest: null, targets: new Map(), given: {} };
const eye = logo($("logo"));
const trail = arcs($("arcs"), (place) => eye.follow(place));
const text = editor({ onChange: (_, isComposing) => isComposing || askSoon(), onSelect: (index) => showReaders(index) });
const picture = pictureInput({ onChange: () => askSoon(0), onError: (line) => page.panels[0].fail(line) });
const sound = soundInput({ onChange: () => askSoon(0), onError: (line) => page.panels[0].fail(line) });
const files = { picture, sound }; // by what a model reads, if that isn't text
const keys = keyForm({ onKey: () => { notice(""); page.panels.length ? askSoon(0) : start(); } });
const tools = languageTools({
  onUse: (model) => { use(0, model.name); askSoon(0); },
  onSwap: (model) => {
    const written = page.panels[0].answer;
    use(0, model.name);
    if (written) text.text = written;
    askSoon(0);
  },
});
const notice = (line) => ($("notice").textContent = line);
const fileInput = () => files[page.panels[0].model.reads] ?? null;
const comparable = () => page.models.filter(({ reads }) => reads === page.panels[0].model.reads);
const size = () => [...text.text].length;
const isTooLong = () => !fileInput() && page.limit !== null && size() > page.limit;

const questions = asking({
  page,
  input: () => {
    const given = fileInput();
    if (given) return { file: given.field, data: given.data, isEmpty: given.isEmpty, received: given.received };
    const tooLong = isTooLong() && `This text has ${size()} characters; this server takes ${page.limit}. Shorten it to go on.`;
    return { text: text.text, caret: text.caret, tooLong };
  },
  on: {
    notice,
    ask: () => {
      trail.hide();
      showCount();
      document.body.classList.remove("empty");
    },
    clear: clearAll,
    begin: (signal) => fileInput() || tools.detect(text.text, signal),
    answer: showAnswer,
    look: () => {
      markDifferences();
      text.reselect();
    },
    key: () => keys.open(true),
  },
});
const askSoon = (wait) => questions.soon(wait);

const on = {
  notice,
  read,
  ask: () => askSoon(0),
  look: (one, number) => questions.lookInto(one, number),
  places: (one) => one === page.panels[0] && text.words(one.places),
  rest: (one, reading) => {
    if (one !== page.panels[0]) return;
    page.rest = reading;
    read(one, null);
  },
  picture: () => fileInput().canvas,
  path: (one, places, step) => (one === page.panels[0] || step !== null) && picture.path(places, step),
  choose: (one, part, output) => {
    page.targets.set(sentenceName(one.model, one.parts[part].text), output);
    askSoon(0);
  },
  settings: (one) => page.panels.forEach((other) => other !== one && other.inside.follow(one.inside.choices.chosen)),
  fit: () => page.panels.forEach((one) => (one.inside.mayUseRows = page.panels.every(({ inside }) => inside.fits))),
};

/** Light what was read; null: what to light while nothing is selected. */
function read(one, reading) {
  const shown = reading ?? (one === page.panels[0] ? page.rest : null);
  if (fileInput()) return fileInput().light(shown?.weights, shown?.shape);
  const weights = shown ? transfer(shown.weights, one.places.slice(0, shown.weights.length), text.places) : null;
  const most = Math.max(FULL, ...(weights ?? []));
  text.light(weights?.map((weight) => weight / most), reading?.here ?? null);
  if (!reading) return trail.hide();
  const show = () => trail.show(reading.from?.getBoundingClientRect() ?? null, weights.map((weight, index) => ({ place: text.placeOf(index), weight })));
  if (reading.from && text.reveal(weights.indexOf(Math.max(...weights)))) requestAnimationFrame(show); // after the scrolling, which hides them
  else show();
}

/** Light the output words that read a word of the source. */
function showReaders(index) {
  const place = index === null ? null : text.places[index];
  for (const one of page.panels) one.light(place);
  if (index === null) read(page.panels[0], null);
  else text.light(null, index);
}

function clearAll() {
  document.body.classList.add("empty");
  page.rest = null;
  page.targets.clear();
  $("live").textContent = "";
  tools.clear();
  for (const one of page.panels) one.clear();
}

function showAnswer(one) {
  if (one === page.panels[0]) {
    if (!fileInput()) text.words(one.places);
    read(one, null);
  }
  markDifferences();
  $("live").textContent = page.panels.length > 1 ? `${one.model.name}: ${one.answer}` : one.answer;
  eye.blink();
}

/** Frame the words in which two outputs differ. */
function markDifferences() {
  const [first, second] = page.panels.map(({ view }) => view);
  if (!first?.mark) return;
  if (!second?.mark) return first.mark(null);
  const found = differences(first.words, second.words);
  first.mark(found[0]);
  second.mark(found[1]);
}

function showCount() {
  const isNear = page.limit && size() > 0.8 * page.limit;
  $("count").textContent = isNear ? `${size()} of ${page.limit} characters` : "";
  $("count").classList.toggle("over", isTooLong());
  $("clear").hidden = Boolean(fileInput()) || !text.text;
}

$("cards").addEventListener("scroll", () => trail.hide(), true); // of a long text

$("clear").addEventListener("click", () => {
  text.text = "";
  askSoon(0);
  $("text").focus();
});

/** Use another model in a place. */
function use(place, name) {
  const wasPicture = page.panels[0].model ? fileInput() === picture : null;
  page.panels[place].use(page.models.find((one) => one.name === name) ?? page.models[0]);
  if (page.panels[1] && page.panels[1].model.reads !== page.panels[0].model.reads) closeSecond();
  if (place === 0) showInput(wasPicture);
  fillModels();
}

/** Show the input that the first model reads. */
function showInput(wasPicture) {
  page.rest = null;
  page.targets.clear();
  const { model } = page.panels[0];
  const { answers, columns, languages, texts, examples = [], picture: wanted } = model;
  tools.use(page.models, model);
  const given = fileInput();
  $("writing").hidden = Boolean(given);
  text.language = languages?.source.code ?? "";
  text.hint = columns?.length ? `On each line a word, and behind it: ${columns.join(", ")}.` : null;
  for (const one of Object.values(files)) one.element.hidden = one !== given;
  $("source-title").textContent = given ? (wanted?.frames ? "Clip" : given.title) : languages?.source.name ?? (texts ? "Input" : "Text");
  $("examples").hidden = Boolean(given) || !examples.length;
  $("examples").replaceChildren(make("span", { text: "Try" }), ...examples.slice(0, 4).map(chip));
  showCount();
  if (given !== picture) return;
  const isSame = picture.fit(wanted, answers === "path");
  if (!isSame || !wasPicture) picture.example(Number(page.given.example) || picture.seed || 1);
}

function chip(line) {
  const choose = () => {
    text.text = line;
    askSoon(0);
  };
  return make("button", { type: "button", class: "chip", dir: "auto", text: line, onclick: choose });
}

function fillModels() {
  const [first, second] = page.panels;
  first.models(page.models);
  second?.models(comparable());
  compare.hidden = Boolean(second) || comparable().length < 2;
}

const compare = make("button", { type: "button", class: "quiet", text: "Compare", title: "Show another model beside it", onclick: () => openSecond() });
const close = make("button", { type: "button", class: "quiet", text: "Close", "aria-label": "Close the second model", onclick: () => closeSecond() });

function openSecond(name) {
  const own = page.panels[0].model;
  const others = comparable().filter((one) => one !== own);
  const other = others.find((one) => one.name === name) ?? others.find(({ task }) => task === own.task) ?? others[0];
  if (!other) return;
  const second = panel({ slot: "b", title: "Second model", on: { ...on, chooseModel: (chosen) => { use(1, chosen); askSoon(0); } } });
  second.actions.append(close);
  Object.assign(second.inside.choices.chosen, page.panels[0].inside.choices.chosen);
  page.panels.push(second);
  $("arcs").before(second.element, second.inside.element);
  $("cards").dataset.answers = "2";
  use(1, other.name);
  askSoon(0);
}

function closeSecond() {
  const second = page.panels.pop();
  second.element.remove();
  second.inside.element.remove();
  $("cards").dataset.answers = "1";
  fillModels();
  on.fit();
  markDifferences();
  compare.focus();
}

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
    return `#${link.write({ ...state, ...(fileInput() ? { example: fileInput().seed } : { text: text.text }) })}`;
  },
  figure: () => figure({ panel: page.panels[0], picture: fileInput() }),
});

async function start(hasFailed = false) {
  try {
    const [{ models }, settings] = await Promise.all([ask("v1/models"), ask("frontend/settings")]);
    page.models = models.map(sortKinds);
    page.limit = settings.charLimit > 0 ? settings.charLimit : null;
    questions.succeed();
    if (hasFailed) notice("");
    if (settings.keyRequired) keys.open(!key.get());
    begin();
  } catch (error) {
    notice(error.message);
    if (error.wantsKey) keys.open(true);
    if (!(error instanceof RequestError)) throw error;
    if (error.mayPass) questions.again(() => start(true));
  }
}

/** Return a model with its kinds of attention in order. */
function sortKinds(model) {
  return { ...model, kinds: KINDS.filter((kind) => model.kinds.includes(kind)) };
}

/** Start with the first model, or with what a link says. */
function begin() {
  page.given = link.read(location.hash);
  const { model, beside: other, text: line, kind, view, units, layer, head } = page.given;
  const first = panel({ slot: "a", title: "Model", on: { ...on, chooseModel: (name) => { use(0, name); askSoon(0); } } });
  first.actions.append(compare);
  page.panels = [first];
  $("arcs").before(first.element, first.inside.element);
  if (line) text.text = line;
  const number = (given) => Math.max(0, Math.floor(Number(given)) || 0);
  const chosen = { kind, view, units: units === "pieces" ? units : null, layer: layer && number(layer), head: head && number(head) };
  const given = Object.entries(chosen).filter(([, value]) => value !== null && value !== undefined);
  Object.assign(first.inside.choices.chosen, Object.fromEntries(given));
  use(0, model);
  if (other) openSecond(other);
  askSoon(0);
}

addEventListener("hashchange", () => location.hash.includes("=") && location.reload()); // another link
start();
