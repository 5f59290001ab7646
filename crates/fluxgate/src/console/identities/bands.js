// The state of a band in words. Pure: no elements, no calls.

import { count, isNamed, number, wait } from "../format.js";

/** @import { Band, Rule } from "../api.js" */
/** @typedef {{
 *   band: string, limit: number, remaining: number, reset_after_ms: number, on_lease?: number,
 * }} State what `/v1/state/batch` says of a band */

/** @param {string} text */
const mentionsTokens = (text) => /token/i.test(text);

/** Returns what a rule counts, in the singular: its cost says that. @param {Rule} rule */
export function unitOf(rule) {
  const { cost } = /** @type {{cost?: unknown}} */ (rule);
  const { algorithm } = rule;
  if (algorithm === "concurrency") return "slot";
  if (cost === undefined || cost === null || cost === 1 || cost === "1") return "request";
  return typeof cost === "string" && mentionsTokens(cost) ? "token" : "unit";
}

/** Returns `3 of 10 requests used`. @param {State} state @param {string} unit */
export const usedWords = ({ limit, remaining }, unit) =>
  `${number(limit - remaining)} of ${count(limit, unit)} ${unit === "slot" ? "taken" : "used"}`;

/** Returns `7 left`. @param {State} state @param {string} unit */
export const leftWords = ({ remaining }, unit) =>
  `${number(remaining)} ${unit === "slot" ? "free" : "left"}`;

/**
 * Returns when the next request passes, if the rule has nothing left.
 * @param {State[]} states @param {number | null} retry in milliseconds; `null`: never
 * @param {Pick<Rule, "mode" | "on_exceed" | "algorithm">} rule
 */
export function nextWords(states, retry, { mode, on_exceed: onExceed, algorithm }) {
  if (states.every(({ remaining }) => remaining > 0)) return "";
  if (mode === "shadow") return "Nothing left; it is in shadow mode, so requests pass.";
  if (retry === null) return "The next request costs more than the limit, so it never passes.";
  if (algorithm === "concurrency") return "All slots are taken: the next request passes when one is free.";
  if (retry > 0) return `Next request in ${wait(retry)}.`;
  return onExceed === "wait" ? "The next request has to wait." : "";
}

/** Returns when all is available again. @param {State} state @param {Band | undefined} band @param {Rule} rule @param {number} now */
export function resetWords({ reset_after_ms: reset }, band, { algorithm }, now) {
  if (reset === 0 || algorithm === "concurrency") return "";
  // Clocks differ a little, and a window does not begin a second before midnight.
  if (band?.calendar) return `starts afresh ${zonedTime(Math.round((now + reset) / 60_000) * 60_000, band.time_zone)}`;
  return algorithm === "fixed_window" ? `starts afresh in ${wait(reset)}` : `all available in ${wait(reset)}`;
}

/**
 * Returns when taken slots end: `1 slot in 12 s, 2 slots in 50 s`. Those of one hold end together.
 * @param {number[]} ends in milliseconds from now
 */
export function slotWords(ends) {
  /** @type {Map<string, number>} */
  const slots = new Map();
  for (const end of ends) slots.set(wait(end), (slots.get(wait(end)) ?? 0) + 1);
  return [...slots].map(([end, taken]) => `${count(taken, "slot")} in ${end}`).join(", ");
}

/** @param {string | undefined} zone @param {Intl.DateTimeFormatOptions} options */
function formatIn(zone, options) {
  try {
    return new Intl.DateTimeFormat("en-GB", { ...options, timeZone: zone ?? "UTC" });
  } catch {
    // The browser does not know the zone.
    return new Intl.DateTimeFormat("en-GB", { ...options, timeZone: "UTC" });
  }
}

/** Returns `1 Dec 2026, 00:00 GMT+9`. @param {number} at @param {string | undefined} zone */
export const zonedTime = (at, zone) => formatIn(zone, { day: "numeric", month: "short", year: "numeric",
  hour: "2-digit", minute: "2-digit", hourCycle: "h23", timeZoneName: "short" }).format(at);

/**
 * Returns the dates of the calendar window of a band that `now` falls into: `1 to 30 Nov 2026
 * (Asia/Seoul)`; nothing for other bands.
 * @param {Band} band @param {number} now
 */
export function windowDates({ calendar, time_zone: zone = "UTC" }, now) {
  if (!calendar) return "";
  const parts = formatIn(zone, { year: "numeric", month: "numeric", day: "numeric", hour: "numeric",
    hourCycle: "h23" }).formatToParts(now);
  const [year, month, day, hour] = ["year", "month", "day", "hour"].map((type) =>
    Number(parts.find((part) => part.type === type)?.value));
  // Dates of the zone, counted as if they were of UTC.
  const date = (/** @type {number} */ m, /** @type {number} */ d) => new Date(Date.UTC(year, m - 1, d));
  const full = (/** @type {Date} */ at) =>
    formatIn("UTC", { day: "numeric", month: "short", year: "numeric" }).format(at);
  const between = (/** @type {Date} */ from, /** @type {Date} */ to) => formatIn("UTC",
    { day: "numeric", month: "short", year: "numeric" }).formatRange(from, to).replace(/\s*–\s*/, " to ");
  const weekday = (date(month, day).getUTCDay() + 6) % 7;
  const text = {
    hour: `${full(date(month, day))}, ${pad(hour)}:00 to ${pad(hour + 1)}:00`,
    day: full(date(month, day)),
    week: between(date(month, day - weekday), date(month, day - weekday + 6)),
    month: between(date(month, 1), date(month + 1, 0)),
    year: between(date(1, 1), date(12, 31)),
  }[calendar] ?? "";
  return `${text} (${zone})`;
}

/** @param {number} value */
const pad = (value) => String(value).padStart(2, "0");

/**
 * Returns what a refund has done.
 * @param {State[]} before @param {State[]} after @param {number} units @param {string} unit
 * @param {(state: State) => string} limitOf
 */
export function refundWords(before, after, units, unit, limitOf) {
  const left = leftOfAll(after, limitOf);
  if (before.length > 0 && before.every(({ limit, remaining }) => remaining >= limit)) {
    return { kind: /** @type {const} */ ("quiet"), text: `Nothing was used, so nothing was given back. ${left}` };
  }
  return { kind: /** @type {const} */ ("good"), text: `Refunded ${count(units, unit)}. ${left}` };
}

/**
 * Returns what a reset has done.
 * @param {number} counters that were deleted @param {State[]} after @param {string} who
 * @param {(state: State) => string} limitOf
 */
export function resetDone(counters, after, who, limitOf) {
  const left = leftOfAll(after, limitOf);
  return counters === 0
    ? { kind: /** @type {const} */ ("quiet"), text: `There was nothing to reset: ${who} had used nothing. ${left}` }
    : { kind: /** @type {const} */ ("good"), text: `Reset: ${count(counters, "counter")} deleted. ${left}` };
}

/** @param {State[]} states @param {(state: State) => string} limitOf */
const leftOfAll = (states, limitOf) => states.map((state) => `${number(state.remaining)} left `
  + (isNamed(state.band) ? `in ${state.band} (${limitOf(state)}).` : `of ${limitOf(state)}.`)).join(" ");

