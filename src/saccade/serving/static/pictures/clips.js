// Random clips to try at once: shapes to each of which something happens, as an animated GIF.

import { make } from "../parts/dom.js";
import { randomNumbers } from "./examples.js";

const COLOURS = [[225, 45, 45], [50, 190, 60], [60, 90, 240], [235, 215, 50], [170, 60, 200], [235, 235, 235]];
const GROUND = [24, 24, 24];
const VERBS = ["starts", "stops", "grows", "shrinks", "leaves"];
const ACROSS = 8; // frames beside each other, as inspection/draw/strip.py lays them out
const DURATION = 12; // of a frame, in hundredths of a second
const MOST_CODES = 250; // with more, the codes of a GIF would be longer

/** Paint the clip of a seed: {gif: its bytes as base64, strip: a canvas with its frames side by side}. */
export function paintClip(seed, { rows, columns, frames }) {
  const random = randomNumbers(seed * 6121 + 5);
  const count = Math.min(frames, 14);
  const first = Math.floor(random() * COLOURS.length);
  const things = [0, 1].map((number) => ({
    colour: COLOURS[(first + number * (1 + Math.floor(random() * (COLOURS.length - 1)))) % COLOURS.length],
    isRound: random() < 0.5,
    verb: VERBS[Math.floor(random() * VERBS.length)],
    time: Math.round(count * (number ? 0.68 : 0.25)),
    place: (0.28 + 0.44 * number) * rows,
    radius: columns / (9 + 2 * random()),
  }));
  const painted = Array.from({ length: count }, (_, time) => paintFrame(things, time, rows, columns));
  return { gif: toBase64(encode(painted, columns, rows)), strip: layOut(painted, columns, rows) };
}

/** Where a thing is in a frame, and how large. */
function poseOf({ verb, time, radius }, now, columns) {
  const speed = columns / 22;
  const begin = verb === "leaves" ? columns - radius - 0.5 * speed - time * speed : 1.5 * radius;
  const moved = { starts: Math.max(0, now - time), stops: Math.min(now, time), leaves: now }[verb] ?? 0;
  const share = Math.min(1, Math.max(0, (now - time + 1) / 2));
  const size = { grows: 1 + 0.5 * share, shrinks: 1.5 - 0.5 * share }[verb] ?? 1;
  return { x: begin + moved * speed, size: size * radius };
}

function paintFrame(things, now, rows, columns) {
  const canvas = make("canvas", { width: columns, height: rows });
  const pen = canvas.getContext("2d");
  pen.fillStyle = `rgb(${GROUND.join(" ")})`;
  pen.fillRect(0, 0, columns, rows);
  for (const thing of things) {
    const { x, size } = poseOf(thing, now, columns);
    pen.fillStyle = `rgb(${thing.colour.join(" ")})`;
    pen.beginPath();
    if (thing.isRound) pen.arc(x, thing.place, size, 0, 2 * Math.PI);
    else pen.rect(x - 0.87 * size, thing.place - 0.87 * size, 1.74 * size, 1.74 * size);
    pen.fill();
  }
  return canvas;
}

function layOut(painted, columns, rows) {
  const across = Math.min(ACROSS, painted.length);
  const strip = make("canvas", { width: across * columns, height: Math.ceil(painted.length / across) * rows });
  const pen = strip.getContext("2d");
  pen.fillRect(0, 0, strip.width, strip.height);
  painted.forEach((frame, at) => pen.drawImage(frame, (at % across) * columns, Math.floor(at / across) * rows));
  return strip;
}

/** Return the bytes of an animated GIF whose codes stand for one pixel each: no program is needed that compresses. */
function encode(painted, width, height) {
  const [palette, frames] = index(painted, width, height);
  const word = (value) => [value & 255, value >> 8];
  const bytes = [...letters("GIF89a"), ...word(width), ...word(height), 0xf7, 0, 0, ...palette.flat()];
  bytes.push(...new Array(768 - 3 * palette.length).fill(0));
  bytes.push(0x21, 0xff, 11, ...letters("NETSCAPE2.0"), 3, 1, 0, 0, 0);
  for (const frame of frames) {
    bytes.push(0x21, 0xf9, 4, 0, ...word(DURATION), 0, 0, 0x2c, 0, 0, 0, 0, ...word(width), ...word(height), 0, 8);
    const packed = pack(frame);
    for (let at = 0; at < packed.length; at += 255) bytes.push(Math.min(255, packed.length - at), ...packed.slice(at, at + 255));
    bytes.push(0);
  }
  return [...bytes, 0x3b];
}

const letters = (text) => [...text].map((letter) => letter.charCodeAt(0));

/** Return the colours of all frames, at most 256, and the number of each pixel's colour. */
function index(painted, width, height) {
  const [palette, known] = [[], new Map()];
  const numberOf = (red, green, blue) => {
    const name = ((red >> 3) << 10) | ((green >> 3) << 5) | (blue >> 3);
    if (!known.has(name) && palette.length < 256) palette.push([red, green, blue]);
    if (!known.has(name)) known.set(name, palette.length - 1);
    return known.get(name);
  };
  const frames = painted.map((canvas) => {
    const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
    return Array.from({ length: width * height }, (_, at) => numberOf(data[4 * at], data[4 * at + 1], data[4 * at + 2]));
  });
  return [palette, frames];
}

/** Pack numbers into codes of 9 bits, the table of codes cleared before it grows. */
function pack(numbers) {
  const codes = numbers.flatMap((number, at) => (at % MOST_CODES ? [number] : [256, number]));
  const bytes = [];
  let [kept, size] = [0, 0];
  for (const code of [...codes, 257]) {
    kept |= code << size;
    for (size += 9; size >= 8; size -= 8, kept >>= 8) bytes.push(kept & 255);
  }
  return size ? [...bytes, kept & 255] : bytes;
}

export function toBase64(bytes) {
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return btoa(text);
}
