// A picture with its attention over it: light where the weight is, as inspection/draw/caption.py draws it.

const DARKEST = 0.12; // the brightness of a cell without weight
const VEIL = 0.2; // of white over the picture, so that weights on dark places are visible too
const FINEST = 480; // the least size of a canvas in pixels; smaller pictures are enlarged by a whole number

/** Paint an image into a canvas, and the weights of its cells, row by row, over it if there are any. */
export function overlay(canvas, picture, weights = null, [rows, columns] = [0, 0]) {
  const times = Math.max(1, Math.ceil(FINEST / Math.max(picture.width, picture.height)));
  Object.assign(canvas, { className: "overlay", width: times * picture.width, height: times * picture.height });
  const pen = canvas.getContext("2d");
  const spread = (image) => pen.drawImage(image, 0, 0, canvas.width, canvas.height);
  pen.imageSmoothingEnabled = false;
  spread(picture);
  if (!weights) return canvas;
  pen.fillStyle = `rgb(255 255 255 / ${VEIL})`;
  pen.fillRect(0, 0, canvas.width, canvas.height);
  pen.globalCompositeOperation = "multiply";
  spread(lights(weights, rows, columns));
  return canvas;
}

/** Paint a pixel for each cell; the one with the greatest weight is white. */
function lights(weights, rows, columns) {
  const canvas = Object.assign(document.createElement("canvas"), { width: columns, height: rows });
  const pen = canvas.getContext("2d");
  const most = Math.max(...weights, 1e-9);
  weights.forEach((weight, at) => {
    const light = Math.round(255 * (DARKEST + (1 - DARKEST) * (weight / most)));
    pen.fillStyle = `rgb(${light} ${light} ${light})`;
    pen.fillRect(at % columns, Math.floor(at / columns), 1, 1);
  });
  return canvas;
}
