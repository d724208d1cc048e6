// A text that is spoken: the sound, and the words in the order in which they are read. While it plays, what is read lights up.

import { mapOf } from "../../shared/insight.js";
import { words } from "../../shared/words.js";
import { make } from "../parts/dom.js";
import { wordsAt } from "./positions.js";

const seconds = (value) => `${value.toFixed(2)} s`;

/** `on.read(reading | null)` lights the words of the input, `on.say(line)`. */
export function speechView(on) {
  const player = make("audio", { controls: true, "aria-label": `${on.title}: the sound` });
  const holder = make("div", { class: "text output" });
  const list = words(holder, { label: `${on.title}: words, and when each is read`, onSelect: (index) => select(index) });
  let answer = null;
  let map = null;
  let first = 0; // of the input's words, the first that is said: a voice's name may stand before it

  const row = (index) => ({ weights: map.keys.map((_, key) => Number(key === index + first)), shape: null, query: null });
  const describe = ({ word, start, end }) => (start === null ? `${word}: not read` : `${word}: ${seconds(start)} to ${seconds(end)}`);
  const select = (index) => {
    if (!answer) return;
    list.light(null, index);
    on.say(index === null ? "" : describe(answer.words[index]));
    on.read(index === null || !map ? null : row(index));
  };
  /** Light what is read at the moment that is heard. */
  const follow = () => {
    if (!answer || player.paused) return;
    const step = Math.min(Math.floor(player.currentTime / answer.step_seconds), (map?.weights.length ?? 0) - 1);
    if (map && step >= 0) {
      list.light(map.weights[step].slice(first));
      on.read({ weights: map.weights[step], shape: null, query: null });
    }
    requestAnimationFrame(follow);
  };
  player.addEventListener("play", follow);
  player.addEventListener("pause", () => select(null));

  const redraw = (insight) => (map = insight.attention?.cross ? mapOf(insight, { kind: "cross", byWords: true }) : null);
  return {
    element: make("div", { class: "speech" }, player, holder),
    show: ([{ insight }]) => {
      ({ answer } = insight);
      redraw(insight);
      first = (map?.keys.length ?? 0) - answer.words.length;
      player.hidden = answer.seconds === 0;
      if (answer.seconds) player.src = `data:audio/wav;base64,${answer.wav}`;
      list.update({ words: answer.words.map(({ word }, index) => ({ word, before: index ? " " : "" })) });
      return answer.words.map(describe).join("; ");
    },
    redraw: () => {},
    light: (place, among) => {
      const [key] = place ? wordsAt(place, among) : [];
      list.light(null, key === undefined ? null : key - first);
      on.say(answer && answer.words[key - first] ? describe(answer.words[key - first]) : "");
    },
    from: () => null,
    slider: { stop: () => player.pause() },
  };
}
