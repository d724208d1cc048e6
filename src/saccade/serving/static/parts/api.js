// What is asked of the server. Troubles come back as one kind line that says what to do.

const PATIENCE = 6; // tries when it is busy
const KEY = "saccade.key";

export class Trouble extends Error {
  constructor(message, { wantsKey = false } = {}) {
    super(message);
    this.wantsKey = wantsKey;
  }
}

let own = ""; // where the browser keeps nothing for this page

const stored = (use) => {
  try {
    return use(sessionStorage);
  } catch {
    return null;
  }
};

export const key = {
  get: () => stored((storage) => storage.getItem(KEY)) ?? own,
  set: (value) => {
    own = value;
    stored((storage) => storage.setItem(KEY, value));
  },
};

/** GET, or POST with a body. A busy server (429) is asked again when it says; `onWait(seconds)` tells of it. */
export async function ask(path, { body, signal, onWait = () => {} } = {}) {
  for (let tries = 1; ; tries += 1) {
    const answer = await sent(path, body, signal);
    if (answer.status !== 429 || tries === PATIENCE) return read(answer);
    const seconds = Math.min(30, Math.max(1, Number(answer.headers.get("retry-after")) || 1));
    onWait(seconds);
    await pause(1000 * seconds, signal);
  }
}

async function sent(path, body, signal) {
  const headers = key.get() ? { authorization: `Bearer ${key.get()}` } : {};
  const options = body ? { method: "POST", body: JSON.stringify(body), headers: { ...headers, "content-type": "application/json" } } : { headers };
  try {
    return await fetch(path, { ...options, signal, credentials: "omit", cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Trouble("The server doesn't answer. Check that saccade serve is still running, then type again.");
  }
}

async function read(answer) {
  const found = await answer.json().catch(() => null);
  if (answer.ok && found !== null) return found;
  throw trouble(answer.status, found?.error ?? "");
}

function trouble(status, said) {
  const isKey = status === 401 || status === 403 || (status === 400 && /key/i.test(said));
  if (isKey) return new Trouble("This server wants an API key. Enter yours above, and it goes on.", { wantsKey: true });
  if (status === 429) return new Trouble("The server is busy. Wait a moment, then type again.");
  if (status === 413) return new Trouble("That is more than this server takes. Try a shorter text or a smaller picture.");
  if (status === 503 || status === 504) return new Trouble("The server took too long or is shutting down. Try again in a moment.");
  if (status >= 500) return new Trouble("The server stumbled. Try again; if it happens again, its log says why.");
  return new Trouble(said || `The server refused this (${status}). Try another text or model.`);
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
