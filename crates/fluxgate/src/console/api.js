// Calls of the service. All are of the same origin.

const TOKEN = "fluxgate.token";

/** What the service said is wrong, as `application/problem+json` or as text. */
export class Problem extends Error {
  /**
   * @param {number} status 0 if there was no answer
   * @param {string} detail
   * @param {{line: number, column: number, message: string}[]} faults
   */
  constructor(status, detail, faults = []) {
    super(detail);
    this.status = status;
    this.faults = faults;
  }
}

/** The token of this tab, if there is one. It is forgotten when the tab is closed. */
export const token = {
  get() {
    return sessionStorage.getItem(TOKEN);
  },
  /** @param {string} value */
  set(value) {
    sessionStorage.setItem(TOKEN, value);
  },
  clear() {
    sessionStorage.removeItem(TOKEN);
  },
};

/**
 * Sends a call. The body is sent as JSON, or as it is if `headers` has a `Content-Type`.
 * @param {string} method
 * @param {string} path
 * @param {{body?: unknown, headers?: Record<string, string>, signal?: AbortSignal}} [options]
 * @returns {Promise<Response>}
 */
export async function send(method, path, { body, headers = {}, signal } = {}) {
  const all = new Headers(headers);
  const known = token.get();
  if (known) all.set("Authorization", `Bearer ${known}`);
  const isJson = body !== undefined && !all.has("Content-Type");
  if (isJson) all.set("Content-Type", "application/json");
  let response;
  try {
    const text = isJson ? JSON.stringify(body) : /** @type {string | undefined} */ (body);
    response = await fetch(path, { method, headers: all, body: text, signal, cache: "no-store" });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Problem(0, "The service does not answer.");
  }
  if (!response.ok) throw await problemOf(response);
  return response;
}

/**
 * @param {Response} response
 * @returns {Promise<Problem>}
 */
async function problemOf(response) {
  const text = await response.text();
  const problem = parseProblem(response, text);
  if (response.status === 401) dispatchEvent(new CustomEvent("unauthorized", { detail: problem }));
  return problem;
}

/**
 * @param {Response} response
 * @param {string} text
 * @returns {Problem}
 */
function parseProblem(response, text) {
  try {
    const { detail, title, faults } = JSON.parse(text);
    return new Problem(response.status, detail ?? title ?? text, faults);
  } catch {
    return new Problem(response.status, text || response.statusText);
  }
}

/**
 * @param {string} path
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export async function get(path, signal) {
  return (await send("GET", path, { signal })).json();
}

/**
 * @param {string} path
 * @param {unknown} body
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export async function post(path, body, signal) {
  return (await send("POST", path, { body, signal })).json();
}

/**
 * Reads server-sent events until `signal` aborts. Connects again after a second if the
 * connection is lost. Unlike `EventSource`, it can send a token.
 * @param {string} path
 * @param {AbortSignal} signal
 * @param {(data: any) => void} onEvent
 * @param {(problem: Problem | null) => void} onState called with `null` when it is connected
 */
export async function listen(path, signal, onEvent, onState) {
  while (!signal.aborted) {
    try {
      const response = await send("GET", path, { signal });
      onState(null);
      await readEvents(response, onEvent);
      if (!signal.aborted) onState(new Problem(0, "The connection was closed."));
    } catch (error) {
      if (signal.aborted) return;
      onState(error instanceof Problem ? error : new Problem(0, "The connection was closed."));
    }
    await new Promise((done) => setTimeout(done, 1000));
  }
}

/**
 * @param {Response} response
 * @param {(data: any) => void} onEvent
 */
async function readEvents(response, onEvent) {
  const reader = /** @type {ReadableStream<Uint8Array>} */ (response.body).getReader();
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    rest += decoder.decode(value, { stream: true });
    for (;;) {
      const end = rest.indexOf("\n\n");
      if (end < 0) break;
      const lines = rest.slice(0, end).split("\n");
      rest = rest.slice(end + 2);
      const data = lines.filter((line) => line.startsWith("data:"));
      if (data.length > 0) onEvent(JSON.parse(data.map((line) => line.slice(5)).join("\n")));
    }
  }
}
