// The page that `saccade look --draw FILE.html` writes: one or several insights, and controls to look at them.

import { heatmap } from "./heatmap.js";
import { kindsOf, mapOf, sentencesOf, sides, sizeOf, strongest, viewsOf, withSentences, withSpaces } from "./insight.js";
import { overlay } from "./overlay.js";
import { download, toPng, toSvg } from "./save.js";
import { tiles } from "./tiles.js";
import { words } from "./words.js";

const VIEW_NAMES = {
  aligning: "The head that aligns",
  weights: "Weights of one head",
  mean: "Mean of the heads",
  maximum: "Maximum of the heads",
  rollout: "Rollout through the layers",
  flow: "Flow through the layers",
  norms: "Norms of one head",
};
const SIDE_NAMES = { source: "Source", output: "Output", read: "Read so far", label: "Label", picture: "Picture" };
const kindName = ({ queries, keys }) =>
  `${SIDE_NAMES[queries] ?? queries} reads ${queries === keys || keys === "read" ? "itself" : keys}`;
const percent = (share) => `${Math.round(100 * share)} %`;
const find = (id) => document.getElementById(id);

const insights = JSON.parse(find("insights").textContent);
const start = JSON.parse(find("start").textContent);
const pictures = JSON.parse(find("pictures").textContent).map(imageOf); // the picture of each insight, or null
const state = { at: 0, kind: "", view: "weights", layer: 0, head: 0, byWords: true };
const insight = () => insights[state.at];
let map = null;

const heat = heatmap(find("heat"), { queries: [], keys: [], weights: [], onSelect: (place) => light(place) });
const strips = {
  queries: words(find("queries"), { onSelect: (query) => light(query === null ? null : { query, key: null }) }),
  keys: words(find("keys"), { onSelect: (key) => light(key === null ? null : { query: null, key }) }),
};
const overview = tiles(find("heads"), { rows: [], onPick: pickHead });
const lightCell = (_, query) => light({ query, key: null });
const cells = tiles(find("cells"), { rows: [], onPick: lightCell, onPoint: lightCell });

/** Light the keys of a query, or the queries of a key, and describe them. A map's only query is always lit. */
function light(place) {
  const { query = map.queries.length === 1 && place === null ? 0 : null, key = null } = place ?? {};
  const most = (shares) => Math.max(...shares, 1e-9);
  const row = query === null ? null : map.weights[query];
  const column = query === null && key !== null ? map.weights.map((weights) => weights[key]) : null;
  heat.select({ query, key });
  strips.keys.light(row?.map((share) => share / most(row)), key);
  strips.queries.light(column?.map((share) => share / most(column)), query);
  cells.mark(0, query);
  showPicture(query);
  find("readout").textContent = describe(query, key);
}

function describe(query, key) {
  if (query === null && key === null) return `Point at a word${map.shape ? "" : ", or at a cell"}.`;
  if (query !== null && key !== null) {
    return `${map.queries[query]} gives ${map.keys[key]} ${percent(map.weights[query][key])}`;
  }
  if (map.shape) {
    const [{ index }] = strongest(map, query, { most: 1, least: 0 });
    return `${map.queries[query]} looks most at row ${Math.floor(index / map.shape[1]) + 1}, column ${(index % map.shape[1]) + 1}`;
  }
  const [name, verb, found] =
    query !== null
      ? [map.queries[query], "reads", strongest(map, query)]
      : [map.keys[key], "is read by", strongest(map, key, { across: false })];
  return `${name} ${verb} ${found.map((one) => `${one.name} ${percent(one.weight)}`).join(", ") || "nothing much"}`;
}

function show() {
  const { kind, view, layer, head, byWords } = state;
  map = mapOf(insight(), { kind, view, layer, head, byWords });
  const isPicture = map.shape !== null;
  for (const id of ["heat", "save-png", "save-svg"]) find(id).hidden = isPicture;
  find("seen").hidden = !isPicture;
  find("heat").parentElement.style.flexBasis = `min(100%, calc(9rem + ${26 * map.keys.length}px))`;
  if (isPicture) showCells(map);
  else heat.update({ ...map, most: mostOf(map), label: `${titleOf()}, in percent` });
  find("most").textContent = percent(mostOf(map));
  showStrips();
  showChoices();
  overview.mark(...(["aligning", "weights", "norms"].includes(view) ? [layer, head] : []));
  light(null);
}

/** Return the weight with the full colour: 1, but the greatest weight of a picture, of rollout or of flow. */
function mostOf({ weights, shape }) {
  const isThin = shape !== null || state.view === "rollout" || state.view === "flow";
  return isThin ? weights.flat().reduce((most, weight) => Math.max(most, weight), 1e-9) : 1;
}

/** Show where each word looked: on the picture, or without one as a map of its cells. */
function showCells({ queries, weights, shape: [rows, columns] }) {
  const picture = pictures[state.at];
  const fold = (row) => Array.from({ length: rows }, (_, at) => row.slice(at * columns, (at + 1) * columns));
  const most = mostOf(map);
  const drawn = (row) => (picture ? { canvas: over(document.createElement("canvas"), row) } : { weights: fold(row), most });
  const tile = (row, at) => ({ label: labelOf(queries[at]), name: queries[at], ...drawn(row) });
  cells.update({ rows: [weights.map(tile)] });
  find("scale").hidden = Boolean(picture); // each picture has its own scale
}

function showPicture(query) {
  const isThere = map.shape !== null && pictures[state.at] !== null;
  find("picture").hidden = !isThere;
  if (!isThere) return;
  over(find("picture"), query === null ? null : map.weights[query]);
  find("picture").setAttribute("aria-label", query === null ? "The picture" : labelOf(map.queries[query]));
}

const labelOf = (word) => `Where ${word} looked`;
const over = (canvas, weights) => overlay(canvas, pictures[state.at], weights, map.shape);

function imageOf(address) {
  return address && Object.assign(new Image(), { src: address });
}

function showStrips() {
  const shown = sides(insight(), state.kind);
  const { queries, keys } = insight().attention[state.kind];
  for (const [end, name] of [["queries", queries], ["keys", keys]]) {
    const side = shown[end];
    const list = state.byWords ? withSpaces(side) : side.pieces.map((word, at) => ({ word, before: at ? " " : "" }));
    const isSame = queries === keys;
    const sentences = sentencesOf(insight());
    const shownList = sentences && name === "source" ? withSentences(list, sentences) : list;
    const label = `${SIDE_NAMES[name] ?? name}${isSame ? (end === "queries" ? ", reading" : ", read") : ""}`;
    find(`${end}-name`).textContent = label;
    find(`${end}-row`).hidden = name === "picture";
    strips[end].update({ words: shownList, label });
  }
}

function showChoices() {
  const { layers, heads } = sizeOf(insight(), state.kind);
  const views = viewsOf(insight(), state.kind);
  options(find("kind"), kindsOf(insight()).map((kind) => [kind, kindName(insight().attention[kind])]), state.kind);
  options(find("view"), views.map((view) => [view, VIEW_NAMES[view]]), state.view);
  options(find("layer"), range(layers), state.layer);
  options(find("head"), range(heads), state.head);
  for (const id of ["kind", "view", "layer", "head"]) find(id).parentElement.hidden = find(id).length < 2;
  find("unit").hidden = Object.values(insight().sides).every(({ pieces, words: own }) => pieces.length === own.length);
  find("layer").disabled = ["aligning", "rollout", "flow"].includes(state.view);
  find("head").disabled = !["weights", "norms"].includes(state.view);
}

/** Show small maps of all heads; they change only with the sentence, the kind and the colours. */
function showHeads() {
  const { layers, heads } = sizeOf(insight(), state.kind);
  const byWords = state.byWords;
  const norms = state.view === "norms";
  const tile = (layer, head) => {
    const label = `Layer ${layer}, head ${head}${isAligning(layer, head) ? ", the one that aligns" : ""}`;
    const found = mapOf(insight(), { kind: state.kind, view: norms ? "norms" : "weights", layer, head, byWords });
    return { label, weights: found.weights };
  };
  const rows = Array.from({ length: layers }, (_, layer) => Array.from({ length: heads }, (_, head) => tile(layer, head)));
  find("about").textContent = `${insight().task}, ${count(layers, "layer")} of ${count(heads, "head")}`;
  find("overview").hidden = layers * heads < 2 || Boolean(insight().attention[state.kind].shape);
  overview.update({ rows });
}

function count(number, name) {
  return `${number} ${name}${number === 1 ? "" : "s"}`;
}

function isAligning(layer, head) {
  const known = state.kind === "cross" ? insight().aligning : null;
  return known?.layer === layer && known.head === head;
}

function pickHead(layer, head) {
  Object.assign(state, { layer, head, view: state.view === "norms" ? "norms" : "weights" });
  show();
}

/** Show another sentence or kind: what was asked for, else the head that aligns, else the mean of the last layer. */
function begin({ kind, name, layer, head }) {
  const kinds = kindsOf(insight());
  state.kind = kinds.includes(kind) ? kind : kinds[0];
  const { layers, heads } = sizeOf(insight(), state.kind);
  const views = viewsOf(insight(), state.kind);
  const aligning = views.includes("aligning") ? insight().aligning : null;
  const within = (value, count) => Math.min(count - 1, value < 0 ? value + count : value);
  state.layer = within(layer ?? aligning?.layer ?? -1, layers);
  state.head = within(head ?? aligning?.head ?? 0, heads);
  const plain = head !== undefined || heads === 1 ? "weights" : "mean";
  const asked = name === "weights" && layer === undefined && head === undefined ? undefined : name === "weights" ? plain : name;
  state.view = views.includes(asked) ? asked : aligning ? "aligning" : plain;
  showHeads();
  show();
}

function showAnswer() {
  const { answer } = insight();
  const facts = [
    ["score", answer.score?.toFixed(2).replace("-0.00", "0.00")],
    [answer.label, answer.probability === undefined ? undefined : percent(answer.probability)],
    ...(answer.spans ?? []).map(({ kind, text }) => [kind, text]),
  ];
  const shown = facts.filter(([, value]) => value !== undefined);
  find("facts").replaceChildren(...shown.map(([name, value]) => fact(name, value)));
  find("facts").hidden = !shown.length;
}

function fact(name, value) {
  const element = document.createElement("li");
  const strong = document.createElement("b");
  strong.textContent = value;
  element.append(`${name} `, strong);
  return element;
}

function options(select, entries, chosen) {
  select.replaceChildren(...entries.map(([value, text]) => new Option(text, value, false, String(value) === String(chosen))));
}

function range(count) {
  return Array.from({ length: count }, (_, at) => [at, String(at)]);
}

function titleOf() {
  const { kind, view, layer, head } = state;
  const place = { aligning: "the head that aligns", weights: `layer ${layer}, head ${head}`, norms: `norms of layer ${layer}, head ${head}`, mean: `layer ${layer}, mean of the heads`, maximum: `layer ${layer}, maximum of the heads` };
  return `${kindName(insight().attention[kind])}: ${place[view] ?? view}`;
}

function turnTo(at) {
  state.at = ((at ?? 0) + insights.length) % insights.length;
  find("sentence").value = String(state.at);
  showAnswer();
  begin(at === null ? start : { kind: state.kind });
}

function themeNow() {
  return document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}

function repaint() {
  find("theme").setAttribute("aria-pressed", String(themeNow() === "dark"));
  showHeads();
  show();
}

find("kind").addEventListener("change", ({ target }) => begin({ kind: target.value }));
find("view").addEventListener("change", ({ target }) => {
  state.view = target.value;
  showHeads();
  show();
});
for (const name of ["layer", "head"]) {
  find(name).addEventListener("change", ({ target }) => {
    state[name] = Number(target.value);
    show();
  });
}
for (const input of document.querySelectorAll("[name=unit]")) {
  input.addEventListener("change", () => {
    state.byWords = input.value === "words";
    showHeads();
    show();
  });
}
find("theme").addEventListener("click", () => {
  document.documentElement.dataset.theme = themeNow() === "dark" ? "light" : "dark";
  repaint();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
find("cells").addEventListener("pointerleave", () => light(null));
const saved = () => ({ most: mostOf(map), title: titleOf() });
find("save-svg").addEventListener("click", () => download("attention.svg", toSvg(map, saved()), "image/svg+xml"));
find("save-png").addEventListener("click", async () => download("attention.png", await toPng(map, saved())));
find("save-json").addEventListener("click", () => download("insight.json", JSON.stringify(insight(), null, 1), "application/json"));
find("before").addEventListener("click", () => turnTo(state.at - 1));
find("after").addEventListener("click", () => turnTo(state.at + 1));
find("sentence").addEventListener("change", ({ target }) => turnTo(Number(target.value)));

const textOf = ({ sides: both, answer }) => both.source?.text || answer.text || answer.label || "";
options(find("sentence"), insights.map((one, at) => [at, `${at + 1}. ${textOf(one)}`]), 0);
state.byWords = start.byWords ?? true;
document.querySelector(`[name=unit][value=${state.byWords ? "words" : "pieces"}]`).checked = true;
find("sentences").hidden = insights.length < 2;
find("theme").setAttribute("aria-pressed", String(themeNow() === "dark"));
Promise.all(pictures.map((picture) => picture?.decode())).then(() => turnTo(null));
