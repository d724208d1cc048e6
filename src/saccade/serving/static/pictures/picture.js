// The picture or clip that a model reads: dropped, chosen, pasted, random, or drawn here; with its weights or glimpses over it.

import { $, draw, make, takeDropped } from "../parts/dom.js";
import { paintClip, toBase64 } from "./clips.js";
import { paint } from "./examples.js";

const [DARK, WARM] = [[12, 8, 24, 205], [255, 176, 64, 60]]; // red, green, blue, opacity
const MAX_SIDE = 1024; // pixels that are sent

/** `onChange()` when there is another picture; `onError(line)` when a file isn't one. */
export function pictureInput({ onChange, onError }) {
  const picture = make("canvas", { class: "picture", role: "img", "aria-label": "The picture" });
  const shade = make("canvas", { class: "shade", "aria-hidden": "true" });
  const path = draw("svg", { class: "path", "aria-hidden": "true" });
  const frame = make("div", { class: "frame" }, picture, shade, path);
  const file = make("input", { type: "file", id: "file", accept: "image/*", class: "unseen", onchange: () => file.files[0] && take(file.files[0]) });
  const choose = make("label", { for: "file", class: "button", text: "Choose a picture" });
  const random = make("button", { type: "button", text: "Random picture", onclick: () => example(seed + 1) });
  const eraser = make("button", { type: "button", text: "Clear", onclick: () => blank() });
  const hint = make("p", { class: "hint" });
  const element = $("picture-input");
  element.append(frame, make("div", { class: "row" }, file, choose, random, eraser), hint);
  let size = { channels: 3, rows: 0, columns: 0 };
  let clip = null; // the bytes of a clip, as base64: the canvas shows its frames
  let canDraw = false;
  let seed = 0;
  let isExample = true;

  const change = () => {
    clear();
    onChange();
  };
  const example = (number) => {
    seed = number;
    isExample = true;
    if (size.frames) {
      const { gif, strip } = paintClip(seed, size);
      clip = gif;
      show(strip);
    } else {
      Object.assign(picture, { width: size.columns, height: size.rows });
      paint(picture, seed, size.channels);
    }
    change();
  };
  const blank = () => {
    isExample = false;
    fillBlack(size.columns, size.rows);
    clear();
  };
  const take = async (source) => {
    const bitmap = await createImageBitmap(source).catch(() => null);
    if (!bitmap) return onError(`That file isn't a picture this browser can read. Try a ${size.frames ? "GIF" : "PNG or a JPEG"}.`);
    if (size.frames) {
      clip = toBase64(new Uint8Array(await source.arrayBuffer()));
      isExample = false;
      show(bitmap); // its first frame, until the server has read it
      return change();
    }
    const [width, height] = canDraw ? [size.columns, size.rows] : [MAX_SIDE, MAX_SIDE];
    const scale = Math.min(canDraw ? Infinity : 1, width / bitmap.width, height / bitmap.height);
    const [wide, high] = [bitmap.width, bitmap.height].map((size) => Math.max(1, Math.round(size * scale)));
    fillBlack(canDraw ? width : wide, canDraw ? height : high);
    picture.getContext("2d").drawImage(bitmap, (picture.width - wide) / 2, (picture.height - high) / 2, wide, high);
    isExample = false;
    change();
  };
  const show = (image) => {
    Object.assign(picture, { width: image.width, height: image.height });
    picture.getContext("2d").drawImage(image, 0, 0);
  };
  /** Start a black picture. */
  const fillBlack = (width, height) => {
    Object.assign(picture, { width, height });
    const context = picture.getContext("2d");
    context.fillRect(0, 0, width, height);
  };
  const clear = () => {
    shade.getContext("2d").clearRect(0, 0, shade.width, shade.height);
    path.replaceChildren();
  };

  takeDropped(element, frame, take);
  document.addEventListener("paste", (event) => {
    const source = [...(event.clipboardData?.files ?? [])].find(({ type }) => type.startsWith("image/"));
    if (source && !element.hidden) take(source);
  });
  const useDrawing = () => {
    isExample = false;
    change();
  };
  addPen(picture, { isAllowed: () => canDraw, onStart: clear, onEnd: useDrawing });

  return {
    element,
    title: "Picture",
    field: "image",
    isEmpty: false,
    canvas: picture,
    /** Set the size and channels that a model reads, and whether one may draw. Return whether nothing changes. */
    fit: (wanted, mayDraw) => {
      const isSame = ["channels", "rows", "columns", "frames"].every((field) => wanted[field] === size[field]) && mayDraw === canDraw;
      [size, canDraw] = [wanted, mayDraw];
      eraser.hidden = !canDraw;
      const what = size.frames ? "clip" : "picture";
      choose.textContent = `Choose a ${what}`;
      random.textContent = `Random ${what}`;
      picture.setAttribute("aria-label", `The ${what}`);
      frame.classList.toggle("wide", Boolean(size.frames));
      const dropped = size.frames ? "Drop an animated GIF, PNG or WebP here, or paste one." : "Drop a picture here, or paste one.";
      hint.textContent = canDraw ? "Draw on it, drop a picture here, or paste one." : dropped;
      picture.classList.toggle("pad", canDraw);
      return isSame;
    },
    example,
    /** The number of the random picture that is shown. */
    get seed() {
      return isExample ? seed : null;
    },
    data: () => (size.frames ? clip : picture.toDataURL("image/png").split(",")[1]),
    /** Show the frames of a clip side by side, as the server has read them. */
    received: async (address) => {
      if (!size.frames || !address) return;
      const image = Object.assign(new Image(), { src: address });
      await image.decode();
      show(image);
    },
    /** Show the weights of cells, row by row; none, if there are no weights. */
    light: (weights, shape) => {
      if (weights && shape) spotlight(shade, weights, shape);
      else shade.getContext("2d").clearRect(0, 0, shade.width, shade.height);
    },
    path: (places, step) => drawPath(path, places, step, { rows: picture.height, columns: picture.width, patch: size.patch }),
    /** The picture, and the layers over it. */
    layers: () => ({ picture, shade, path }),
  };
}

/** Draw weights over a picture, dark for none and warm for the greatest; enlarging blurs the cells. */
export function spotlight(canvas, weights, [rows, columns]) {
  const small = make("canvas", { width: columns, height: rows });
  const context = small.getContext("2d");
  const pixels = context.createImageData(columns, rows);
  const most = Math.max(...weights);
  weights.forEach((weight, at) => {
    const share = most ? weight / most : 0;
    const colour = DARK.map((value, band) => Math.round(value + share * (WARM[band] - value)));
    pixels.data.set(colour, 4 * at);
  });
  context.putImageData(pixels, 0, 0);
  const width = Math.max(256, Math.min(columns, 2048)); // a sound is one long row
  Object.assign(canvas, { width, height: Math.max(1, Math.round((width * rows) / columns)) });
  const large = canvas.getContext("2d");
  large.imageSmoothingEnabled = true;
  large.imageSmoothingQuality = "high";
  large.drawImage(small, 0, 0, canvas.width, canvas.height);
}

/** Draw the path of glimpses up to a step, and a frame around the last glimpse; null: all of the path. */
function drawPath(svg, places, step, { rows, columns, patch }) {
  const shown = step === null ? places : places.slice(0, step + 1);
  const unit = Math.max(rows, columns) / 100;
  const isNow = (index) => index === step;
  const dot = ([x, y], index) => draw("g", { class: isNow(index) ? "stop now" : "stop" },
    draw("circle", { cx: x, cy: y, r: 2.8 * unit, "stroke-width": 0.6 * unit }),
    draw("text", { x, y: y + 1.3 * unit, "font-size": 3.6 * unit, "text-anchor": "middle", text: index + 1 }));
  const [x, y] = shown.at(-1);
  const square = { x: x - patch / 2, y: y - patch / 2, width: patch, height: patch, rx: unit, "stroke-width": 0.7 * unit };
  const frame = step === null ? [] : [draw("rect", square)];
  const line = draw("polyline", { points: shown.map((place) => place.join(",")).join(" "), "stroke-width": 0.8 * unit });
  svg.setAttribute("viewBox", `0 0 ${columns} ${rows}`);
  svg.replaceChildren(...frame, line, ...shown.map(dot));
}

function addPen(canvas, { isAllowed, onStart, onEnd }) {
  let last = null;
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    return [((event.clientX - box.left) * canvas.width) / box.width, ((event.clientY - box.top) * canvas.height) / box.height];
  };
  const line = (to) => {
    const context = canvas.getContext("2d");
    Object.assign(context, { strokeStyle: "white", lineWidth: 2.8, lineCap: "round", lineJoin: "round" });
    context.beginPath();
    context.moveTo(...last);
    context.lineTo(...to);
    context.stroke();
    last = to;
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (!isAllowed()) return;
    canvas.setPointerCapture(event.pointerId);
    onStart();
    last = at(event);
    line(last);
  });
  canvas.addEventListener("pointermove", (event) => last && line(at(event)));
  const lift = () => {
    if (!last) return;
    last = null;
    onEnd();
  };
  canvas.addEventListener("pointerup", lift);
  canvas.addEventListener("pointercancel", lift);
}
