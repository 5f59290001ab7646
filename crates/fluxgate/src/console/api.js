// Calls of the service, all of the same origin, and the shapes of its answers.

import { setDate } from "./clock.js";

/** @typedef {{
 *   name: string, role: "viewer" | "operator" | "admin", demo: boolean, version: string,
 *   source: "file" | "dir" | "redis" | "http" | "mongodb" | "demo",
 *   writable: boolean, records: boolean, identities: boolean, history: number | null, routes: boolean,
 * }} Session `history`: for how many milliseconds the record is kept; `routes`: the call of that name exists */

/** @typedef {{
 *   at_ms: number, revision: string, uptime_s: number, decisions: Record<string, number>, denied: number,
 *   rules: {
 *     rule_set: string, rule: string, outcomes: Record<string, number>, denied: number,
 *     used: number | null,
 *   }[],
 *   latency_us: {p50: number | null, p99: number | null}, waiting: number, slots: number,
 *   store: {kind: string, breaker: "closed" | "half_open" | "open", keys: number | null},
 *   leases: {allowed: number, denied: number, units: number} | null,
 * }} LiveEvent */

/** @typedef {{
 *   id: string, capacity: number, window_ms?: number, refill?: number, period_ms?: number,
 *   hold_ms?: number, calendar?: string, time_zone?: string,
 * }} Band */
/** @typedef {{
 *   id: string, name: string | null, mode: string, priority: number, key: string[],
 *   group: string | null, rollout: string | null, algorithm: string, bands: Band[],
 *   action?: "deny" | "allow", status?: number,
 *   lease: {share: string, for_ms: number} | null, on_exceed: string,
 *   max_wait_ms?: number | null, match?: Record<string, any> | null, cost?: number | string,
 *   charge?: string, notify?: string[], on_missing_key?: string, shape?: boolean,
 *   overrides?: {count: number, until: string[]},
 * }} Rule */
/** @typedef {{
 *   name: string, on_error: string, rules: Rule[], disabled?: {id: string, name: string | null}[],
 * }} RuleSet */

/** @typedef {{
 *   rule_set: string | null, rule: string | null, rule_id?: string, identity: string,
 *   handle: string | null, count: number, error: number, outcomes: Record<string, number>,
 * }} Top */
/** An answer of `/v1/history`. @typedef {{
 *   step_s: number, from_ms: number,
 *   series: {rule_set: string | null, rule: string | null, outcome: string, values: number[]}[],
 *   decisions?: {outcome: string, values: number[]}[],
 *   changes: {at_ms: number, rule_set: string, revision: string | null, who: string | null}[],
 * }} History */
/** A row of `/v1/usage`. @typedef {{
 *   rule_set: string, rule: string, band: string, identity: string | null, handle: string | null,
 *   limit: number, remaining: number, used_share: number, reset_after_ms: number, per_hour: number,
 *   exhausted_in_ms: number | null,
 * }} Usage */
/** @typedef {{line: number, column: number, message: string}} Fault or a warning */

/** @typedef {Record<string, any>} Recorded a request in the format of docs/simulate.md */

/** The outcomes of requests that a rule refused. */
export const REFUSED = ["denied", "never", "forbidden"];
const TOKEN = "fluxgate.token";

export class Problem extends Error {
  /** @param {number} status 0 if there was no answer @param {string} detail @param {Fault[]} faults */
  constructor(status, detail, faults = []) {
    super(detail);
    this.status = status;
    this.faults = faults;
  }

  toString() {
    return this.status > 0 ? `${this.status} ${this.message}` : this.message;
  }
}

/** The token of this tab. It is forgotten when the tab is closed. */
export const token = {
  get: () => sessionStorage.getItem(TOKEN),
  set: (/** @type {string} */ value) => sessionStorage.setItem(TOKEN, value),
  clear: () => sessionStorage.removeItem(TOKEN),
};

/**
 * Sends a call. The body is sent as JSON, or as it is if `headers` has a `Content-Type`. The audit
 * log keeps `reason`.
 * @param {string} method @param {string} path
 * @param {{
 *   body?: unknown, headers?: Record<string, string>, reason?: string, signal?: AbortSignal,
 * }} [options]
 */
export async function send(method, path, { body, headers = {}, reason, signal } = {}) {
  const all = new Headers(headers);
  if (reason) all.set("X-FluxGate-Reason", encodeURIComponent(reason));
  const known = token.get();
  if (known) all.set("Authorization", `Bearer ${known}`);
  if (body !== undefined && !all.has("Content-Type")) {
    all.set("Content-Type", "application/json");
    body = JSON.stringify(body);
  }
  const text = /** @type {string | undefined} */ (body);
  let response;
  try {
    response = await fetch(path, { method, headers: all, body: text, signal, cache: "no-store" });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Problem(0, "The service does not answer.");
  }
  setDate(response.headers.get("Date"));
  if (response.ok) return response;
  const problem = problemOf(response, await response.text());
  if (problem.status === 401) dispatchEvent(new CustomEvent("unauthorized", { detail: problem }));
  throw problem;
}

/** Leaves out the name that logs have for a failure of Redis. @param {string} detail */
export const plainly = (detail) => detail.replace(/\b(circuit_open|timeout): /, "");

/** @param {Response} response @param {string} text */
function problemOf({ status, statusText }, text) {
  try {
    const { detail, title, faults } = JSON.parse(text);
    return new Problem(status, plainly(detail ?? title ?? text), faults);
  } catch {
    return new Problem(status, text || statusText);
  }
}

/** @param {string} path @param {AbortSignal} [signal] @returns {Promise<any>} */
export const get = async (path, signal) => (await send("GET", path, { signal })).json();

/**
 * @param {string} path @param {unknown} body @param {AbortSignal} [signal] @param {string} [reason]
 * @returns {Promise<any>}
 */
export const post = async (path, body, signal, reason) =>
  (await send("POST", path, { body, signal, reason })).json();

/**
 * Reads server-sent events until `signal` aborts, over new connections if one is lost. Unlike
 * `EventSource`, it can send a token.
 * @param {string} path @param {AbortSignal} signal @param {(data: any, id?: string) => void} onEvent
 * @param {(problem: Problem) => void} onProblem
 * @param {{last?: () => string, onChunk?: () => void}} [options] `last`: the id of the last event
 */
export async function listen(path, signal, onEvent, onProblem, { last = () => "", onChunk = () => {} } = {}) {
  while (!signal.aborted) {
    try {
      /** @type {Record<string, string>} */
      const headers = { Accept: "text/event-stream" };
      if (last()) headers["Last-Event-ID"] = last();
      await readEvents(await send("GET", path, { headers, signal }), onEvent, onChunk);
      throw new Error("end");
    } catch (error) {
      if (signal.aborted) return;
      onProblem(error instanceof Problem ? error : new Problem(0, "The connection was closed."));
    }
    await new Promise((done) => setTimeout(done, 1000));
  }
}

/**
 * @param {Response} response @param {(data: any, id?: string) => void} onEvent
 * @param {() => void} onChunk
 */
async function readEvents(response, onEvent, onChunk) {
  const reader = /** @type {ReadableStream<BufferSource>} */ (response.body)
    .pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop() ?? "";
    let events = 0;
    for (const block of blocks) {
      const lines = block.split("\n");
      const data = lines.find((line) => line.startsWith("data:"));
      const id = lines.find((line) => line.startsWith("id:"))?.slice(3).trim();
      if (!data) continue;
      events++;
      onEvent(JSON.parse(data.slice(5)), id);
    }
    if (events === 0) onChunk();
  }
}
