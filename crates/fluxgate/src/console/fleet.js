// The instances that share a store, for all views: what the console shows is true for all of them.

import { now } from "./clock.js";
import { totals } from "./live.js";
import { watch } from "./polling.js";

/** @import { LiveEvent } from "./api.js" */
/** @typedef {{
 *   id: string, hostname: string, address?: string | null, version: string, revision: string,
 *   started_ms: number, seen_ms: number, is_self: boolean,
 *   decisions_per_second: number, denied_per_second: number, waiting?: number, slots?: number,
 *   leased_units?: number | null, store?: {kind: string, breaker: string},
 *   webhooks?: {server: string, queued: number, is_failing: boolean}[],
 * }} Instance a field without a value is not known: another version runs there */
/** @typedef {Instance & {gone_ms: number}} Gone */
/** @typedef {{instances: Instance[], failure: string | null, gone: Gone[]}} Fleet */
/** @typedef {ReturnType<typeof fleetFeed>} FleetFeed */

export const FLEET_PATH = "/v1/instances";
const EVERY_MS = 5000;
/** An instance sends a sign of life every five seconds. */
const LATE_MS = 12_000;
/** How long an instance is named that is no longer there. */
const GONE_MS = 10 * 60_000;

/** @param {Instance} instance */
export const isLate = ({ seen_ms: seen, is_self: isSelf }) => !isSelf && now() - seen > LATE_MS;

/** Returns what people call an instance. @param {Instance} instance */
export const nameOf = ({ hostname, address, id }) =>
  hostname ? `${hostname}${address ? ` (${address})` : ""}` : address || id;

/** @param {AbortSignal} signal */
export function fleetFeed(signal) {
  /** @type {Set<(fleet: Fleet) => void>} */
  const subscribers = new Set();
  /** @type {Map<string, Instance>} */
  let known = new Map();
  /** @type {Map<string, Gone>} */
  const gone = new Map();
  const feed = {
    latest: /** @type {Fleet | null} */ (null),
    problem: /** @type {unknown} */ (null),
    /** @param {AbortSignal} left @param {(fleet: Fleet) => void} subscriber */
    subscribe(left, subscriber) {
      subscribers.add(subscriber);
      left.addEventListener("abort", () => subscribers.delete(subscriber));
      const { latest } = feed;
      if (latest) queueMicrotask(() => left.aborted || subscriber(latest));
    },
    /** Asks for the instances now. */
    run: () => polled.run(),
    /** Returns the decisions a second of all instances; those of this one are of the last second. @param {LiveEvent} event */
    rate({ decisions, denied }) {
      const own = totals(decisions, denied);
      const others = (feed.latest?.instances ?? []).filter((each) => !each.is_self && !isLate(each));
      return others.reduce((sum, each) => ({
        all: sum.all + each.decisions_per_second, denied: sum.denied + each.denied_per_second,
      }), { all: own.all, denied: own.denied });
    },
  };

  /** @param {{instances: Instance[], failure: string | null}} answer */
  function receive({ instances, failure }) {
    const current = new Map(instances.map((each) => [each.id, each]));
    for (const [id, each] of known) {
      // Without Redis, the others are not known.
      if (!current.has(id) && !failure) gone.set(id, { ...each, gone_ms: now() });
    }
    for (const [id, each] of gone) {
      if (current.has(id) || now() - each.gone_ms > GONE_MS) gone.delete(id);
    }
    if (!failure) known = current;
    feed.latest = { instances, failure, gone: [...gone.values()] };
    for (const subscriber of [...subscribers]) subscriber(feed.latest);
  }

  const polled = watch(signal, FLEET_PATH, EVERY_MS, receive, (problem) => (feed.problem = problem));
  return feed;
}
