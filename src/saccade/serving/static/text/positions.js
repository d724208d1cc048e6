// A text as sentences, and where the words of a model lie in it. Two models may cut the same text into other words:
// what they share are places, [first, last + 1] in characters.

const SHORTENED = /(?:^|[\s(])(?:\p{L}|Mr|Mrs|Ms|Dr|Prof|St|No|vs|e\.g|i\.e|z\.B|M|Mme)\.\s*$/u;

/** [{text, at}] without the white space around them; an abbreviation ends no sentence. */
export function sentences(text) {
  const segments = [...new Intl.Segmenter(undefined, { granularity: "sentence" }).segment(text)];
  const joined = [];
  for (const { segment, index } of segments) {
    const last = joined.at(-1);
    if (last && SHORTENED.test(last.text) && !last.text.includes("\n")) last.text += segment;
    else joined.push({ text: segment, at: index });
  }
  return joined.map(({ text: one, at }) => ({ text: one.trim(), at: at + one.length - one.trimStart().length })).filter((one) => one.text);
}

/** Where each word stands in a text, or null. A word that was normalised is taken for the next run of letters. */
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

/** The places of all source words of all parts. The end of the text is a place behind it, that of a sentence is none. */
export function places(parts, text) {
  return parts.flatMap(({ insight, at, text: one }, number) => {
    const words = insight.sides.source?.words ?? [];
    const isLast = number === parts.length - 1;
    const found = locate(words, one).map((place) => place && place.map((index) => index + at));
    return found.map((place, index) => place ?? (isLast && words[index] === "</s>" ? [text.length, text.length + 1] : null));
  });
}

/** Weights on words at some places, as weights on words at others: each takes what lies on it. */
export function transferred(weights, from, to) {
  return to.map((target) => from.reduce((sum, place, index) => sum + (target && place ? weights[index] * shared(place, target) : 0), 0));
}

/** The words that lie at a place. */
export function at(place, among) {
  return among.flatMap((one, index) => (one && place && shared(one, place) > 0 ? [index] : []));
}

function shared([first, last], [from, to]) {
  return Math.max(0, Math.min(last, to) - Math.max(first, from)) / Math.max(1, last - first);
}
