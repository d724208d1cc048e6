// The sound that a model hears: chosen or dropped, drawn as a wave, with the weights of its moments over it.

import { $, make, takeDropped } from "../parts/dom.js";
import { spotlight } from "../pictures/picture.js";

const [WIDTH, HEIGHT] = [720, 180]; // of the drawing
const [GROUND, WAVE] = ["#1d1530", "#e9e2ff"];
const RATE = 16000; // samples a second of what is no WAV file, and is sent as one

/** `onChange()` when there is another sound; `onError(line)` when a file isn't one. */
export function soundInput({ onChange, onError }) {
  const wave = make("canvas", { class: "wave", width: WIDTH, height: HEIGHT, role: "img", "aria-label": "The sound" });
  const shade = make("canvas", { class: "shade", "aria-hidden": "true" });
  const frame = make("div", { class: "frame wide" }, wave, shade);
  const file = make("input", { type: "file", id: "sound-file", accept: "audio/*,.wav", class: "unseen", onchange: () => file.files[0] && take(file.files[0]) });
  const choose = make("label", { for: "sound-file", class: "button", text: "Choose a sound" });
  const play = make("button", { type: "button", text: "Play", hidden: true, onclick: () => listen() });
  const hint = make("p", { class: "hint", text: "Drop a sound here: WAV, or another kind that this browser reads." });
  const element = $("sound-input");
  element.append(frame, make("div", { class: "row" }, file, choose, play), hint);
  let samples = null;
  let content = null; // of a WAV file, in base64

  const take = async (source) => {
    const bytes = await source.arrayBuffer();
    const decoder = new OfflineAudioContext(1, 1, RATE);
    const found = await decoder.decodeAudioData(bytes.slice(0)).catch(() => null);
    if (!found) return onError("That file isn't a sound this browser can read. Try a WAV file.");
    samples = found;
    content = toBase64(isWav(bytes) ? bytes : writeWav(mixed(found)));
    hint.textContent = `${source.name ?? "A sound"}, ${found.duration.toFixed(1)} s`;
    play.hidden = false;
    drawWave(wave, mixed(found));
    light(null);
    onChange();
  };
  const listen = () => {
    const speaker = new AudioContext();
    const source = speaker.createBufferSource();
    source.buffer = samples;
    source.connect(speaker.destination);
    source.addEventListener("ended", () => speaker.close());
    source.start();
  };
  const light = (weights, shape) => {
    if (weights && shape) spotlight(shade, weights, shape);
    else shade.getContext("2d").clearRect(0, 0, shade.width, shade.height);
  };

  takeDropped(element, frame, take);
  drawWave(wave, new Float32Array(1));
  return {
    element,
    title: "Sound",
    field: "sound",
    canvas: wave,
    get isEmpty() {
      return content === null;
    },
    seed: null,
    data: () => content,
    light,
    path: () => {},
    /** The drawing, and the layer over it. */
    layers: () => ({ picture: wave, shade }),
  };
}

const isWav = (bytes) => {
  const [riff, , kind] = ["RIFF", "", "WAVE"].map((name, at) => name && name === String.fromCharCode(...new Uint8Array(bytes, 4 * at, 4)));
  return riff && kind;
};

/** Return the mean of all channels. */
function mixed(sound) {
  const channels = Array.from({ length: sound.numberOfChannels }, (_, at) => sound.getChannelData(at));
  return channels[0].map((_, at) => channels.reduce((sum, one) => sum + one[at], 0) / channels.length);
}

/** Write samples as a WAV file of 16 bits. */
function writeWav(samples) {
  const view = new DataView(new ArrayBuffer(44 + 2 * samples.length));
  const name = (at, text) => [...text].forEach((letter, index) => view.setUint8(at + index, letter.charCodeAt(0)));
  name(0, "RIFF");
  view.setUint32(4, 36 + 2 * samples.length, true);
  name(8, "WAVEfmt ");
  [[16, 16, 4], [20, 1, 2], [22, 1, 2], [24, RATE, 4], [28, 2 * RATE, 4], [32, 2, 2], [34, 16, 2], [40, 2 * samples.length, 4]]
    .forEach(([at, value, size]) => (size === 2 ? view.setUint16(at, value, true) : view.setUint32(at, value, true)));
  name(36, "data");
  samples.forEach((value, at) => view.setInt16(44 + 2 * at, Math.round(32767 * Math.max(-1, Math.min(1, value))), true));
  return view.buffer;
}

function toBase64(buffer) {
  const bytes = new Uint8Array(buffer);
  let text = "";
  for (let at = 0; at < bytes.length; at += 8192) text += String.fromCharCode(...bytes.subarray(at, at + 8192));
  return btoa(text);
}

/** Draw the loudest sample of each column, up and down. */
function drawWave(canvas, samples) {
  const pen = canvas.getContext("2d");
  pen.fillStyle = GROUND;
  pen.fillRect(0, 0, WIDTH, HEIGHT);
  pen.fillStyle = WAVE;
  const most = samples.reduce((found, value) => Math.max(found, Math.abs(value)), 1e-3);
  for (let column = 0; column < WIDTH; column += 2) {
    const [first, last] = [column, column + 2].map((place) => Math.floor((place / WIDTH) * samples.length));
    const loud = samples.subarray(first, Math.max(first + 1, last)).reduce((found, value) => Math.max(found, Math.abs(value)), 0);
    const half = Math.max(0.5, (loud / most) * (HEIGHT / 2 - 8));
    pen.fillRect(column, HEIGHT / 2 - half, 1.5, 2 * half);
  }
}
