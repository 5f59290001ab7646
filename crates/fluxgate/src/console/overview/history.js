// The record of what happened in a range of time, kept current with small calls.

import { get } from "../api.js";
import { now } from "../clock.js";
import { sum } from "../format.js";
import { repeat } from "../polling.js";

/** @import { History } from "../api.js" */
/** @typedef {{key: string, label: string, span: number, every: number}} Range in milliseconds */
/** Counts by step. @typedef {{rule_set: string | null, rule: string | null, outcome: string, values: number[]}} Counts */
/**
 * `from` is the start of the first step. `decisions` has each decision once, `rules` once for every
 * rule that took part in it.
 * @typedef {{
 *   step: number, from: number, decisions: Counts[], rules: Counts[], changes: History["changes"],
 * }} Recorded
 */

const MINUTE = 60_000;
/** @type {Range[]} */
export const RANGES = [
  // A little less: what is older comes in minutes.
  { key: "15m", label: "15 min", span: 15 * MINUTE - 5000, every: 2000 },
  { key: "1h", label: "1 h", span: 60 * MINUTE, every: 15_000 },
  { key: "24h", label: "24 h", span: 24 * 60 * MINUTE, every: MINUTE },
  { key: "7d", label: "7 d", span: 7 * 24 * 60 * MINUTE, every: MINUTE },
];
/** Other instances write their counts every few seconds. */
const LATE_SECONDS_MS = 15_000;
/** Later steps are those of seconds. */
const LATE_MINUTES_MS = 17 * MINUTE;

/**
 * Reads a range, and goes on until `signal` aborts.
 * @param {AbortSignal} signal @param {Range} range @param {number} keep how long the record is kept
 * @param {(recorded: Recorded) => void} onValue @param {(problem: unknown) => void} onProblem
 */
export function recordOf(signal, range, keep, onValue, onProblem) {
  let recorded = /** @type {Recorded | null} */ (null);
  return repeat(signal, range.every, async (current) => {
    const start = now() - Math.min(range.span, keep);
    const isNew = recorded === null || recorded.from + stepsOf(recorded) * recorded.step < start;
    const late = range.span < 15 * MINUTE ? LATE_SECONDS_MS : LATE_MINUTES_MS;
    const from = isNew ? start : Math.max(start, now() - late - 2 * range.every);
    try {
      const answer = await get(`/v1/history?from=${Math.ceil(from)}`, current);
      recorded = merge(isNew ? null : recorded, answer, start);
      onProblem(null);
      onValue(recorded);
    } catch (error) {
      if (!current.aborted) onProblem(error);
      throw error;
    }
  });
}

/** @param {Recorded} recorded */
export const stepsOf = ({ decisions, rules }) => (decisions[0] ?? rules[0])?.values.length ?? 0;

/** Returns the sum of the counts of some outcomes. @param {Counts[]} counts @param {(outcome: string) => boolean} isWanted */
export const sumOf = (counts, isWanted) => counts.filter(({ outcome }) => isWanted(outcome))
  .reduce((all, { values }) => all + sum(values), 0);

/**
 * Returns what is known, with newer counts, from `start` on.
 * @param {Recorded | null} known @param {History} answer @param {number} start
 * @returns {Recorded}
 */
export function merge(known, { step_s, from_ms: from, series, decisions = [], changes }, start) {
  const step = step_s * 1000;
  const length = [...decisions, ...series][0]?.values.length ?? Math.floor((now() - from) / step) + 1;
  const whole = (/** @type {Omit<Counts, "rule_set" | "rule">[]} */ all) =>
    all.map((each) => ({ rule_set: null, rule: null, ...each }));
  if (!known || known.step !== step) {
    return { step, from, decisions: padded(whole(decisions), length), rules: padded(series, length), changes };
  }
  const first = Math.floor(start / step) * step;
  const end = Math.max(from + length * step, known.from + stepsOf(known) * step);
  const steps = Math.max(0, Math.round((end - first) / step));
  const place = { first, step, steps };
  return {
    step, from: first,
    decisions: mergeCounts(known.decisions, known.from, whole(decisions), from, length, place),
    rules: mergeCounts(known.rules, known.from, series, from, length, place),
    changes: [...known.changes.filter(({ at_ms: at }) => at >= first && at < from),
      ...changes.filter(({ at_ms: at }) => at >= first)],
  };
}

/** There is always one series, which has the number of steps. @param {Counts[]} counts @param {number} length */
const padded = (counts, length) => counts.length > 0 ? counts
  : [{ rule_set: null, rule: null, outcome: "allowed", values: Array(length).fill(0) }];

/**
 * @param {Counts[]} known @param {number} knownFrom @param {Counts[]} news @param {number} newsFrom
 * @param {number} length of the news @param {{first: number, step: number, steps: number}} place
 */
function mergeCounts(known, knownFrom, news, newsFrom, length, { first, step, steps }) {
  const keyOf = (/** @type {Counts} */ { rule_set: set, rule, outcome }) => JSON.stringify([set, rule, outcome]);
  /** @type {Map<string, Counts>} */
  const merged = new Map();
  const target = (/** @type {Counts} */ counts) => {
    const key = keyOf(counts);
    const found = merged.get(key) ?? { ...counts, values: Array(steps).fill(0) };
    merged.set(key, found);
    return found.values;
  };
  const copy = (/** @type {Counts} */ counts, /** @type {number} */ from) => {
    const values = target(counts);
    const offset = Math.round((from - first) / step);
    counts.values.forEach((value, index) => {
      if (index + offset >= 0 && index + offset < steps) values[index + offset] = value;
    });
  };
  for (const counts of known) copy(counts, knownFrom);
  // The news are complete: what they do not have is zero.
  const at = Math.max(0, Math.round((newsFrom - first) / step));
  for (const { values } of merged.values()) values.fill(0, at, Math.min(steps, at + length));
  for (const counts of news) copy(counts, newsFrom);
  const used = [...merged.values()].filter(({ values }) => values.some((value) => value > 0));
  return padded(used, steps);
}
