// Pure functions over the JSON of an insight (docs/look.md): which map to show, with which words on its two sides.

export const VIEWS = ["aligning", "weights", "mean", "maximum", "rollout", "flow", "norms"];
const KINDS = ["cross", "copy", "pooling", "encoder", "decoder"]; // in the order in which they are offered

/** Return the two sides of a kind of attention (or of a view): queries and keys. */
export function sides(insight, kind) {
  const map = insight.attention?.[kind] ?? insight.views?.[kind];
  return map && { queries: sideOf(insight, map, "queries"), keys: sideOf(insight, map, "keys") };
}

/** Return the kinds of attention in an insight, in the order in which they are offered. */
export function kindsOf(insight) {
  return KINDS.filter((kind) => insight.attention?.[kind]);
}

/** Return the views of a kind in an insight. */
export function viewsOf(insight, kind) {
  const map = insight.attention?.[kind];
  const aligning = kind === "cross" && insight.aligning ? ["aligning"] : [];
  const heads = map ? [...aligning, "weights", ...(map.weights[0].length > 1 ? ["mean", "maximum"] : [])] : [];
  const isOfKind = (view) => view && view.queries === map?.queries && view.keys === map?.keys;
  const layers = ["rollout", "flow"].filter((view) => isOfKind(insight.views?.[view]));
  return [...heads, ...layers, ...(map?.norms ? ["norms"] : [])];
}

/** Return the number of layers and heads of a kind. */
export function sizeOf(insight, kind) {
  const weights = insight.attention?.[kind]?.weights ?? [];
  return { layers: weights.length, heads: weights[0]?.length ?? 0 };
}

/**
 * Return one map: {queries, keys, weights [T][S], shape}, by words or by pieces.
 * `layer` and `head` count from 0, or from the end if negative. The default layer is the last, the default head the mean of all.
 * "aligning" is the head that aligns, if one is known, with its rows shifted to the words that they align; "weights" without
 * layer and head is the same.
 */
export function mapOf(insight, { kind = "cross", layer = null, head = null, view = "weights", byWords = true } = {}) {
  const found = view === "rollout" || view === "flow" ? insight.views?.[view] : insight.attention?.[kind];
  if (!found) return null;
  const [queries, keys] = ["queries", "keys"].map((end) => sideOf(insight, found, end));
  const pieces = insight.views?.[view] === found ? found.weights : ofHeads(insight, found, { kind, layer, head, view });
  const weights = byWords ? toWords(pieces, queries.word_of_piece, keys.word_of_piece) : pieces;
  const names = (side) => (byWords ? side.words : side.pieces);
  return { queries: names(queries), keys: names(keys), weights, shape: found.shape ?? null };
}

/** Turn pieces into words: the weights of keys are summed, those of queries averaged; rows still sum to 1. */
export function toWords(weights, wordOfQuery, wordOfKey) {
  const numQueries = count(wordOfQuery);
  const numKeys = count(wordOfKey);
  const merged = Array.from({ length: numQueries }, () => new Array(numKeys).fill(0));
  const pieces = new Array(numQueries).fill(0);
  wordOfQuery.forEach((word) => (pieces[word] += 1));
  weights.forEach((row, query) => {
    const into = wordOfQuery[query];
    row.forEach((weight, key) => (merged[into][wordOfKey[key]] += weight / pieces[into]));
  });
  return merged;
}

/** Return the keys that a query read most, or (with `across` false) the queries that read a key most: [{index, name, weight}]. */
export function strongest(map, index, { across = true, most = 3, least = 0.005 } = {}) {
  const found = across
    ? map.weights[index].map((weight, key) => ({ index: key, name: map.keys[key], weight }))
    : map.weights.map((row, query) => ({ index: query, name: map.queries[query], weight: row[index] }));
  return found.filter(({ weight }) => weight >= least).sort((a, b) => b.weight - a.weight).slice(0, most);
}

/** Return the words of a side and the text before each: [{word, before}]; a space if the words don't spell the text. */
export function withSpaces({ words, text }) {
  let at = 0;
  const found = words.map((word, index) => {
    const start = text.indexOf(word, at);
    const before = text.slice(at, start);
    if (start < 0 || before.trim()) return { word, before: index ? " " : "", isElsewhere: !/^<\/?s>$/.test(word) };
    at = start + word.length;
    return { word, before };
  });
  const spells = !found.some(({ isElsewhere }) => isElsewhere);
  return found.map(({ word, before }, index) => ({ word, before: spells ? before : index ? " " : "" }));
}

function sideOf(insight, map, end) {
  const side = insight.sides[map[end]];
  if (side) return side;
  const [rows, columns] = map.shape ?? [1, widthOf(map.weights)]; // a picture's cells are named by their row and column
  const pieces = Array.from({ length: rows * columns }, (_, at) => `${Math.floor(at / columns) + 1},${(at % columns) + 1}`);
  return { text: "", pieces, words: pieces, word_of_piece: pieces.map((_, at) => at) };
}

function ofHeads(insight, map, { kind, layer, head, view }) {
  const isAny = view === "weights" && layer === null && head === null;
  if (view === "aligning" || (isAny && kind === "cross" && insight.aligning)) return alignedWeights(map, insight.aligning);
  const heads = at(view === "norms" ? map.norms : map.weights, layer ?? -1);
  if (view === "maximum") return combine(heads, (values) => Math.max(...values));
  const chosen = view === "mean" || head === null ? heads : [at(heads, head)];
  return combine(view === "norms" ? chosen.map(shares) : chosen, mean);
}

/** Return the weights of the head that aligns. With shift 1, the step after a word aligns it, so rows move up by one. */
function alignedWeights(map, { layer, head, shift }) {
  const heads = at(map.weights, layer);
  const weights = combine(head === null ? heads : [at(heads, head)], mean);
  return [...weights.slice(shift), ...weights.slice(weights.length - shift)];
}

function combine(heads, pool) {
  return heads[0].map((row, query) => row.map((_, key) => pool(heads.map((weights) => weights[query][key]))));
}

function shares(norms) {
  return norms.map((row) => {
    const total = row.reduce((sum, norm) => sum + norm, 0);
    return row.map((norm) => (total ? norm / total : 0));
  });
}

function at(list, index) {
  const found = list.at(index);
  if (!found) throw new RangeError(`${index} given; there are ${list.length}`);
  return found;
}

function widthOf(nested) {
  return Array.isArray(nested[0]) ? widthOf(nested[0]) : nested.length;
}

function mean(values) {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

function count(wordOf) {
  return wordOf.length ? wordOf[wordOf.length - 1] + 1 : 0;
}

/** Return the sentences of a document ([{weight, first, end}]), or null: an answer may also name those of a story. */
export function sentencesOf({ answer }) {
  return answer.sentences?.every(({ weight }) => weight !== undefined) ? answer.sentences : null;
}

/** Return words with `sentence` ({weight, share of the greatest}) where one of a document begins. */
export function withSentences(words, sentences) {
  const most = Math.max(1e-9, ...sentences.map(({ weight }) => weight));
  const begins = new Map(sentences.filter(({ first, end }) => first < end).map(({ weight, first }) => [first, { weight, share: weight / most }]));
  return words.map((one, index) => (begins.has(index) ? { ...one, sentence: begins.get(index) } : one));
}
