// The rules and the events of a simulation: one rule set for each algorithm, and every request
// once in each of them.

import { SLOTS } from "./settings.js";

/** @typedef {import("./settings.js").Settings} Settings */
/** @typedef {typeof ALGORITHMS[number]["id"]} Algorithm */
/** @typedef {{t: number, rule_set?: Algorithm, hold?: string, settle?: string}} Event */

export const ALGORITHMS = /** @type {const} */ ([
  { id: "token_bucket", name: "Token bucket" },
  { id: "leaky_bucket", name: "Leaky bucket" },
  { id: "fixed_window", name: "Fixed window" },
  { id: "sliding_log", name: "Sliding log" },
  { id: "sliding_window", name: "Sliding window" },
  { id: "concurrency", name: "Concurrency" },
]);

/**
 * @param {Settings} settings
 * @returns {string} the rules as YAML
 */
export function rulesOf(settings) {
  const sets = ALGORITHMS.map(({ id }) => [
    `  ${id}:`,
    "    rules:",
    "      - id: limit",
    "        scope: global",
    `        algorithm: ${id}`,
    ...(id === "leaky_bucket" && settings.shape ? ["        shape: true"] : []),
    // Longer than any pattern: here slots are freed when requests end.
    ...(id === "concurrency" ? ["        hold: 1h"] : []),
    `        bands: [ { ${bandOf(id, settings)} } ]`,
  ]);
  return ["rule_sets:", ...sets.flat(), ""].join("\n");
}

/**
 * @param {Algorithm} id
 * @param {Settings} settings
 */
function bandOf(id, { capacity, window, burst, refill }) {
  if (id === "concurrency") return `capacity: ${capacity}`;
  const plain = id !== "token_bucket" && id !== "leaky_bucket";
  if (plain || (burst === null && refill === null)) {
    return `capacity: ${capacity}, window: ${durationOf(window)}`;
  }
  const regains = `refill: ${refill ?? capacity}, period: ${durationOf(window)}`;
  return `capacity: ${burst ?? capacity}, window: ${durationOf(window)}, ${regains}`;
}

/** @param {number} milliseconds */
function durationOf(milliseconds) {
  return milliseconds % 1000 === 0 ? `${milliseconds / 1000}s` : `${milliseconds}ms`;
}

/**
 * Returns the events in the order of time. The pattern starts at 0, where a window of any length
 * starts. The requests of a slot are spread evenly over it. A request that ends does so before
 * another one of the same instant starts.
 * @param {Settings} settings
 * @param {number[]} counts
 * @returns {Event[]}
 */
export function eventsOf({ duration, run }, counts) {
  const slot = (duration * 1000) / SLOTS;
  /** @type {Event[]} */
  const events = [];
  /** @type {Event[]} */
  const ends = [];
  let ended = 0;
  counts.forEach((count, index) => {
    for (let place = 0; place < count; place++) {
      const t = Math.floor(slot * (index + (place + 0.5) / count));
      while (ended < ends.length && ends[ended].t <= t) events.push(ends[ended++]);
      const hold = `r${ends.length}`;
      for (const { id } of ALGORITHMS) {
        events.push(id === "concurrency" ? { t, rule_set: id, hold } : { t, rule_set: id });
      }
      ends.push({ t: t + run * 1000, settle: hold });
    }
  });
  // Nothing is decided after the last request, so the ends after it are not sent.
  return events;
}
