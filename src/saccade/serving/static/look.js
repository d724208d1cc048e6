// From an input to what a model saw of it. Sentences are asked for one by one, all at once, and remembered: while one
// types, only the sentence that changes is asked for again.

import { ask } from "./parts/api.js";
import { sentences } from "./text/positions.js";

const OTHERS = 4; // outputs, the best included
const REMEMBERED = 300;

const answers = new Map();

async function remembered(body, options) {
  const name = JSON.stringify(body);
  const found = answers.get(name) ?? (await ask("v1/look", { body, ...options }));
  answers.delete(name); // the last that was used is the last to go
  answers.set(name, found);
  if (answers.size > REMEMBERED) answers.delete(answers.keys().next().value);
  return found;
}

/** `needs` are the kinds and views that are shown; `targets` outputs that were chosen, by model and sentence. */
export async function looked(model, { text, image }, { needs, targets }, options) {
  const kinds = [...new Set([...model.kinds.slice(0, 1), ...needs.kinds])].filter((kind) => model.kinds.includes(kind));
  const body = { model: model.name, ...(model.kinds.length ? { kinds } : {}), ...(needs.views.length ? { views: needs.views } : {}) };
  if (image !== undefined) return [{ insight: await ask("v1/look", { body: { ...body, image }, ...options }), at: 0, text: "", before: "" }];
  if (model.task !== "translate") return [{ insight: await remembered({ ...body, text }, options), at: 0, text, before: "" }];
  const parts = sentences(text);
  const found = await Promise.all(parts.map((part) => translated(body, part.text, targets.get(`${model.name}\n${part.text}`), options)));
  const before = (number) => text.slice(number ? parts[number - 1].at + parts[number - 1].text.length : parts[0].at, parts[number].at);
  return parts.map((part, number) => ({ ...part, ...found[number], before: before(number) }));
}

/** What it wrote, or what was chosen instead; and all that may be chosen. */
async function translated(body, text, target, options) {
  const written = await remembered({ ...body, text, num_best: OTHERS }, options);
  const choices = [written.answer, ...(written.others ?? [])];
  const insight = target === undefined ? written : await remembered({ ...body, text, target }, options);
  return { insight, choices };
}
