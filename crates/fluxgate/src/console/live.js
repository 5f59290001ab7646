// The stream of live numbers, shared by all views, and its last five minutes.

import { listen, Problem } from "./api.js";

/** The sums of one second. @typedef {{
 *   at: number, allowed: number, denied: number, shadow: number, unavailable: number,
 *   p50: number | null, p99: number | null,
 * }} Sample */

/** @typedef {{
 *   at_ms: number, revision: string, uptime_s: number, decisions: Record<string, number>,
 *   rules: {rule_set: string, rule: string, outcomes: Record<string, number>, used: number | null}[],
 *   latency_us: {p50: number | null, p99: number | null}, waiting: number, slots: number,
 *   store: {kind: string, breaker: "closed" | "half_open" | "open", keys: number | null},
 *   leases: {allowed: number, denied: number, units: number} | null,
 * }} LiveEvent */

/** `null` when connected, `undefined` before the first answer. @typedef {Problem | null | undefined} State */

export const HISTORY_SECONDS = 300;
/** The service sends an event a second. */
const STALLED_MS = 6000;

/**
 * Sums the outcomes by what happened to the request.
 * @param {Record<string, number>} outcomes
 */
export function totals(outcomes) {
  const of = (/** @type {string} */ name) => outcomes[name] ?? 0;
  return {
    allowed: of("allowed") + of("no_rule") + of("failed_open") + of("fallback"),
    denied: of("denied") + of("never") + of("failed_closed"),
    shadow: of("shadow_denied"),
    unavailable: of("failed_open") + of("failed_closed") + of("fallback"),
  };
}

/** Reads the stream until it is closed. A hidden page records it, but does not draw. */
export class LiveFeed {
  /** @type {LiveEvent | null} */
  latest = null;
  /** The last five minutes, oldest first. @type {Sample[]} */
  history = [];
  /** Whether there was a decision since the page was opened. */
  decided = false;
  /** @type {State} */
  state = undefined;
  #onState;
  #subscribers = /** @type {Set<(event: LiveEvent) => void>} */ (new Set());
  #closed = new AbortController();
  #attempt = new AbortController();
  #heard = Date.now();

  /** @param {(state: State) => void} onState */
  constructor(onState) {
    this.#onState = onState;
    this.#connect();
    const watch = setInterval(() => this.#watch(), 1000);
    const onVisible = () => this.#publish();
    document.addEventListener("visibilitychange", onVisible, { signal: this.#closed.signal });
    this.#closed.signal.addEventListener("abort", () => {
      clearInterval(watch);
      this.#attempt.abort();
    });
  }

  /**
   * Calls `subscriber` with each event.
   * @param {(event: LiveEvent) => void} subscriber
   * @returns {() => void} ends it
   */
  subscribe(subscriber) {
    this.#subscribers.add(subscriber);
    return () => this.#subscribers.delete(subscriber);
  }

  close() {
    this.#closed.abort();
    this.#subscribers.clear();
  }

  #connect() {
    this.#attempt = new AbortController();
    this.#heard = Date.now();
    // Connected is what delivers events, not what answers.
    listen("/v1/live", this.#attempt.signal, (event) => this.#receive(event), (state) => {
      if (state) this.#setState(state);
    });
  }

  /** A connection can be lost without an error, as when the computer slept. */
  #watch() {
    if (Date.now() - this.#heard < STALLED_MS) return;
    this.#attempt.abort();
    this.#setState(new Problem(0, "The service does not answer."));
    this.#connect();
  }

  /** @param {State} state */
  #setState(state) {
    this.state = state;
    if (!this.#closed.signal.aborted) this.#onState(state);
  }

  /** @param {LiveEvent} event */
  #receive(event) {
    this.#heard = Date.now();
    if (this.state !== null) this.#setState(null);
    this.latest = event;
    this.decided ||= Object.values(event.decisions).some((count) => count > 0);
    this.history.push({ at: event.at_ms, ...totals(event.decisions), ...event.latency_us });
    while (this.history[0].at <= event.at_ms - HISTORY_SECONDS * 1000) this.history.shift();
    // The clock of the service may have been set back.
    while (this.history.length > HISTORY_SECONDS + 10) this.history.shift();
    this.#publish();
  }

  #publish() {
    if (document.hidden || !this.latest) return;
    for (const subscriber of this.#subscribers) subscriber(this.latest);
  }
}
