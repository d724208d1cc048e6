// Write and read a link. Everything is behind the #, which browsers do not send.

const FIELDS = ["model", "beside", "text", "kind", "view", "layer", "head", "units", "example"];

export function write(state) {
  const kept = FIELDS.filter((field) => state[field] !== null && state[field] !== undefined && state[field] !== "");
  return kept.map((field) => `${field}=${encodeURIComponent(state[field])}`).join("&");
}

export function read(fragment) {
  const found = new URLSearchParams(fragment.replace(/^#/, "").replaceAll("+", "%2B"));
  return Object.fromEntries(FIELDS.filter((field) => found.has(field)).map((field) => [field, found.get(field)]));
}
