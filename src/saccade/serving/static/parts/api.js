// Requests to the server. An error has one line that says what to do.

const MAX_TRIES = 6; // while the server is busy
const MAX_AT_ONCE = 6; // requests; the others wait for their turn
const KEY = "saccade.key";

export class RequestError extends Error {
  /** `mayPass`: the same request may be answered later. */
  constructor(message, { wantsKey = false, mayPass = false } = {}) {
    super(message);
    Object.assign(this, { wantsKey, mayPass });
  }
}

let lastKey = ""; // for browsers that store nothing for this page

const withStorage = (use) => {
  try {
    return use(sessionStorage);
  } catch {
    return null;
  }
};

export const key = {
  get: () => withStorage((storage) => storage.getItem(KEY)) ?? lastKey,
  set: (value) => {
    lastKey = value;
    withStorage((storage) => storage.setItem(KEY, value));
  },
};

/** GET, or POST with a body. After 429, wait as long as the server says and ask again; `onWait(seconds)` is called before. */
export async function ask(path, { body, signal, onWait = () => {} } = {}) {
  for (let tries = 1; ; tries += 1) {
    await myTurn(signal);
    const response = await send(path, body, signal).finally(endTurn);
    if (response.status !== 429 || tries === MAX_TRIES) return read(response);
    const seconds = Math.min(30, Math.max(1, Number(response.headers.get("retry-after")) || 1));
    onWait(seconds);
    await pause(1000 * seconds, signal);
  }
}

let numOpen = 0;
const queue = [];

function myTurn(signal) {
  if (numOpen < MAX_AT_ONCE) return void (numOpen += 1);
  return new Promise((resolve, reject) => {
    queue.push(resolve);
    signal?.addEventListener("abort", () => {
      const at = queue.indexOf(resolve);
      if (at >= 0) queue.splice(at, 1);
      reject(signal.reason);
    });
  });
}

/** Give the turn to the next request. */
function endTurn() {
  const next = queue.shift();
  if (next) next();
  else numOpen -= 1;
}

/** POST, and read server-sent events: `onText(part)` for each part of the answer's text; return the whole at the end. */
export async function follow(path, { body, signal, onText }) {
  await myTurn(signal);
  try {
    const response = await open(path, body, signal);
    if (!response.headers.get("content-type")?.startsWith("text/event-stream")) {
      return read({ status: response.status, isOk: response.ok, content: await readJson(response) });
    }
    for await (const { name, content } of eventsOf(response)) {
      if (name === "text") onText(content.text);
      else if (name === "done") return content;
      else throw new RequestError(content.error);
    }
  } finally {
    endTurn();
  }
  throw new RequestError("The server stopped in the middle of its answer.", { mayPass: true });
}

/** Read the events of a response: [{name, content}]. */
async function* eventsOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const [name, data] = ["event: ", "data: "].map((start) => block.split("\n").find((line) => line.startsWith(start)).slice(start.length));
      yield { name, content: JSON.parse(data) };
    }
  }
}

async function send(path, body, signal) {
  const response = await open(path, body, signal);
  return { status: response.status, isOk: response.ok, headers: response.headers, content: await readJson(response) };
}

async function open(path, body, signal) {
  const headers = key.get() ? { authorization: `Bearer ${key.get()}` } : {};
  const options = body ? { method: "POST", body: JSON.stringify(body), headers: { ...headers, "content-type": "application/json" } } : { headers };
  try {
    return await fetch(path, { ...options, signal, credentials: "omit", cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new RequestError("The server doesn't answer. Check that saccade serve is still running.", { mayPass: true });
  }
}

/** Return what a response holds; null, if that is no JSON. */
async function readJson(response) {
  const text = await response.text();
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

function read({ status, isOk, content }) {
  if (isOk && content !== null) return content;
  throw errorOf(status, content?.error ?? "");
}

function errorOf(status, message) {
  const isKey = status === 401 || ((status === 400 || status === 403) && /key/i.test(message));
  if (isKey) return new RequestError("This server needs an API key. Enter yours above to continue.", { wantsKey: true });
  if (status === 429) return new RequestError("The server is busy.", { mayPass: true });
  if (status === 413) return new RequestError("This input is larger than the server allows. Try a shorter text or a smaller picture.");
  if (status === 503) return new RequestError("The server is starting or stopping.", { mayPass: true });
  if (status === 504) return new RequestError("The server took too long. Try a shorter text, or try again in a moment.");
  if (status >= 500) return new RequestError("The server had an error. Try again; if it happens again, read its log.");
  return new RequestError(message || `The server refused this request (${status}). Try another text or model.`);
}

function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });
}
