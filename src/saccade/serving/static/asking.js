// When the models are asked, and what is shown meanwhile: the answer to another text is grey, and a server that is gone is asked again.

import { answerAll, isShort, lookAt, lookAtAll, partsOf, sentenceName, sentencesOf, writeOn } from "./answers.js";
import { RequestError } from "./parts/api.js";

const PAUSE = 300; // milliseconds without a key before the models are asked
const AGAIN = [2, 4, 8, 15, 30]; // seconds until a server is asked again that did not answer

/**
 * `page` has `panels`, and the outputs that were chosen (`targets`); `input()` is {text, caret, tooLong: why it can't be asked about} or {file: its field, data(), isEmpty, received(address of what was read)}.
 * `on.ask()` before anything is asked, `on.clear()` when there is no input, `on.begin(signal)`, `on.answer(panel)` when one is complete,
 * `on.look(panel)` when there are more weights, `on.key()` when one is missing, `on.notice(line)`.
 */
export function asking({ page, input, on }) {
  let pending = new AbortController();
  let timer = null;
  let failures = 0;

  const soon = (wait = PAUSE) => {
    if (!page.panels.length) return; // the models aren't known yet
    clearTimeout(timer);
    pending.abort();
    failures = 0;
    on.ask();
    const { text, file, isEmpty, tooLong } = input();
    if (file ? isEmpty : !text.trim()) return on.clear();
    for (const one of page.panels) one.wait();
    if (tooLong) return page.panels.forEach((one) => one.fail(tooLong));
    timer = setTimeout(answer, wait);
  };
  const answer = async () => {
    pending = new AbortController();
    on.notice("");
    const { signal } = pending;
    on.begin(signal);
    const errors = await Promise.all(page.panels.map((one) => askPanel(one, signal)));
    if (!signal.aborted && errors.some((error) => error?.mayPass)) again(answer);
  };
  /** Try once more by itself: the server may be back. */
  const again = (attempt) => {
    const seconds = AGAIN[Math.min(failures, AGAIN.length - 1)];
    failures += 1;
    on.notice(`This page asks again in ${seconds} s.`);
    timer = setTimeout(attempt, 1000 * seconds);
  };
  /** Show the answer of one model; return what went wrong. */
  const askPanel = async (one, signal) => {
    const began = performance.now();
    const options = { signal, onWait: (seconds) => on.notice(`The server is busy; asking again in ${seconds} s.`) };
    try {
      const given = input();
      if (one.model.streams) {
        const onText = (part) => signal.aborted || one.grow(given.text, part);
        const part = await writeOn(one.model, given.text, one.inside.choices.needs(), { ...options, onText });
        if (!signal.aborted) show(one, [part], given, began);
      } else if (given.file || !one.model.texts || one.model.answers !== "text") {
        const whole = given.file ? { file: { [given.file]: given.data() } } : { text: given.text };
        const part = await lookAtAll(one.model, whole, one.inside.choices.needs(), options);
        if (!signal.aborted) await given.received?.(part.insight.picture);
        if (!signal.aborted) show(one, [part], given, began);
      } else await translate(one, given, options, began);
      if (!signal.aborted) on.notice("");
    } catch (error) {
      if (signal.aborted) return null;
      fail(one, error);
      return error;
    }
    return null;
  };
  const show = (one, parts, { text = "", caret = 0 }, began) => {
    one.show(parts, text, { milliseconds: performance.now() - began, first: partAt(parts, caret) });
    on.answer(one);
  };
  const fail = (one, error) => {
    one.fail(error instanceof RequestError ? error.message : "This page had an error. Reload it to continue.");
    if (error.wantsKey) on.key();
    if (!(error instanceof RequestError)) throw error;
  };
  /** Answer all sentences, and look into the one with the caret and into those whose output was chosen. */
  const translate = async (one, given, options, began) => {
    const { model } = one;
    const sentences = sentencesOf(model, given.text);
    const needs = one.inside.choices.needs();
    const known = () => partsOf(model, given.text, sentences, { needs, targets: page.targets });
    const look = ({ text }) => lookAt(model, text, { needs, target: page.targets.get(sentenceName(model, text)) }, options);
    const onSome = (done, all) => {
      if (options.signal.aborted || done === all) return;
      const parts = known();
      one.show(parts, given.text, { first: partAt(parts, given.caret) });
      one.progress(done, all);
    };
    if (isShort(sentences)) await look(sentences[0]);
    else await answerAll(model, sentences, { ...options, onSome });
    await Promise.all(known().filter((part) => part.isPlain && part.target !== undefined).map(look));
    if (options.signal.aborted) return;
    show(one, known(), given, began);
    if (one.parts[one.active]?.isPlain && model.kinds.length) lookInto(one, one.active);
  };
  /** Ask for the weights of a part that is shown. */
  const lookInto = async (one, number) => {
    const { signal } = pending;
    const part = one.parts[number];
    try {
      const found = await lookAt(one.model, part.text, { needs: one.inside.choices.needs(), target: part.target }, { signal });
      if (signal.aborted || one.parts[number]?.text !== part.text) return;
      one.fill(number, { ...found, isPlain: false });
      on.look(one);
    } catch (error) {
      if (signal.aborted) return;
      if (number === one.active) one.failInside(error.message);
      if (!(error instanceof RequestError)) throw error;
    }
  };
  addEventListener("online", () => failures && soon(0));
  return { soon, again, lookInto, succeed: () => (failures = 0) };
}

const partAt = (parts, caret) => Math.max(0, parts.findLastIndex(({ at }) => at <= caret));
