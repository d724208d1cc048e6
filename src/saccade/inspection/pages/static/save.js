// Save a map as SVG or PNG, in the current colours of the page.

import { colour, palette } from "./palette.js";

const CELL = 28;
const GAP = 2;
const FONT = "13px system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', sans-serif";

/** Hand a file to the browser. */
export function download(name, content, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/** Return the map {queries, keys, weights} as the text of an SVG file. */
export function toSvg(map, { most = 1, title = "" } = {}) {
  const { width, height, boxes, texts, colours } = layout(map, most, title);
  const svg = document.implementation.createDocument("http://www.w3.org/2000/svg", "svg");
  const add = (name, attributes, text) => {
    const element = svg.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = dropForbidden(text);
    svg.documentElement.append(element);
  };
  const root = { viewBox: `0 0 ${width} ${height}`, width, height, role: "img" };
  for (const [key, value] of Object.entries(root)) svg.documentElement.setAttribute(key, value);
  add("title", {}, title);
  add("rect", { width, height, fill: colours.paper });
  for (const { x, y, fill } of boxes) add("rect", { x, y, width: CELL - GAP, height: CELL - GAP, rx: 4, fill });
  for (const { x, y, text, anchor, turn, size = 13 } of texts) {
    const transform = turn ? { transform: `rotate(${turn} ${x} ${y})` } : {};
    const font = { "font-family": "system-ui, sans-serif", "font-size": size };
    add("text", { x, y, fill: colours.ink, "text-anchor": anchor, "dominant-baseline": "central", ...font, ...transform }, text);
  }
  return new XMLSerializer().serializeToString(svg);
}

/** Return the same as a PNG file of twice the size. */
export function toPng(map, { most = 1, title = "" } = {}) {
  const { width, height, boxes, texts, colours } = layout(map, most, title);
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [2 * width, 2 * height];
  const pen = canvas.getContext("2d");
  pen.scale(2, 2);
  pen.fillStyle = colours.paper;
  pen.fillRect(0, 0, width, height);
  for (const { x, y, fill } of boxes) {
    pen.fillStyle = fill;
    pen.beginPath();
    pen.roundRect(x, y, CELL - GAP, CELL - GAP, 4);
    pen.fill();
  }
  pen.fillStyle = colours.ink;
  pen.textBaseline = "middle";
  for (const { x, y, text, anchor, turn, size = 13 } of texts) {
    pen.save();
    pen.font = FONT.replace("13px", `${size}px`);
    pen.textAlign = { start: "left", end: "right", middle: "center" }[anchor];
    pen.translate(x, y);
    pen.rotate(((turn ?? 0) * Math.PI) / 180);
    pen.fillText(text, 0, 0);
    pen.restore();
  }
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}

function layout({ queries, keys, weights }, most, title) {
  const colours = palette();
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = FONT;
  const longest = (words) => Math.ceil(Math.max(0, ...words.map((word) => pen.measureText(word).width)));
  const left = longest(queries) + 28;
  const top = longest(keys) + 28 + (title ? 30 : 0);
  const middle = (at) => at * CELL + (CELL - GAP) / 2;
  const boxes = weights.flatMap((row, query) =>
    row.map((weight, key) => ({ x: left + key * CELL, y: top + query * CELL, fill: colour(colours, weight / most) })),
  );
  const texts = [
    ...queries.map((text, at) => ({ text, x: left - 8, y: top + middle(at), anchor: "end" })),
    ...keys.map((text, at) => ({ text, x: left + middle(at), y: top - 8, anchor: "start", turn: -90 })),
  ];
  if (title) texts.push({ text: title, x: 20, y: 24, anchor: "start", size: 15 });
  const needed = title ? 40 + Math.ceil((pen.measureText(title).width * 15) / 13) : 0;
  return { width: Math.max(left + keys.length * CELL + 20, needed), height: top + queries.length * CELL + 20, boxes, texts, colours };
}

/** Drop the characters that XML forbids. */
function dropForbidden(text) {
  return text.replace(/[^\t\n\r\u{20}-\u{D7FF}\u{E000}-\u{FFFD}\u{10000}-\u{10FFFF}]/gu, "");
}
