// A rule of `GET /v1/rule_sets` in words. Pure: no elements, no calls.

import { count, listed, number } from "../format.js";

/** @import { Band, Rule } from "../api.js" */

const UNITS = /** @type {const} */ ([
  [86_400_000, "day"], [3_600_000, "hour"], [60_000, "minute"], [1000, "second"],
]);
/** @type {Record<string, string>} */
const PARTS = { ip: "address", api_key: "API key" };

/** Returns `10 per second and 100 per minute for each user on /api/**`. @param {Rule} rule */
export const sentence = ({ bands, key, match, action, status }) =>
  (action ? [action === "deny" ? `denies with status ${status}` : "exempts from every limit",
    "requests", ...matchWords(match ?? {})]
    : [listed(bands.map(limitWords)), keyWords(key), ...matchWords(match ?? {})]).join(" ");

/** @param {Rule} rule @returns {string[]} */
export function details({ mode, rollout, group, on_exceed, max_wait_ms: wait, lease, bands, priority }) {
  const hold = bands.find((band) => band.hold_ms)?.hold_ms;
  return [
    mode === "shadow" ? "Shadow: counts and reports, but never denies." : "",
    rollout ? `Enforced for ${rollout} of the identities, shadow for the others.` : "",
    group ? `Group ${group}: only the first rule that matches applies.` : "",
    on_exceed === "wait" ? `Requests over the limit wait for ${wait ? `up to ${duration(wait)}` : "a while"} `
      + "before they are denied." : "",
    lease ? `Lease: instances take up to ${lease.share} in advance, for ${duration(lease.for_ms)} `
      + "at most." : "",
    hold ? `A slot expires after ${duration(hold)} unless renewed.` : "",
    priority === 100 ? "" : `Priority ${priority}.`,
  ].filter(Boolean);
}

/** @param {string} algorithm */
export const algorithmWords = (algorithm) =>
  algorithm === "gcra" ? "GCRA" : algorithm.replaceAll("_", " ");

/** @param {Band} band */
export function limitWords({ capacity, window_ms, refill, period_ms, hold_ms, calendar, time_zone }) {
  if (hold_ms) return `at most ${number(capacity)} at the same time`;
  if (calendar) {
    const zone = time_zone && time_zone !== "UTC" ? ` in ${time_zone}` : "";
    return `${number(capacity)} per calendar ${calendar}${zone}`;
  }
  const burst = refill && refill !== capacity ? ` with bursts of up to ${number(capacity)}` : "";
  const [size, unit] = unitOf(period_ms ?? window_ms ?? 0);
  return `${number(refill ?? capacity)} per ${size === 1 ? unit : count(size, unit)}${burst}`;
}

/** @param {string[]} key */
function keyWords(key) {
  if (key.length === 0) return "for all requests together";
  const parts = key.map((part) => PARTS[part]
    ?? part.replace(/^header:/, "value of header ").replace(/^attr:/, "value of attribute "));
  return `for each ${parts.length > 1 ? "combination of " : ""}${listed(parts)}`;
}

/** @param {Record<string, any>} match */
function matchWords({ methods, path, not_path, ip, not_ip, user, api_key, headers, attributes }) {
  const words = [];
  const on = [listed(many(methods), "or"), listed(many(path), "or")].filter(Boolean).join(" ");
  if (on) words.push(`on ${on}${path ? "" : " requests"}`);
  if (not_path) words.push(`except on ${listed(many(not_path))}`);
  if (ip) words.push(`from ${addresses(ip)}`);
  if (not_ip) words.push(`not from ${addresses(not_ip)}`);
  const values = [
    ...(user ? [valueWords("user", user)] : []),
    ...(api_key ? [valueWords("API key", api_key)] : []),
    ...Object.entries(headers ?? {}).map(([name, value]) => valueWords(`header ${name}`, value)),
    ...Object.entries(attributes ?? {}).map(([name, value]) => valueWords(`attribute ${name}`, value)),
  ];
  return values.length > 0 ? [...words, listed(values)] : words;
}

/** @param {any} ip networks, or `in` a list */
const addresses = (ip) => (ip.in ? `the list ${ip.in}` : listed(many(ip), "or"));

/** @param {string} name @param {any} value one or more, or `not`, `present`, `in` or `not_in` */
function valueWords(name, value) {
  if (value.in ?? value.not_in) {
    return `with ${name} ${value.in ? "" : "not "}in the list ${value.in ?? value.not_in}`;
  }
  if (value.present !== undefined) return `${value.present ? "with any" : "without"} ${name}`;
  const values = many(value.not ?? value).map((each) =>
    (typeof each === "string" ? `“${each}”` : String(each)));
  return `with ${name} ${value.not === undefined ? "" : "other than "}${listed(values, "or")}`;
}

/** Returns a duration in words: `10 minutes`, `1 second`. @param {number} milliseconds */
export const duration = (milliseconds) => count(...unitOf(milliseconds));

/** @param {number} milliseconds @returns {[number, string]} */
function unitOf(milliseconds) {
  const found = UNITS.find(([size]) => milliseconds >= size && milliseconds % size === 0);
  return found ? [milliseconds / found[0], found[1]] : [milliseconds, "millisecond"];
}

/** @param {any} value */
const many = (value) => /** @type {any[]} */ ([value ?? []].flat());
