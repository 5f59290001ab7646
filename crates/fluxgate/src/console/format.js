// Numbers, shares, durations, times, lists and links as text; and sums.

import { now } from "./clock.js";

const THIN = "\u202f";
const numbers = [0, 1].map((digits) =>
  new Intl.NumberFormat("en-US", { maximumFractionDigits: digits }));
const ZONE = /** @type {const} */ ({ timeZoneName: "short" });
const CLOCK = /** @type {const} */ ({ hour: "2-digit", minute: "2-digit", second: "2-digit", ...ZONE });
const DAY = /** @type {const} */ ({ day: "numeric", month: "short", year: "numeric" });
const clock = new Intl.DateTimeFormat("en-GB", CLOCK);
const dayAndClock = new Intl.DateTimeFormat("en-GB", { ...DAY, ...CLOCK });
/** For the axes of charts, which say their zone once. */
const axisClock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const axisDay = new Intl.DateTimeFormat("en-GB", { weekday: "short", day: "numeric", month: "short" });

/** Returns `12,345`, or `12,345.6` with a digit. @param {number} value @param {0 | 1} [digits] */
export const number = (value, digits = 0) => numbers[digits].format(value);

/** @param {number[]} values */
export const sum = (values) => values.reduce((total, value) => total + value, 0);

/** Returns `987`, `1.2k`, `34k` or `5.6M`. @param {number} value */
export function compact(value) {
  if (value < 999.5) return value.toFixed(value < 10 && !Number.isInteger(value) ? 1 : 0);
  const [divisor, unit] = value < 999_500 ? [1e3, "k"] : [1e6, "M"];
  const scaled = value / divisor;
  return Number(scaled.toFixed(scaled < 9.95 ? 1 : 0)) + unit;
}

/** Returns percent. What is not quite 0 or 1 is not shown as 0 or 100%. @param {number} value */
export function share(value) {
  const percent = value * 100;
  if (percent > 0 && percent < 0.1) return "<0.1%";
  if (percent < 100 && percent > 99.9) return ">99.9%";
  const isPrecise = percent < 10 || (percent > 99 && percent < 100);
  return `${isPrecise ? Number(percent.toFixed(1)) : Math.round(percent)}%`;
}

/** Returns a latency: `1.2 µs`, `340 ms`. @param {number} value */
export function micros(value) {
  const [scaled, unit] =
    value < 1e3 ? [value, "µs"] : value < 1e6 ? [value / 1e3, "ms"] : [value / 1e6, "s"];
  return `${scaled.toFixed(scaled < 10 ? 1 : 0)}${THIN}${unit}`;
}

/** Returns `500 ms` or `1.5 s`. @param {number} milliseconds */
export function span(milliseconds) {
  const [scaled, unit] = milliseconds < 1000 ? [milliseconds, "ms"] : [milliseconds / 1000, "s"];
  return `${Number(scaled.toPrecision(3))}${THIN}${unit}`;
}

/** Returns the two largest units: `45 s`, `2 min 5 s`, `4 d 2 h`. @param {number} milliseconds */
export function duration(milliseconds) {
  if (milliseconds > 0 && milliseconds < 1000) return `${Math.round(milliseconds)}${THIN}ms`;
  const seconds = Math.max(0, Math.floor(milliseconds / 1000));
  const parts = /** @type {[number, string][]} */ ([
    [Math.floor(seconds / 86_400), "d"],
    [Math.floor(seconds / 3600) % 24, "h"],
    [Math.floor(seconds / 60) % 60, "min"],
    [seconds % 60, "s"],
  ]);
  const first = parts.findIndex(([count]) => count > 0);
  if (first < 0) return `0${THIN}s`;
  const shown = parts.slice(first, first + 2).filter(([count]) => count > 0);
  return shown.map(([count, unit]) => `${count}${THIN}${unit}`).join(" ");
}

/** Returns a time to wait in whole seconds, never too short. @param {number} milliseconds */
export const wait = (milliseconds) => duration(Math.max(1, Math.ceil(milliseconds / 1000)) * 1000);

/**
 * Returns `14:03:59 UTC` of a Unix time, with the zone of the browser, and the date if it is another
 * day. @param {number} milliseconds
 */
export function time(milliseconds) {
  const date = new Date(milliseconds);
  const isToday = date.toDateString() === new Date(now()).toDateString();
  return (isToday ? clock : dayAndClock).format(date);
}

/** Returns `14:03`, or `Thu 19 Nov` if `isLong`. @param {number} milliseconds @param {boolean} isLong */
export const axisTime = (milliseconds, isLong) => (isLong ? axisDay : axisClock).format(milliseconds);

/** Returns the zone that times are shown in: `UTC` or `GMT+9`. */
export const zone = () =>
  clock.formatToParts(now()).find(({ type }) => type === "timeZoneName")?.value ?? "local time";

/** Returns `just now` or `5 s ago` of a Unix time. @param {number} milliseconds */
export function ago(milliseconds) {
  const passed = now() - milliseconds;
  return passed < 2000 ? "just now" : `${duration(passed)} ago`;
}

/** Returns `in 12 s`, or `now`. @param {number} milliseconds from now */
export const inTime = (milliseconds) => (milliseconds <= 0 ? "now" : `in ${wait(milliseconds)}`);

/** Returns `132/s`, `4.5/s` or `3/min`. @param {number} perSecond */
export const rate = (perSecond) => perSecond === 0 || perSecond >= 0.95 ? `${compact(perSecond)}/s`
  : perSecond * 60 >= 0.95 ? `${compact(perSecond * 60)}/min` : `${compact(perSecond * 3600)}/h`;

/** Returns `1 rule` or `2 rules`. @param {number} value @param {string} singular @param {string} [plural] */
export const count = (value, singular, plural = `${singular}s`) =>
  `${number(value)} ${value === 1 ? singular : plural}`;

/** @param {string[]} items @param {"and" | "or"} [last] */
export function listed(items, last = "and") {
  if (items.length < 2) return items.join("");
  return `${items.slice(0, -1).join(", ")} ${last} ${items.at(-1)}`;
}

/** @param {string} text */
export const capitalized = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/**
 * Returns the address of a view. Parameters without a value are left out.
 * @param {string} route @param {Record<string, string | null | undefined>} params
 */
export function link(route, params) {
  const given = Object.entries(params).filter(([, value]) => value !== null && value !== undefined);
  return `#/${route}?${new URLSearchParams(/** @type {[string, string][]} */ (given))}`;
}

/**
 * Returns `api / per-user, limit “day”`; a limit without a name of its own has a number, which says nothing.
 * @param {{rule_set: string | null, rule: string | null, band: string | null}} row
 */
export const placeOf = ({ rule_set: set, rule, band }) =>
  `${set ?? "–"} / ${rule ?? "–"}${isNamed(band) ? `, limit “${band}”` : ""}`;

/** @param {string | null} band */
export const isNamed = (band) => band !== null && !/^b\d+$/.test(band);

/**
 * Returns the address of the page of an identity that a call has listed. `handle` finds it, also where
 * `identity` is a pseudonym.
 * @param {{rule_set: string | null, rule: string | null, identity: string | null, handle?: string | null}} row
 */
export const identityLink = ({ rule_set: set, rule, identity, handle }) =>
  link("identities", { handle, identity, rule: set && rule && `${set}/${rule}` });
