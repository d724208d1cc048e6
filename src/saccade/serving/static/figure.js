// The picture that is saved: a drawing that stands alone, with its colours and fonts written into it.

import { colour, palette } from "../shared/palette.js";
import { draw, make } from "./dom.js";
import { layout, measured } from "./threads.js";

const WIDTH = 860;
const MARGIN = 40;
const CELL = 30;
const PICTURE = 420;
const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', sans-serif";

/** What a panel shows. */
export function figure({ panel, picture }) {
  const { insight, model } = panel;
  const map = panel.inside.current();
  const colours = { ...palette(), quiet: value("--quiet"), thread: value("--thread") };
  const parts = [];
  let y = MARGIN;
  const line = (text, size, fill, weight = 400) => {
    for (const row of wrapped(text, (WIDTH - 2 * MARGIN) / (size / 15))) {
      y += size * 1.35;
      parts.push(draw("text", { x: MARGIN, y: y.toFixed(1), "font-size": size, "font-weight": weight, fill, text: row }));
    }
    y += size * 0.5;
  };
  line(model.name, 13, colours.quiet);
  if (insight.sides.source?.text) line(insight.sides.source.text, 18, colours.ink);
  line(said(insight), 20, colours.ink, 600);
  if (picture) {
    const layers = flattened(picture.layers());
    const high = Math.round((PICTURE * layers.height) / layers.width);
    parts.push(draw("image", { x: MARGIN, y: y + 12, width: PICTURE, height: high, href: layers.toDataURL("image/png") }));
    y += high + 24;
  }
  if (map && !map.shape) {
    y += 20;
    y += woven(parts, map, y, colours) + 36;
    y += heated(parts, map, y, colours);
  }
  const height = Math.ceil(y + MARGIN);
  return draw("svg", { xmlns: "http://www.w3.org/2000/svg", viewBox: `0 0 ${WIDTH} ${height}`, width: WIDTH, height, "font-family": FONT }, draw("rect", { width: WIDTH, height, fill: colours.paper }), parts);
}

/** An answer in a line. */
export function said({ task, answer }) {
  if (task === "tag") return answer.spans.length ? answer.spans.map(({ text, kind }) => `${text} (${kind})`).join(", ") : "no spans";
  if (answer.text !== undefined) return answer.text;
  return `${answer.label}  ${Math.round(100 * answer.probabilities[answer.label])} %`;
}

const value = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** A picture and where the model looked, as one. */
function flattened({ picture, shade, path }) {
  const canvas = make("canvas", { width: 2 * PICTURE, height: Math.round((2 * PICTURE * picture.height) / picture.width) });
  const context = canvas.getContext("2d");
  context.imageSmoothingEnabled = picture.width > PICTURE;
  context.drawImage(picture, 0, 0, canvas.width, canvas.height);
  context.imageSmoothingEnabled = true;
  context.drawImage(shade, 0, 0, canvas.width, canvas.height);
  const scale = canvas.width / picture.width;
  const points = [...path.querySelectorAll("circle")].map((dot) => ["cx", "cy"].map((name) => scale * dot.getAttribute(name)));
  Object.assign(context, { strokeStyle: "#ffb040", fillStyle: "#ffb040", lineWidth: 5, lineJoin: "round" });
  context.beginPath();
  points.forEach((point) => context.lineTo(...point));
  context.stroke();
  for (const point of points) {
    context.beginPath();
    context.arc(...point, 12, 0, 2 * Math.PI);
    context.fill();
  }
  return canvas;
}

function woven(parts, map, y, colours) {
  const found = layout(map, WIDTH - 2 * MARGIN, measured);
  const links = found.links.map(({ weight, path }) => draw("path", { d: path, fill: "none", stroke: colours.thread, "stroke-width": (0.75 + 5 * weight).toFixed(2), "stroke-opacity": (0.08 + 0.72 * weight).toFixed(2) }));
  const words = [[map.keys, found.keys], [map.queries, found.queries]].flatMap(([names, places]) => names.map((text, at) => draw("text", { x: places[at].x.toFixed(1), y: places[at].y, "text-anchor": places[at].anchor, "font-size": 15, fill: colours.ink, text })));
  parts.push(draw("g", { transform: `translate(${MARGIN} ${y})` }, links, words));
  return found.height;
}

function heated(parts, { queries, keys, weights }, y, colours) {
  const wide = Math.max(...queries.map(measured)) * 0.9 + 10;
  const high = Math.max(...keys.map(measured)) * 0.9 + 10;
  const cell = Math.min(CELL, (WIDTH - 2 * MARGIN - wide) / keys.length);
  const most = Math.max(0.0001, ...weights.flat());
  const cells = weights.flatMap((row, query) => row.map((weight, key) => draw("rect", { x: (wide + key * cell).toFixed(1), y: (high + query * cell).toFixed(1), width: (cell - 2).toFixed(1), height: (cell - 2).toFixed(1), rx: 3, fill: colour(colours, weight / most) }, draw("title", { text: `${queries[query]} reads ${keys[key]}: ${(100 * weight).toFixed(1)} %` }))));
  const rows = queries.map((text, at) => draw("text", { x: wide - 8, y: (high + (at + 0.66) * cell - 1).toFixed(1), "font-size": 13.5, "text-anchor": "end", fill: colours.ink, text }));
  const tops = keys.map((text, at) => draw("text", { transform: `translate(${(wide + (at + 0.62) * cell - 1).toFixed(1)} ${high - 6}) rotate(-90)`, "font-size": 13.5, fill: colours.ink, text }));
  parts.push(draw("g", { transform: `translate(${MARGIN} ${y})` }, cells, rows, tops));
  return high + queries.length * cell;
}

function wrapped(text, width) {
  const rows = [""];
  for (const word of text.split(/\s+/)) {
    const longer = rows.at(-1) ? `${rows.at(-1)} ${word}` : word;
    if (rows.at(-1) && measured(longer) > width) rows.push(word);
    else rows[rows.length - 1] = longer;
  }
  return rows;
}
