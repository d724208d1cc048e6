// Split a text into sentences, and find the words of a model in it. Two models may split the same text into other words:
// both are compared by their places, [first, last + 1] in characters.

const ABBREVIATION = /(?:^|[\s(])(?:\p{L}|Mr|Mrs|Ms|Dr|Prof|St|No|vs|e\.g|i\.e|z\.B|M|Mme)\.\s*$/u;
const WIDE_END = /[。！？｡]["'”’»›)\]}」』）】〉》]*$/u; // marks that need no space after them

/** Tell whether a segment goes on: an abbreviation ends no sentence, nor does a mark inside a word (example.com/a?b=1). */
function goesOn(text) {
  return (ABBREVIATION.test(text) && !text.includes("\n")) || (/\S$/u.test(text) && !WIDE_END.test(text));
}

/** Return [{text, at}] without the white space around sentences. */
function splitSentences(text) {
  const segments = [...new Intl.Segmenter(undefined, { granularity: "sentence" }).segment(text)];
  const joined = [];
  for (const { segment, index } of segments) {
    const last = joined.at(-1);
    if (last && goesOn(last.text)) last.text += segment;
    else joined.push({ text: segment, at: index });
  }
  return joined.map(({ text: one, at }) => ({ text: one.trim(), at: at + one.length - one.trimStart().length })).filter((one) => one.text);
}

/** Return the parts of a text that a model answers one by one: its sentences, or, for other texts, the whole. */
export function splitText(text, kind) {
  if (kind === "sentences") return splitSentences(text);
  return [{ text: text.trim(), at: text.length - text.trimStart().length }];
}

/** Find the place of each word in a text, or null. A word that was normalised gets the next run of letters. */
function locate(words, text) {
  const lower = text.toLowerCase();
  let at = 0;
  return words.map((word) => {
    if (!word || word === "</s>") return null;
    const same = text.indexOf(word, at);
    const alike = same >= 0 || lower.length !== text.length ? same : lower.indexOf(word.toLowerCase(), at);
    const next = /\S+/.exec(text.slice(at));
    if (alike < 0 && !next) return null;
    const first = alike >= 0 ? alike : at + next.index;
    at = first + (alike >= 0 ? word.length : next[0].length);
    return [first, at];
  });
}

/** Find the words of a text that has each on a line of its own, with other columns behind it; null, if it hasn't. */
function locateOnLines(words, text) {
  const lines = [...text.matchAll(/^[^\S\n]*(\S+)[^\n]*$/gm)];
  if (lines.length < 2 || lines.length !== words.length || lines.some(([, first], index) => first !== words[index])) return null;
  return lines.map(({ 0: line, 1: first, index }) => [index + line.indexOf(first), index + line.indexOf(first) + first.length]);
}

/** Find the places of the source words of each part: those that the model read, or, where nobody looked yet, what stands between spaces. */
export function wordPlaces(parts, text) {
  return parts.map(({ insight, at, text: one }, number) => {
    const words = insight?.sides.source?.words;
    if (!words) return [...one.matchAll(/\S+/g)].map(({ 0: word, index }) => [at + index, at + index + word.length]);
    const isLast = number === parts.length - 1;
    const found = (locateOnLines(words, one) ?? locate(words, one)).map((place) => place && place.map((index) => index + at));
    return found.map((place, index) => place ?? (isLast && words[index] === "</s>" ? [text.length, text.length + 1] : null));
  });
}

/** Turn weights on words at some places into weights on words at others, by how much they overlap. */
export function transfer(weights, from, to) {
  const read = from.flatMap((place, index) => (place && weights[index] ? [{ place, weight: weights[index] }] : []));
  return to.map((target) => read.reduce((sum, { place, weight }) => sum + (target ? weight * overlap(place, target) : 0), 0));
}

/** Return the indices of the words at a place. */
export function wordsAt(place, among) {
  return among.flatMap((one, index) => (one && place && overlap(one, place) > 0 ? [index] : []));
}

function overlap([first, last], [from, to]) {
  return Math.max(0, Math.min(last, to) - Math.max(first, from)) / Math.max(1, last - first);
}
