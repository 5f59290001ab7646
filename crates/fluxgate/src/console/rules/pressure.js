// What the rules do now: requests and denials a second, denials of today, and who is at the limit.
// The numbers are those of all instances.

import { get, REFUSED } from "../api.js";
import { now } from "../clock.js";
import { sum } from "../format.js";
import { repeat } from "../polling.js";

/** @import { History, Usage } from "../api.js" */
/** @import { Context } from "../main.js" */

/**
 * `rate`, `denied`, `shadow`: a second. `today`: denials since midnight, or since `since`. `full`: how
 * many identities are at a limit; `isLeast`: at least. `fullest`: the identity that has used most.
 * @typedef {{
 *   rate: number, denied: number, shadow: number, today: number | null,
 *   full: number, isLeast: boolean, fullest: Usage | null,
 * }} Pressure
 */

const EVERY_MS = 5000;
const USAGE_EVERY_MS = 10_000;
/** Rates are averages over this time. */
const AVERAGE_S = 10;
/** Instances write what happened every five seconds. */
const FLEET_LAG_MS = 6000;
/** What is older is not read again. */
const SETTLED_MS = 30_000;
const REREAD_MS = 90_000;
const MOST_ROWS = 1000;
/** How many identities the service looks up of a rule at least. */
const LOOKED_UP = 10;

/** @param {string | null} set @param {string | null} rule */
export const keyOf = (set, rule) => JSON.stringify([set, rule ?? ""]);

/**
 * Keeps the pressure of all rules current until the view is left.
 * @param {Context} context @param {() => void} onChange @param {(problem: unknown) => void} onProblem
 */
export function pressureFeed({ signal, session, fleet }, onChange, onProblem) {
  /** Denials until `settled`, by rule. @type {Map<string, number>} */
  let before = new Map();
  let day = midnight();
  let settled = firstKept();
  /** @type {History | null} */
  let recent = null;
  /** Its series, by rule. @type {Map<string, History["series"]>} */
  let series = new Map();
  /** Used shares by rule. @type {Map<string, Usage[]>} */
  let usage = new Map();
  const feed = {
    /** Whether the first answers are there. */
    isKnown: false,
    isUsageKnown: false,
    /** Since when `today` counts, in milliseconds. */
    since: settled,
    of,
  };

  if (session.history) repeat(signal, EVERY_MS, reporting(readHistory));
  repeat(signal, USAGE_EVERY_MS, reporting(readUsage));

  /** The record may be kept for less than a day. */
  function firstKept() {
    return Math.round(Math.max(day, now() - (session.history ?? 0)));
  }

  /** @param {(signal: AbortSignal) => Promise<void>} read */
  function reporting(read) {
    return async (/** @type {AbortSignal} */ current) => {
      try {
        await read(current);
        onProblem(null);
      } catch (error) {
        if (!current.aborted) onProblem(error);
        throw error;
      }
      onChange();
    };
  }

  /** @param {AbortSignal} current */
  async function readHistory(current) {
    if (midnight() !== day) {
      day = midnight();
      feed.since = settled = firstKept();
      before = new Map();
    }
    recent = await get(`/v1/history?from=${settled}`, current);
    series = grouped(/** @type {History} */ (recent).series);
    feed.isKnown = true;
    if (now() - settled <= REREAD_MS) return;
    settle(/** @type {History} */ (recent));
    // A long time comes in minutes. What is left of it comes in seconds, which rates are made of.
    if (now() - settled <= REREAD_MS) return readHistory(current);
  }

  /** Returns the first step of the last answer that is not among the sums. @param {number} at */
  const stepOf = (at) => recent ? Math.max(0, Math.round((at - recent.from_ms) / (1000 * recent.step_s))) : 0;

  /** Adds what no instance will change any more to the sums. @param {History} history */
  function settle({ step_s: step, from_ms: from, series: all }) {
    const steps = Math.floor((now() - SETTLED_MS - from) / (1000 * step));
    if (steps <= 0) return;
    for (const { rule_set: set, rule, outcome, values } of all) {
      if (!REFUSED.includes(outcome)) continue;
      const key = keyOf(set, rule);
      before.set(key, (before.get(key) ?? 0) + sum(values.slice(stepOf(settled), steps)));
    }
    settled = from + steps * 1000 * step;
  }

  /** @param {AbortSignal} current */
  async function readUsage(current) {
    const { usage: rows } = await get(`/v1/usage?n=${MOST_ROWS}`, current);
    usage = grouped(/** @type {Usage[]} */ (rows));
    feed.isUsageKnown = true;
  }

  /** @param {string} key @returns {Pressure} */
  function of(key) {
    const rows = usage.get(key) ?? [];
    const names = new Set(rows.map(({ handle, identity }) => handle ?? identity));
    const full = new Set(rows.filter(({ remaining }) => remaining === 0).map(({ handle, identity }) => handle ?? identity));
    const pressure = {
      rate: 0, denied: 0, shadow: 0, today: session.history && feed.isKnown ? before.get(key) ?? 0 : null,
      full: full.size, isLeast: full.size > 0 && full.size === names.size && full.size >= LOOKED_UP,
      fullest: rows.reduce((/** @type {Usage | null} */ most, row) =>
        (row.used_share > (most?.used_share ?? -1) ? row : most), null),
    };
    if (!recent) return pressure;
    const { step_s: step, from_ms: from } = recent;
    const lag = (fleet.latest?.instances.length ?? 1) > 1 ? FLEET_LAG_MS : 1000;
    const end = Math.floor((now() - lag - from) / (1000 * step));
    const steps = Math.max(1, Math.round(AVERAGE_S / step));
    const start = Math.max(0, end - steps);
    for (const { outcome, values } of series.get(key) ?? []) {
      const perSecond = sum(values.slice(start, Math.max(start + 1, end))) / (Math.max(1, end - start) * step);
      pressure.rate += perSecond;
      if (outcome === "shadow_denied") pressure.shadow += perSecond;
      if (!REFUSED.includes(outcome)) continue;
      pressure.denied += perSecond;
      if (pressure.today !== null) pressure.today += sum(values.slice(stepOf(settled)));
    }
    return pressure;
  }

  return feed;
}

/**
 * @template {{rule_set: string | null, rule: string | null}} T
 * @param {T[]} rows @returns {Map<string, T[]>}
 */
function grouped(rows) {
  const groups = new Map();
  for (const row of rows) {
    const key = keyOf(row.rule_set, row.rule);
    groups.set(key, [...groups.get(key) ?? [], row]);
  }
  return groups;
}

/** Returns the last midnight, in the zone of the browser. */
function midnight() {
  return new Date(now()).setHours(0, 0, 0, 0);
}
