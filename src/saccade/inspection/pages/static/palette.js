// The colours of weights, read from the style sheet: light or dark, on the page and in saved files.

/** Return the current colours: {heat: [[r, g, b]], ink, paper}. */
export function palette() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(name).trim();
  const heat = read("--heat").split(",").map((stop) => rgb(stop.trim()));
  return { heat, ink: read("--ink"), paper: read("--raised") };
}

/** Return the colour of a share from 0 to 1. */
export function colour({ heat }, share) {
  const place = (Math.min(1, Math.max(0, share)) || 0) * (heat.length - 1);
  const below = Math.min(heat.length - 2, Math.floor(place));
  return `rgb(${heat[below].map((value, at) => Math.round(value + (heat[below + 1][at] - value) * (place - below))).join(",")})`;
}

function rgb(hex) {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}
