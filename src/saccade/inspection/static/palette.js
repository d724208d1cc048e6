// Colours from no weight to all of it, as the style sheet gives them: light or dark, on the page and in what is saved from it.

/** The colours that hold now: {low, high, onHigh, ink, paper}. */
export function palette() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(name).trim();
  return { low: read("--heat-low"), high: read("--heat-high"), onHigh: read("--on-heat"), ink: read("--ink"), paper: read("--raised") };
}

/** The colour of a share from 0 to 1. */
export function colour({ low, high }, share) {
  const [from, to] = [low, high].map((hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)));
  const part = Math.min(1, Math.max(0, share)) || 0;
  return `rgb(${from.map((value, at) => Math.round(value + (to[at] - value) * part)).join(",")})`;
}
