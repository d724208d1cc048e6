// Requests to the server. An error has one line that says what to do.

const MAX_TRIES = 6; // while the server is busy
const KEY = "saccade.key";

export class RequestError extends Error {
  constructor(message, { wantsKey = false } = {}) {
    super(message);
    this.wantsKey = wantsKey;
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
    const response = await send(path, body, signal);
    if (response.status !== 429 || tries === MAX_TRIES) return read(response);
    const seconds = Math.min(30, Math.max(1, Number(response.headers.get("retry-after")) || 1));
    onWait(seconds);
    await pause(1000 * seconds, signal);
  }
}

async function send(path, body, signal) {
  const headers = key.get() ? { authorization: `Bearer ${key.get()}` } : {};
  const options = body ? { method: "POST", body: JSON.stringify(body), headers: { ...headers, "content-type": "application/json" } } : { headers };
  try {
    return await fetch(path, { ...options, signal, credentials: "omit", cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new RequestError("The server doesn't answer. Check that saccade serve is still running, then type again.");
  }
}

async function read(response) {
  const content = await response.json().catch(() => null);
  if (response.ok && content !== null) return content;
  throw errorOf(response.status, content?.error ?? "");
}

function errorOf(status, message) {
  const isKey = status === 401 || status === 403 || (status === 400 && /key/i.test(message));
  if (isKey) return new RequestError("This server needs an API key. Enter yours above to continue.", { wantsKey: true });
  if (status === 429) return new RequestError("The server is busy. Wait a moment, then type again.");
  if (status === 413) return new RequestError("This input is larger than the server allows. Try a shorter text or a smaller picture.");
  if (status === 503 || status === 504) return new RequestError("The server took too long or is shutting down. Try again in a moment.");
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
