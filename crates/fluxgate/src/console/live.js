// The stream of live numbers, shared by all views, and its last five minutes.

import { listen, Problem } from "./api.js";

/** @import { LiveEvent } from "./api.js" */
/** @typedef {ReturnType<typeof liveFeed>} LiveFeed */
/** @typedef {ReturnType<typeof totals> & {at: number} & LiveEvent["latency_us"]} Sample */

export const HISTORY_SECONDS = 300;
/** The service sends an event a second. */
const STALLED_MS = 6000;

/** @param {Record<string, number>} outcomes @param {number} denied whatever their outcomes */
export function totals(outcomes, denied) {
  const of = (/** @type {string} */ name) => outcomes[name] ?? 0;
  const all = Object.values(outcomes).reduce((sum, count) => sum + count, 0);
  const shadow = of("shadow_denied");
  return {
    allowed: all - denied - shadow, denied, shadow,
    unavailable: of("failed_open") + of("failed_closed") + of("fallback"),
  };
}

/**
 * Reads the stream until `signal` aborts. A hidden page does not draw it.
 * @param {AbortSignal} signal @param {(problem: Problem | null) => void} onState `null`: events arrive
 */
export function liveFeed(signal, onState) {
  /** @type {Set<(event: LiveEvent) => void>} */
  const subscribers = new Set();
  let attempt = new AbortController();
  let heard = 0;
  const feed = {
    latest: /** @type {LiveEvent | null} */ (null),
    /** Oldest first. */
    history: /** @type {Sample[]} */ ([]),
    /** Whether there was a decision since the page was opened. */
    decided: false,
    /** @param {AbortSignal} left @param {(event: LiveEvent) => void} subscriber */
    subscribe(left, subscriber) {
      subscribers.add(subscriber);
      left.addEventListener("abort", () => subscribers.delete(subscriber));
      if (feed.latest) subscriber(feed.latest);
    },
  };

  function connect() {
    attempt = new AbortController();
    heard = Date.now();
    listen("/v1/live", attempt.signal, receive, onState);
  }

  /** @param {LiveEvent} event */
  function receive(event) {
    heard = Date.now();
    onState(null);
    feed.latest = event;
    feed.decided ||= Object.values(event.decisions).some((count) => count > 0);
    feed.history.push({ at: event.at_ms, ...totals(event.decisions, event.denied), ...event.latency_us });
    const start = event.at_ms - HISTORY_SECONDS * 1000;
    // The clock of the service may have been set back, so the length has a bound as well.
    feed.history = feed.history.filter(({ at }) => at > start).slice(-HISTORY_SECONDS);
    publish();
  }

  function publish() {
    if (document.hidden || !feed.latest) return;
    for (const subscriber of subscribers) subscriber(feed.latest);
  }

  // A connection can be lost without an error, as when the computer slept.
  const watch = setInterval(() => {
    if (Date.now() - heard < STALLED_MS) return;
    attempt.abort();
    onState(new Problem(0, "The service does not answer."));
    connect();
  }, 1000);
  document.addEventListener("visibilitychange", publish, { signal });
  signal.addEventListener("abort", () => {
    clearInterval(watch);
    attempt.abort();
  });
  connect();
  return feed;
}
