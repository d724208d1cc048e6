// Random pictures to try at once: two shapes for models that read colours, a digit in clutter for those that don't.

const COLOURS = ["rgb(225 45 45)", "rgb(50 190 60)", "rgb(60 90 240)", "rgb(235 215 50)", "rgb(170 60 200)", "rgb(235 235 235)"];
const SIZES = [1 / 12, 1 / 6.5]; // radius as a share of the side
const SHAPES = [circle, square, triangle, cross];

/** The strokes of each digit, as points in a box of 20 by 20. */
const DIGITS = [
  [[[10, 1], [5, 3], [3, 10], [5, 17], [10, 19], [15, 17], [17, 10], [15, 3], [10, 1]]],
  [[[6, 5], [11, 1], [11, 19]]],
  [[[4, 5], [7, 1], [13, 1], [16, 5], [14, 9], [4, 19], [17, 19]]],
  [[[4, 2], [15, 2], [9, 9], [15, 11], [16, 15], [12, 19], [7, 19], [4, 17]]],
  [[[12, 1], [3, 13], [17, 13]], [[13, 6], [13, 19]]],
  [[[15, 1], [6, 1], [5, 9], [11, 8], [16, 12], [14, 17], [9, 19], [4, 17]]],
  [[[14, 1], [7, 7], [4, 13], [6, 18], [11, 19], [15, 16], [14, 11], [9, 10], [5, 13]]],
  [[[3, 2], [16, 2], [9, 19]]],
  [[[10, 10], [5, 7], [5, 3], [10, 1], [15, 3], [15, 7], [10, 10], [4, 14], [5, 18], [10, 19], [15, 18], [16, 14], [10, 10]]],
  [[[15, 6], [11, 10], [6, 8], [6, 3], [11, 1], [15, 4], [15, 7], [13, 19]]],
];

/** Return a generator: the same numbers for the same seed (mulberry32). */
export function randomNumbers(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Paint the picture of a seed into a canvas, for a model that reads 1 or 3 channels. */
export function paint(canvas, seed, channels) {
  const random = randomNumbers(seed * 7919 + 3);
  const context = canvas.getContext("2d");
  context.fillStyle = channels === 1 ? "black" : "rgb(24 24 24)";
  context.fillRect(0, 0, canvas.width, canvas.height);
  if (channels === 1) digit(context, canvas.width, canvas.height, random);
  else shapes(context, Math.min(canvas.width, canvas.height), random);
}

function shapes(context, side, random) {
  const pick = (count) => Math.floor(random() * count);
  const first = pick(COLOURS.length);
  const colours = [first, (first + 1 + pick(COLOURS.length - 1)) % COLOURS.length];
  const radii = colours.map(() => SIZES[pick(SIZES.length)] * side);
  const apart = radii[0] + radii[1] + side * (0.08 + 0.25 * random());
  const across = apart * (random() - 0.5) * 0.8;
  const [wide, high] = random() < 0.5 ? [apart, across] : [across, apart];
  const middle = side / 2;
  [[-wide / 2, -high / 2], [wide / 2, high / 2]].forEach(([x, y], at) => {
    context.fillStyle = COLOURS[colours[at]];
    context.beginPath();
    SHAPES[pick(SHAPES.length)](context, middle + x, middle + y, radii[at]);
    context.fill();
  });
}

function circle(context, x, y, r) {
  context.arc(x, y, r, 0, 2 * Math.PI);
}

function square(context, x, y, r) {
  context.rect(x - 0.87 * r, y - 0.87 * r, 1.74 * r, 1.74 * r);
}

function triangle(context, x, y, r) {
  context.moveTo(x, y - r);
  context.lineTo(x + 0.925 * r, y + 0.85 * r);
  context.lineTo(x - 0.925 * r, y + 0.85 * r);
}

function cross(context, x, y, r) {
  context.rect(x - r / 3, y - r, (2 * r) / 3, 2 * r);
  context.rect(x - r, y - r / 3, 2 * r, (2 * r) / 3);
}

function digit(context, width, height, random) {
  const pick = (count) => Math.floor(random() * count);
  Object.assign(context, { strokeStyle: "white", lineWidth: 2.6, lineCap: "round", lineJoin: "round" });
  for (let piece = 0; piece < 4; piece += 1) {
    context.save();
    const [x, y] = [pick(width - 8), pick(height - 8)];
    context.beginPath();
    context.rect(x, y, 8, 8);
    context.clip();
    stroke(context, DIGITS[pick(10)], x - pick(12), y - pick(12));
    context.restore();
  }
  stroke(context, DIGITS[pick(10)], 4 + random() * (width - 28), 4 + random() * (height - 28));
}

function stroke(context, strokes, x, y) {
  for (const points of strokes) {
    context.beginPath();
    points.forEach(([right, down], at) => (at ? context.lineTo(x + right, y + down) : context.moveTo(x + right, y + down)));
    context.stroke();
  }
}
