// A rule of `GET /v1/rule_sets` in words. Pure: no elements, no calls.

import { count, listed, number } from "../format.js";

/** @import { Band, Rule } from "../api.js" */

const UNITS = /** @type {const} */ ([
  [86_400_000, "day"], [3_600_000, "hour"], [60_000, "minute"], [1000, "second"],
]);
/** @type {Record<string, string>} */
const PARTS = { ip: "address", api_key: "API key" };

/** What a rule counts. @type {Record<string, string>} */
const TOKENS = {
  "llm:total_tokens": "tokens", "llm:prompt_tokens": "prompt tokens", "llm:completion_tokens": "completion tokens",
};
/** What a field has if it is not written. @type {Record<string, string>} */
const DEFAULTS = {
  enabled: "true", mode: "enforce", action: "limit", status: "403", priority: "100", rollout: "100%",
  on_missing_key: "ip", algorithm: "token_bucket", shape: "false", cost: "1", on_exceed: "reject",
  max_wait: "5s", charge: "when_allowed", reset_on_change: "false", on_error: "local", hold: "1m",
};

/** Returns `10 requests per second and 100 per minute for each user on /api/**`. @param {Rule} rule */
export const sentence = (rule) => {
  const { bands, key, match, action, status } = rule;
  return (action ? [action === "deny" ? `denies with status ${status}` : "exempts from every limit",
    "requests", ...matchWords(match ?? {})]
    : [listed(bands.map((band, index) => limitWords(band, index === 0 ? unitsOf(rule) : ""))),
      keyWords(key), ...matchWords(match ?? {})]).join(" ");
};

/** Returns what a rule counts: requests, tokens or units. @param {Pick<Rule, "cost">} rule */
export const unitsOf = ({ cost }) =>
  TOKENS[String(cost)] ?? (cost === undefined || cost === 1 ? "requests" : "units");

/**
 * Returns what else a rule does, one sentence each.
 * @param {Rule} rule @param {(milliseconds: number) => string} [timeWords] @returns {string[]}
 */
export function details(rule, timeWords = (at) => new Date(at).toISOString()) {
  const { mode, rollout, group, on_exceed, max_wait_ms: wait, lease, bands, priority, charge, notify, shape } = rule;
  const hold = bands.find((band) => band.hold_ms)?.hold_ms;
  return [
    mode === "shadow" ? "Shadow: counts and reports, but never denies." : "",
    rollout ? `Enforced for ${rollout} of the identities, shadow for the others.` : "",
    group ? `Group ${group}: only the first rule of it that matches applies.` : "",
    costWords(rule),
    charge === "always" ? "Denied requests are charged as well." : "",
    on_exceed === "wait" ? `Requests over the limit wait for ${wait ? `up to ${duration(wait)}` : "a while"} `
      + "before they are denied." : "",
    shape ? "Requests are spread out evenly: each waits for those before it." : "",
    lease ? `Lease: instances take up to ${lease.share} of the limit in advance, for ${duration(lease.for_ms)} `
      + "at most." : "",
    hold ? `A slot expires after ${duration(hold)} unless renewed.` : "",
    overrideWords(rule, timeWords),
    notify?.length ? `Sends an event when an identity has used ${listed(notify, "or")} of a limit.` : "",
    missingWords(rule),
    priority === 100 ? "" : `Priority ${priority}: rules with a lower number are evaluated first.`,
  ].filter(Boolean);
}

/** @param {Rule} rule */
function costWords({ cost }) {
  if (cost === undefined || cost === 1 || TOKENS[String(cost)]) return "";
  if (typeof cost === "number") return `Each request takes ${number(cost)} units.`;
  const [kind, name] = cost.split(/:(.*)/s);
  return `A request takes as many units as its ${kind === "attr" ? "attribute" : kind} ${name} says, or 1.`;
}

/** @param {Rule} rule @param {(milliseconds: number) => string} timeWords */
function overrideWords({ overrides }, timeWords) {
  if (!overrides) return "";
  const ends = overrides.until.map((until) => Date.parse(until)).filter((at) => !Number.isNaN(at));
  const until = ends.length === 0 ? "" : `, ${ends.length === overrides.count ? "" : `${number(ends.length)} of them `}`
    + `until ${listed(ends.slice(0, 2).map(timeWords))}${ends.length > 2 ? ` and ${number(ends.length - 2)} more times` : ""}`;
  return `${count(overrides.count, "identity has a limit of its own", "identities have limits of their own")}${until}.`;
}

/** @param {Rule} rule */
function missingWords({ on_missing_key: missing }) {
  /** @type {Record<string, string>} */
  const words = {
    anonymous: "Requests that lack it count as one anonymous identity.",
    skip: "Requests that lack it are not counted.", deny: "Requests that lack it are denied.",
  };
  return words[missing ?? ""] ?? "";
}

/** @typedef {{field: string, before: string | null, after: string | null}} FieldChange */
/**
 * Returns a change in words: `Rule per-user: mode from shadow to enforce: this rule denies from now on.`
 * @param {{rule_set: string, rule: string | null, change: string, fields: FieldChange[]}} change
 */
export function changeWords({ rule_set: set, rule, change, fields }) {
  const what = rule === null ? `Rule set ${set}` : `Rule ${rule}`;
  if (fields.length === 0) return `${what} ${change}.`;
  const values = fields.map((each) => {
    const { field } = each;
    const [before, after] = [each.before, each.after].map((value) => value ?? DEFAULTS[field] ?? "nothing");
    const effect = effectWords(field, before, after);
    return `${field === "bands" ? "limits" : field} from ${before} to ${after}${effect && `: ${effect}`}`;
  });
  return `${what}: ${values.join("; ")}.`;
}

/** Returns what a change of a field means. @param {string} field @param {string} before @param {string} after */
function effectWords(field, before, after) {
  if (field === "mode") {
    return after === "enforce" ? "this rule denies from now on" : "this rule no longer denies, it only reports";
  }
  if (field === "enabled") return after === "true" ? "this rule applies from now on" : "this rule is ignored from now on";
  if (field !== "rollout") return "";
  return parseFloat(after) > parseFloat(before) ? "more identities are limited from now on"
    : "fewer identities are limited from now on";
}

/** @param {string} algorithm */
export const algorithmWords = (algorithm) =>
  algorithm === "gcra" ? "GCRA" : algorithm.replaceAll("_", " ");

/** @param {Band} band @param {string} [units] what is counted, if it is said */
export function limitWords({ capacity, window_ms, refill, period_ms, hold_ms, calendar, time_zone }, units = "") {
  const of = (/** @type {number} */ size) =>
    `${number(size)}${units && ` ${size === 1 ? units.replace(/s$/, "") : units}`}`;
  if (hold_ms) return `at most ${of(capacity)} at the same time`;
  if (calendar) {
    const zone = time_zone && time_zone !== "UTC" ? ` in ${time_zone}` : "";
    return `${of(capacity)} per calendar ${calendar}${zone}`;
  }
  const burst = refill && refill !== capacity ? ` with bursts of up to ${number(capacity)}` : "";
  const [size, unit] = unitOf(period_ms ?? window_ms ?? 0);
  return `${of(refill ?? capacity)} per ${size === 1 ? unit : count(size, unit)}${burst}`;
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
