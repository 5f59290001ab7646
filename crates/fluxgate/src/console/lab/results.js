// What the algorithms made of a pattern.

import { ALGORITHMS } from "./traffic.js";
import { SLOTS } from "./settings.js";

/** @typedef {import("./settings.js").Settings} Settings */
/** @typedef {import("./traffic.js").Algorithm} Algorithm */
/** @typedef {import("./traffic.js").Event} Event */
/** @typedef {{allowed?: boolean, delay_us?: number}} Decision */

/**
 * @typedef {object} Result
 * @property {Algorithm} id
 * @property {string} name
 * @property {number[]} admitted by slot, as all lists here
 * @property {number[]} denied
 * @property {number[]} level the most requests that proceeded within one window and end in the
 *   slot; for concurrency, the most that run at the same time
 * @property {number} allowed in total
 * @property {number} refused in total
 * @property {number} worst the most that proceed in any interval of one window
 * @property {number} peak the highest level
 * @property {number} delay the longest delay, in milliseconds
 */

/**
 * @param {Settings} settings
 * @param {Event[]} events
 * @param {Decision[]} decisions
 * @returns {Result[]} in the order of `ALGORITHMS`
 */
export function resultsOf(settings, events, decisions) {
  const requests = events.filter(({ settle }) => settle === undefined);
  const decided = decisions.filter(({ allowed }) => allowed !== undefined);
  if (requests.length !== decided.length) {
    throw new Error(`${requests.length} requests have ${decided.length} decisions`);
  }
  return ALGORITHMS.map(({ id, name }) => {
    const slot = (settings.duration * 1000) / SLOTS;
    const admitted = new Array(SLOTS).fill(0);
    const denied = new Array(SLOTS).fill(0);
    /** @type {number[]} */
    const starts = [];
    let delay = 0;
    requests.forEach(({ t, rule_set }, index) => {
      if (rule_set !== id) return;
      const { allowed, delay_us = 0 } = decided[index];
      (allowed ? admitted : denied)[Math.min(SLOTS - 1, Math.floor(t / slot))]++;
      if (!allowed) return;
      starts.push(t + delay_us);
      delay = Math.max(delay, delay_us / 1000);
    });
    starts.sort((a, b) => a - b);
    const rate = levelsOf(starts, settings.window * 1000, slot);
    const { levels, most } =
      id === "concurrency" ? levelsOf(starts, settings.run * 1000, slot) : rate;
    return {
      id,
      name,
      admitted,
      denied,
      level: levels,
      allowed: sum(admitted),
      refused: sum(denied),
      worst: rate.most,
      peak: most,
      delay,
    };
  });
}

/**
 * Counts the starts of the last `span`, its oldest instant not included: for each slot the most,
 * and the most of all, which may be after the last slot.
 * @param {number[]} starts
 * @param {number} span
 * @param {number} slot
 */
function levelsOf(starts, span, slot) {
  const levels = new Array(SLOTS).fill(0);
  let most = 0;
  let oldest = 0;
  let next = 0;
  for (let index = 0; index < SLOTS; index++) {
    while (oldest < next && starts[oldest] <= index * slot - span) oldest++;
    levels[index] = next - oldest;
    while (next < starts.length && starts[next] < (index + 1) * slot) {
      next++;
      while (starts[oldest] <= starts[next - 1] - span) oldest++;
      levels[index] = Math.max(levels[index], next - oldest);
    }
    most = Math.max(most, levels[index]);
  }
  for (; next < starts.length; next++) {
    while (starts[oldest] <= starts[next] - span) oldest++;
    most = Math.max(most, next + 1 - oldest);
  }
  return { levels, most };
}

/** @param {number[]} values */
function sum(values) {
  return values.reduce((total, value) => total + value, 0);
}
