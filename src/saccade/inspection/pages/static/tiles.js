// Small maps without names: all heads, or where in a picture each word looked.

import { colour, palette } from "./palette.js";

/**
 * Rows of buttons, each with a small map: `rows` is [[{label, name, weights}]], or `canvas` instead of weights; a name is shown below.
 * `onPick(row, column)` when one is pressed, `onPoint` when the pointer enters it. Returns {update, mark}: `mark(row, column)` frames one.
 */
export function tiles(container, { rows: given, onPick = () => {}, onPoint = () => {} }) {
  let buttons = [];
  const update = ({ rows }) => {
    const colours = palette();
    const most = Math.max(...rows.flat().map(({ most: own }) => own ?? 1));
    const on = (at, column) => ({ click: () => onPick(at, column), pointerenter: () => onPoint(at, column) });
    buttons = rows.map((row, at) => row.map((tile, column) => button(tile, most, colours, on(at, column))));
    container.replaceChildren(...buttons.map(rowOf));
  };
  const mark = (row, column) => {
    buttons.forEach((line, at) => line.forEach((one, across) => one.setAttribute("aria-pressed", String(at === row && across === column))));
  };
  update({ rows: given });
  return { update, mark };
}

function rowOf(buttons) {
  const row = document.createElement("div");
  row.className = "tiles";
  row.style.setProperty("--columns", buttons.length);
  row.append(...buttons);
  return row;
}

function button({ label, name, weights, canvas }, most, colours, on) {
  const element = document.createElement("button");
  element.type = "button";
  element.className = "tile";
  element.title = label;
  element.setAttribute("aria-label", label);
  element.append(canvas ?? drawMap(weights, most, colours));
  if (name !== undefined) {
    const text = document.createElement("span");
    text.dir = "auto";
    text.textContent = name;
    element.append(text);
  }
  for (const [event, listener] of Object.entries(on)) element.addEventListener(event, listener);
  return element;
}

function drawMap(weights, most, colours) {
  const canvas = document.createElement("canvas");
  canvas.height = weights.length;
  canvas.width = weights[0].length;
  const pen = canvas.getContext("2d");
  weights.forEach((row, y) => {
    row.forEach((weight, x) => {
      pen.fillStyle = colour(colours, weight / most);
      pen.fillRect(x, y, 1, 1);
    });
  });
  return canvas;
}
