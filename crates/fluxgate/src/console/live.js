// The live numbers of the instance that serves the page, shared by all views, and their last five
// minutes.

import { Problem } from "./api.js";
import { setTime } from "./clock.js";
import { sum } from "./format.js";
import { retryFailed } from "./polling.js";
import { sharedStream } from "./stream.js";

/** @import { LiveEvent } from "./api.js" */
/** @typedef {ReturnType<typeof liveFeed>} LiveFeed */
/** @typedef {ReturnType<typeof totals> & {at: number} & LiveEvent["latency_us"]} Sample */

export const HISTORY_SECONDS = 300;
/** The service sends an event a second. */
const STALLED_MS = 6000;

/** @param {Record<string, number>} outcomes @param {number} denied whatever their outcomes */
export function totals(outcomes, denied) {
  const of = (/** @type {string} */ name) => outcomes[name] ?? 0;
  const all = sum(Object.values(outcomes));
  const shadow = of("shadow_denied");
  return {
    all, allowed: all - denied - shadow, denied, shadow,
    unavailable: of("failed_open") + of("failed_closed") + of("fallback"),
  };
}

/**
 * Reads the stream until `signal` aborts, while the page is visible.
 * @param {AbortSignal} signal @param {(problem: Problem | null) => void} onState `null`: events arrive
 */
export function liveFeed(signal, onState) {
  /** @type {Set<(event: LiveEvent) => void>} */
  const subscribers = new Set();
  /** @type {Set<() => void>} */
  const followers = new Set();
  let isLost = false;
  const feed = {
    latest: /** @type {LiveEvent | null} */ (null),
    /** Oldest first. */
    history: /** @type {Sample[]} */ ([]),
    /** Whether there was a decision since the page was opened. */
    decided: false,
    /** @param {AbortSignal} left @param {(event: LiveEvent) => void} subscriber */
    subscribe(left, subscriber) {
      feed.onEvent(left, subscriber);
      if (feed.latest) subscriber(feed.latest);
    },
    /** Calls `subscriber` with the next events, not with the latest one. @param {AbortSignal} left @param {(event: LiveEvent) => void} subscriber */
    onEvent(left, subscriber) {
      subscribers.add(subscriber);
      left.addEventListener("abort", () => subscribers.delete(subscriber));
    },
    /**
     * Calls `follower` whenever this instance takes over other rules.
     * @param {AbortSignal} left @param {() => void} follower
     */
    onRules(left, follower) {
      followers.add(follower);
      left.addEventListener("abort", () => followers.delete(follower));
    },
  };

  /** @param {LiveEvent} event */
  function receive(event) {
    setTime(event.at_ms);
    const before = feed.latest;
    feed.latest = event;
    feed.decided ||= Object.values(event.decisions).some((count) => count > 0);
    feed.history.push({ at: event.at_ms, ...totals(event.decisions, event.denied), ...event.latency_us });
    const start = event.at_ms - HISTORY_SECONDS * 1000;
    // The clock of the service may have been set back, so the length has a bound as well.
    feed.history = feed.history.filter(({ at }) => at > start).slice(-HISTORY_SECONDS);
    onState(null);
    if (isLost) retryFailed();
    isLost = false;
    if (before && before.revision !== event.revision) for (const follower of [...followers]) follower();
    if (!document.hidden) for (const subscriber of subscribers) subscriber(event);
  }

  sharedStream("/v1/live", signal, STALLED_MS, receive, (problem) => {
    isLost = true;
    onState(problem);
  });
  return feed;
}
