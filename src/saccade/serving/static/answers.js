// What a model answers. A text is answered sentence by sentence, many in one request, and what is known is not asked again: while one types, only the
// sentence that changes is. Weights, which take much longer, are asked for one sentence at a time, where somebody looks.

import { ask, follow, RequestError } from "./parts/api.js";
import { splitText } from "./text/positions.js";

const NUM_BEST = 4; // outputs, the best included
const IN_ONE_REQUEST = { sentences: 48, characters: 4000 }; // so that answers appear as they come
const IN_THE_FIRST = 8; // sentences
const MAX_WHOLE = 400; // bytes of a sentence; the server cuts longer ones

/** A map that forgets what was least recently used. */
function memory(size) {
  const known = new Map();
  return {
    get: (name) => {
      const found = known.get(name);
      if (found !== undefined) known.delete(name) && known.set(name, found);
      return found;
    },
    set: (name, value) => {
      known.delete(name);
      known.set(name, value);
      if (known.size > size) known.delete(known.keys().next().value);
      return value;
    },
  };
}

const outputs = memory(5000); // of a sentence: [{text, insight without weights}], more than one if the server cut it
const insights = memory(100);
const choices = memory(300);
const nameOf = (...parts) => JSON.stringify(parts);

async function askOnce(known, name, path, body, options) {
  return known.get(name) ?? known.set(name, await ask(path, { body, ...options }));
}

/** `needs`: the kinds, views and norms that are shown. */
function bodyOf(model, given, needs) {
  const kinds = [...new Set([...model.kinds.slice(0, 1), ...needs.kinds])].filter((kind) => model.kinds.includes(kind));
  const more = { ...(model.kinds.length ? { kinds } : {}), ...(needs.views.length ? { views: needs.views } : {}), ...(needs.norms ? { norms: true } : {}) };
  return { model: model.name, ...given, ...more };
}

/** Look at a file (a picture or a sound), or at a text that is no sentences. */
export async function lookAtAll(model, { text = "", file }, needs, options) {
  if (file !== undefined) return { insight: await ask("v1/look", { body: bodyOf(model, file, needs), ...options }), at: 0, text, before: "" };
  const body = bodyOf(model, { text }, needs);
  return { insight: await askOnce(insights, nameOf(body), "v1/look", body, options), at: 0, text, before: "" };
}

/** Have a text written on; `onText(part)` as it is written. Its weights are looked at when it is complete, if it is not too long for that. */
export async function writeOn(model, text, needs, { onText, ...options }) {
  const { answers: [answer] } = await follow(`v1/${model.task}`, { body: { model: model.name, q: text, stream: true }, onText, ...options });
  const part = { at: 0, text, before: "", given: text };
  try {
    if (model.kinds.length && answer.text.trim()) return { ...part, insight: await ask("v1/look", { body: bodyOf(model, { text, target: answer.text }, needs), ...options }) };
  } catch (error) {
    if (!(error instanceof RequestError) || error.mayPass || error.wantsKey) throw error;
  }
  const words = answer.whole.match(/\S+/g) ?? [];
  const output = { text: answer.whole, pieces: words, words, word_of_piece: words.map((_, at) => at) };
  return { ...part, insight: { task: model.task, answer, line: answer.whole, sides: { output }, attention: {} } };
}

/** Look at the output of a sentence, its own or a chosen one, and find others to choose from. */
export async function lookAt(model, text, { needs, target }, options) {
  const body = bodyOf(model, { text, ...(target === undefined ? {} : { target }) }, needs);
  const best = { model: model.name, q: [text], num_best: NUM_BEST, split: false };
  const [insight, found] = await Promise.all([
    askOnce(insights, nameOf(body), "v1/look", body, options),
    askOnce(choices, nameOf(model.name, text), `v1/${model.task}`, best, options),
  ]);
  if (target === undefined) outputs.set(nameOf(model.name, text), [{ text, insight: withoutWeights(insight) }]);
  return { insight, choices: choicesOf(model, text, found) };
}

function choicesOf(model, text, found) {
  const own = outputs.get(nameOf(model.name, text))?.[0]?.insight.answer;
  const [{ text: first, score, others }] = found?.translations[0].sentences ?? [{ text: "", score: 0, others: [] }];
  const all = [...(own?.score === undefined ? [] : [{ text: own.text, score: own.score }]), { text: first, score }, ...others];
  return all.filter((one, at) => one.text && all.findIndex(({ text: other }) => other === one.text) === at);
}

const withoutWeights = ({ task, answer, line, sides }) => ({ task, answer, line, sides: { output: sides.output }, attention: {} });

/** Return a sentence of /v1/translate as an insight without weights. */
function readSentence(model, { text, score, words = text.split(/\s+/).filter(Boolean), tokens = [] }) {
  const hasEnd = tokens.length > 0 && tokens.at(-1).word === words.length;
  const plain = tokens.length ? tokens : words.map((word, at) => ({ text: word, probability: 1, word: at }));
  const side = { text, pieces: plain.map((one) => one.text), words: hasEnd ? [...words, "</s>"] : words, word_of_piece: plain.map(({ word }) => word) };
  const answer = { text, score, log_probabilities: plain.map(({ probability }) => Math.log(probability)) };
  return { task: model.task, answer, line: text, sides: { output: side }, attention: {} };
}

/** Return the sentences of a text for a model: [{text, at}]. */
export const sentencesOf = (model, text) => splitText(text, model.texts);

/** Return whether one look answers everything: the server would not cut this sentence. */
export const isShort = (sentences) => sentences.length === 1 && new TextEncoder().encode(sentences[0].text).length <= MAX_WHOLE;

/** Ask for what is not known of some sentences. `onSome(done, all)` when some are answered. */
export async function answerAll(model, sentences, { onSome, ...options }) {
  const missing = [...new Set(sentences.map(({ text }) => text))].filter((text) => !outputs.get(nameOf(model.name, text)));
  const all = missing.length;
  let done = 0;
  const answer = async (texts) => {
    const { translations } = await ask(`v1/${model.task}`, { body: { model: model.name, q: texts, tokens: true }, ...options });
    texts.forEach((text, at) => keep(model, text, translations[at]));
    done += texts.length;
    onSome(done, all);
  };
  const failures = (await Promise.allSettled(batches(missing).map(answer))).filter(({ status }) => status === "rejected");
  if (failures.length) throw failures[0].reason;
}

function keep(model, text, { sentences }) {
  const found = sentences.filter(({ source }) => source).map((one) => ({ text: one.source, insight: readSentence(model, one) }));
  const parts = found.length ? found : [{ text, insight: readSentence(model, { text, score: 0 }) }];
  for (const part of parts.length > 1 ? parts : []) outputs.set(nameOf(model.name, part.text), [part]);
  outputs.set(nameOf(model.name, text), parts);
}

function* inBatches(texts) {
  let batch = [];
  let size = 0;
  let most = IN_THE_FIRST;
  for (const text of texts) {
    if (batch.length && (batch.length >= most || size + text.length > IN_ONE_REQUEST.characters)) {
      yield batch;
      [batch, size, most] = [[], 0, IN_ONE_REQUEST.sentences];
    }
    batch.push(text);
    size += text.length;
  }
  if (batch.length) yield batch;
}

const batches = (texts) => [...inBatches(texts)];

/** Return the parts of a text as far as they are known: [{text, at, before, insight (null: not yet), isPlain (without weights), choices}]. */
export function partsOf(model, text, sentences, { needs, targets }) {
  const parts = sentences.flatMap((sentence) => knownParts(model, sentence, needs, targets));
  const before = (number) => text.slice(number ? parts[number - 1].at + parts[number - 1].text.length : parts[0].at, parts[number].at);
  return parts.map((part, number) => ({ ...part, before: before(number) }));
}

function knownParts(model, { text, at }, needs, targets) {
  const found = outputs.get(nameOf(model.name, text));
  if (!found) return [{ text, at, insight: null, isPlain: true, choices: [] }];
  let from = 0;
  return found.map((one) => {
    const place = text.indexOf(one.text, from);
    from = place + one.text.length;
    return { text: one.text, at: at + place, ...lookedAt(model, one, needs, targets.get(sentenceName(model, one.text))) };
  });
}

/** Return what is known of a part: with weights, if somebody looked at it. */
function lookedAt(model, { text, insight }, needs, target) {
  const seen = insights.get(nameOf(bodyOf(model, { text, ...(target === undefined ? {} : { target }) }, needs)));
  const others = choices.get(nameOf(model.name, text));
  return { insight: seen ?? insight, isPlain: !seen, choices: others ? choicesOf(model, text, others) : [], target };
}

/** Name a sentence of a model, to remember the output that was chosen for it. */
export const sentenceName = (model, text) => nameOf(model.name, text);
