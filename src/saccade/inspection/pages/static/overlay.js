// A picture with its attention over it: light where the weight is, as inspection/captions.py draws it.

const DARKEST = 0.12; // how much is still seen of what has no weight
const VEIL = 0.2; // of white over the picture, so that looking at something dark is seen too
const FINEST = 480; // pixels of a canvas; a smaller picture is enlarged until it has them, with its own pixels kept square

/** Paint a picture (an image) into a canvas; with the weights of its cells, row by row, over it if they are given. */
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

/** A pixel for each cell; the one with most weight is white. */
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
