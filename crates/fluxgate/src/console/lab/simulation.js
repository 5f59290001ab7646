// A simulation: one rule set for each algorithm, and every request once in each of them.

import { count, span } from "../format.js";
import { SLOTS } from "./settings.js";

/** @import { Settings } from "./settings.js" */
/** @typedef {{t: number, rule_set?: string, hold?: string, settle?: string}} Event */
/** @typedef {ReturnType<typeof resultsOf>[number]} Result */

export const ALGORITHMS = /** @type {const} */ ([
  ["token_bucket", "Token bucket"], ["leaky_bucket", "Leaky bucket"],
  ["fixed_window", "Fixed window"], ["sliding_log", "Sliding log"],
  ["sliding_window", "Sliding window"], ["concurrency", "Concurrency"],
]);

/** @param {Settings} settings */
export function rulesOf(settings) {
  /** @type {Record<string, string>} */
  const more = {
    leaky_bucket: settings.shape ? "        shape: true" : "",
    // Longer than any pattern: here slots are freed when requests end.
    concurrency: "        hold: 1h",
  };
  const lines = ALGORITHMS.flatMap(([id]) => [`  ${id}:`, "    rules:", "      - id: limit", "        scope: global",
    `        algorithm: ${id}`, more[id] ?? "", `        bands: [ { ${bandOf(id, settings)} } ]`]);
  return `${["rule_sets:", ...lines].filter(Boolean).join("\n")}\n`;
}

/** @param {string} id @param {Settings} settings */
function bandOf(id, { capacity, window, burst, refill }) {
  if (id === "concurrency") return `capacity: ${capacity}`;
  const time = window % 1000 === 0 ? `${window / 1000}s` : `${window}ms`;
  const isBucket = id.endsWith("bucket") && (burst ?? refill) !== null;
  if (!isBucket) return `capacity: ${capacity}, window: ${time}`;
  return `capacity: ${burst ?? capacity}, window: ${time}, refill: ${refill ?? capacity}, period: ${time}`;
}

/**
 * Returns the events in the order of time. The pattern starts at 0, where a window of any length
 * starts. A request that ends does so before another one of the same instant starts.
 * @param {Settings} settings @param {number[]} counts
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
      for (const [id] of ALGORITHMS) {
        events.push(id === "concurrency" ? { t, rule_set: id, hold } : { t, rule_set: id });
      }
      ends.push({ t: t + run * 1000, settle: hold });
    }
  });
  // Nothing is decided after the last request, so the ends after it are not sent.
  return events;
}

/**
 * Returns the results in the order of `ALGORITHMS`. Lists are by slot. `level` is the most requests
 * that proceeded within one window and end in the slot, or for concurrency the most that run at
 * the same time; `worst` is the most that proceed in any interval of one window.
 * @param {Settings} settings @param {Event[]} events
 * @param {{allowed?: boolean, delay_us?: number}[]} decisions
 */
export function resultsOf(settings, events, decisions) {
  const requests = events.filter(({ settle }) => settle === undefined);
  const decided = decisions.filter(({ allowed }) => allowed !== undefined);
  if (requests.length !== decided.length) {
    throw new Error(`${requests.length} requests have ${decided.length} decisions`);
  }
  const slot = (settings.duration * 1000) / SLOTS;
  /** @param {{t: number}[]} some */
  const bySlot = (some) => some.reduce((counts, { t }) => {
    counts[Math.min(SLOTS - 1, Math.floor(t / slot))]++;
    return counts;
  }, new Array(SLOTS).fill(0));
  return ALGORITHMS.map(([id, name]) => {
    const own = requests.map(({ t, rule_set: set }, index) =>
      ({ t, set, ...decided[index] })).filter(({ set }) => set === id);
    const passed = own.filter(({ allowed }) => allowed);
    const starts = passed.map(({ t, delay_us: delay = 0 }) => t + delay).sort((a, b) => a - b);
    const rate = levelsOf(starts, settings.window * 1000, slot);
    const { levels, most } =
      id === "concurrency" ? levelsOf(starts, settings.run * 1000, slot) : rate;
    return {
      id, name, level: levels, peak: most, worst: rate.most,
      admitted: bySlot(passed), allowed: passed.length,
      denied: bySlot(own.filter(({ allowed }) => !allowed)), refused: own.length - passed.length,
      delay: Math.max(0, ...passed.map(({ delay_us: delay = 0 }) => delay)) / 1000,
    };
  });
}

/**
 * Counts the starts of the last `span`, its oldest instant not included: the most in each slot, and
 * the most of all, which may be after the last slot.
 * @param {number[]} starts @param {number} span @param {number} slot
 */
function levelsOf(starts, span, slot) {
  const since = (/** @type {number} */ time) =>
    starts.filter((start) => start > time - span && start <= time).length;
  const all = starts.map(since);
  const levels = Array.from({ length: SLOTS }, (_, index) => Math.max(since(index * slot),
    ...all.filter((_, place) => Math.floor(starts[place] / slot) === index)));
  return { levels, most: Math.max(0, ...all) };
}

/**
 * @param {Result} result @param {Result} log the result of the sliding log, which is exact
 * @param {Settings} settings
 */
export function sentence(result, log, { capacity, window, burst, refill, shape, run }) {
  const { allowed, refused, worst, peak, delay } = result;
  const size = burst ?? capacity;
  const pace = span(window / (refill ?? capacity));
  const within = `within ${span(window)}`;
  if (allowed + refused === 0) return "No request arrives.";
  switch (result.id) {
    case "token_bucket":
      if (refused === 0) return `The bucket of ${size} never runs empty, so every request passes.`;
      return `A burst may take ${count(size, "token")}; then one request passes every ${pace}. `
        + `Up to ${worst} pass ${within}.`;
    case "leaky_bucket":
      if (!shape) return "Without a queue it admits exactly what the token bucket admits.";
      if (delay === 0) return "The requests are far enough apart: none has to wait in the queue.";
      return `The queue releases one request every ${pace}; the longest wait is ${span(delay)}.`
        + (refused > 0 ? ` When ${size} are in it, more are denied.` : "");
    case "fixed_window":
      return "The count starts again at each window edge" + (worst > capacity
        ? `, so ${worst} requests pass ${within}: ${times(worst, capacity)} the limit.`
        : ". Here that makes no difference.");
    case "sliding_log":
      return `Exact: it keeps the time of every admitted request, so no interval of ${span(window)} admits `
        + `more than ${capacity}.`;
    case "sliding_window": {
      const more = allowed - log.allowed;
      const differs = more === 0 ? "as many as the sliding log"
        : `${Math.abs(more)} ${more > 0 ? "more" : "fewer"} than the sliding log`;
      const excess = worst > capacity ? `, and up to ${worst} ${within}` : "";
      return `Estimates the sliding log from two counts. Here it admits ${differs}${excess}.`;
    }
    case "concurrency":
      return `Counts running requests (${span(run)} each): at most ${peak} of ${capacity} at `
        + `once. It does not limit the rate: ${worst} start ${within}.`;
  }
}

/** @param {number} value @param {number} limit */
export const times = (value, limit) =>
  `${Number((value / limit).toFixed(value / limit < 1.1 ? 2 : 1))}×`;
