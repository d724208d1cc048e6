// Ask a model to look at an input. Where its texts are sentences, each sentence is a request of its own, and its answer is cached: while one types, only the
// sentence that changes is asked for again.

import { ask } from "./parts/api.js";
import { splitText } from "./text/positions.js";

const NUM_BEST = 4; // outputs, the best included
const MAX_CACHED = 300;

const answers = new Map();

async function askOnce(body, options) {
  const name = JSON.stringify(body);
  const found = answers.get(name) ?? (await ask("v1/look", { body, ...options }));
  answers.delete(name); // and add it again as the newest: the least recently used goes first
  answers.set(name, found);
  if (answers.size > MAX_CACHED) answers.delete(answers.keys().next().value);
  return found;
}

/** `needs`: the kinds and views that are shown; `targets`: the outputs that were chosen, by model and sentence. */
export async function look(model, { text, image }, { needs, targets }, options) {
  const kinds = [...new Set([...model.kinds.slice(0, 1), ...needs.kinds])].filter((kind) => model.kinds.includes(kind));
  const body = { model: model.name, ...(model.kinds.length ? { kinds } : {}), ...(needs.views.length ? { views: needs.views } : {}) };
  if (image !== undefined) return [{ insight: await ask("v1/look", { body: { ...body, image }, ...options }), at: 0, text: "", before: "" }];
  if (!model.texts) return [{ insight: await askOnce({ ...body, text }, options), at: 0, text, before: "" }];
  const parts = splitText(text, model.texts);
  const found = await Promise.all(parts.map((part) => lookAtSentence(body, part.text, targets.get(`${model.name}\n${part.text}`), options)));
  const before = (number) => text.slice(number ? parts[number - 1].at + parts[number - 1].text.length : parts[0].at, parts[number].at);
  return parts.map((part, number) => ({ ...part, ...found[number], before: before(number) }));
}

/** Return the insight for the best output or the chosen one, and all outputs to choose from. */
async function lookAtSentence(body, text, target, options) {
  const written = await askOnce({ ...body, text, num_best: NUM_BEST }, options);
  const choices = [written.answer, ...(written.others ?? [])];
  const insight = target === undefined ? written : await askOnce({ ...body, text, target }, options);
  return { insight, choices };
}
