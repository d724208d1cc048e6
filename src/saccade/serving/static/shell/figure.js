// The figure that is saved: an SVG that stands alone, with its colours and fonts in it.

import { colour, palette } from "../../shared/palette.js";
import { drawLinks, drawWords, layout, measure, naturalWidth } from "../attention/lines.js";
import { draw, make, percent } from "../parts/dom.js";
import { spotlight } from "../pictures/picture.js";

const MAX_WIDTH = 780;
const MARGIN = 40;
const CELL = 30;
const PICTURE = 360;
const THUMBNAIL = { side: 116, gap: 14, columns: 6 };
const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', sans-serif";

const colourOf = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Draw what a panel shows, as blocks one below the other: each is {width, height, element}. */
export function figure({ panel, picture }) {
  const { insight, model } = panel;
  const colours = { ...palette(), quiet: colourOf("--quiet"), link: colourOf("--link") };
  const map = panel.inside.current();
  const blocks = [text(model.name, 13, colours.quiet)];
  if (insight.sides.source?.text) blocks.push(text(insight.sides.source.text, 18, colours.ink));
  blocks.push(text(answerText(insight), 20, colours.ink, 600));
  if (picture) blocks.push(image(flatten(picture.layers()), PICTURE));
  if (map?.shape) blocks.push(thumbnails(picture.canvas, map, colours));
  else if (map) blocks.push(lineBlock(map, colours), heatmapBlock(map, colours));
  return stack(blocks, colours.paper);
}

/** Return an answer in one line. */
function answerText({ line, answer }) {
  if (answer.spans) return answer.spans.map(({ text, kind }) => `${text} (${kind})`).join(", ") || "no spans";
  return answer.text ?? (answer.probabilities ? `${answer.label}, ${percent(answer.probabilities[answer.label])}` : line);
}

function stack(blocks, paper) {
  const width = Math.ceil(Math.max(...blocks.map((block) => block.width)) + 2 * MARGIN);
  let y = MARGIN;
  const placed = blocks.map(({ element, height, space = 12 }) => {
    y += space;
    element.setAttribute("transform", `translate(${MARGIN} ${y.toFixed(1)})`);
    y += height;
    return element;
  });
  const height = Math.ceil(y + MARGIN);
  const frame = { xmlns: "http://www.w3.org/2000/svg", viewBox: `0 0 ${width} ${height}`, width, height, "font-family": FONT };
  return draw("svg", frame, draw("rect", { width, height, fill: paper }), placed);
}

function text(line, size, fill, weight = 400) {
  const scale = size / 15; // a word is measured at 15 pixels; bold ones are a little wider
  const rows = [""];
  for (const word of line.split(/\s+/)) {
    const longer = `${rows.at(-1)} ${word}`.trim();
    if (rows.at(-1) && 1.08 * scale * measure(longer) > MAX_WIDTH) rows.push(word);
    else rows[rows.length - 1] = longer;
  }
  const written = rows.map((row, at) => draw("text", { y: ((at + 0.8) * 1.35 * size).toFixed(1), text: row }));
  const element = draw("g", { "font-size": size, "font-weight": weight, fill }, written);
  return { element, width: Math.min(MAX_WIDTH, 1.08 * scale * Math.max(...rows.map(measure))), height: 1.35 * size * rows.length, space: 6 };
}

function lineBlock(map, colours) {
  const laidOut = layout(map, Math.min(MAX_WIDTH, Math.max(PICTURE, naturalWidth(map, measure))), measure);
  const links = draw("g", { stroke: colours.link }, drawLinks(laidOut.links));
  const texts = draw("g", { "font-size": 15, fill: colours.ink }, drawWords(map.keys, laidOut.keys, "key"), drawWords(map.queries, laidOut.queries, "query"));
  return { element: draw("g", {}, links, texts), width: laidOut.width, height: laidOut.height, space: 30 };
}

function heatmapBlock({ queries, keys, weights }, colours) {
  const [left, top] = [queries, keys].map((words) => 0.9 * Math.max(...words.map(measure)) + 10);
  const cell = Math.min(CELL, (MAX_WIDTH - left) / keys.length);
  const most = Math.max(0.0001, ...weights.flat());
  const box = { width: (cell - 2).toFixed(1), height: (cell - 2).toFixed(1), rx: 3 };
  const square = (weight, query, key) => {
    const title = draw("title", { text: `${queries[query]} reads ${keys[key]}: ${percent(weight)}` });
    return draw("rect", { x: (left + key * cell).toFixed(1), y: (top + query * cell).toFixed(1), ...box, fill: colour(colours, weight / most) }, title);
  };
  const middle = (from, at) => (from + (at + 0.62) * cell).toFixed(1);
  const rows = queries.map((name, at) => draw("text", { x: (left - 8).toFixed(1), y: middle(top, at), "text-anchor": "end", text: name }));
  const columns = keys.map((name, at) => draw("text", { transform: `translate(${middle(left, at)} ${(top - 6).toFixed(1)}) rotate(-90)`, text: name }));
  const texts = draw("g", { "font-size": 13.5, fill: colours.ink }, rows, columns);
  const squares = weights.flatMap((row, query) => row.map((weight, key) => square(weight, query, key)));
  return { element: draw("g", {}, squares, texts), width: left + keys.length * cell, height: top + queries.length * cell, space: 30 };
}

/** Draw the picture once for each word, with its weights. */
function thumbnails(picture, { queries, weights, shape }, colours) {
  const words = queries.filter((word) => word !== "</s>");
  const step = THUMBNAIL.side + THUMBNAIL.gap;
  const rows = Math.ceil(words.length / THUMBNAIL.columns);
  const thumbnail = (word, at) => {
    const shade = make("canvas");
    spotlight(shade, weights[at], shape);
    const { element, height } = image(flatten({ picture, shade }), THUMBNAIL.side);
    const place = `translate(${(at % THUMBNAIL.columns) * step} ${Math.floor(at / THUMBNAIL.columns) * (step + 22)})`;
    const name = draw("text", { x: THUMBNAIL.side / 2, y: height + 18, "text-anchor": "middle", "font-size": 14, fill: colours.ink, text: word });
    return draw("g", { transform: place }, element, name);
  };
  return { element: draw("g", {}, words.map(thumbnail)), width: step * Math.min(words.length, THUMBNAIL.columns), height: rows * (step + 22), space: 24 };
}

function image(canvas, width) {
  const height = Math.round((width * canvas.height) / canvas.width);
  return { element: draw("g", {}, draw("image", { width, height, href: canvas.toDataURL("image/png") })), width, height };
}

/** Draw a picture, its weights and its path into one canvas. */
function flatten({ picture, shade, path = null }) {
  const canvas = make("canvas", { width: 2 * PICTURE, height: Math.round((2 * PICTURE * picture.height) / picture.width) });
  const pen = canvas.getContext("2d");
  pen.imageSmoothingEnabled = picture.width > PICTURE;
  pen.drawImage(picture, 0, 0, canvas.width, canvas.height);
  pen.imageSmoothingEnabled = true;
  pen.drawImage(shade, 0, 0, canvas.width, canvas.height);
  const scale = canvas.width / picture.width;
  const stops = [...(path?.querySelectorAll("circle") ?? [])].map((dot) => ["cx", "cy"].map((name) => scale * dot.getAttribute(name)));
  Object.assign(pen, { strokeStyle: "#ffb040", fillStyle: "#ffb040", lineWidth: 5, lineJoin: "round" });
  pen.beginPath();
  stops.forEach((stop) => pen.lineTo(...stop));
  pen.stroke();
  stops.forEach((stop, at) => drawNumber(pen, stop, at + 1));
  return canvas;
}

function drawNumber(pen, [x, y], number) {
  pen.beginPath();
  pen.arc(x, y, 17, 0, 2 * Math.PI);
  Object.assign(pen, { fillStyle: "#2a2140", textAlign: "center", textBaseline: "middle", font: "600 20px sans-serif" });
  pen.fill();
  pen.stroke();
  pen.fillStyle = "#ffffff";
  pen.fillText(number, x, y);
}
