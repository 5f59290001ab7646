// A rule of `GET /v1/rule_sets` in words. Pure: no elements, no calls.

/**
 * @typedef {{id: string, capacity: number, window_ms?: number, refill?: number, period_ms?: number,
 *   hold_ms?: number, calendar?: string, time_zone?: string}} Band
 * @typedef {string | number | boolean} Scalar
 * @typedef {Scalar | Scalar[] | {not: Scalar | Scalar[]} | {present: boolean}} Value
 * @typedef {{path?: string | string[] | null, not_path?: string | string[] | null,
 *   methods?: string | string[] | null, headers?: Record<string, Value> | null,
 *   attributes?: Record<string, Value> | null, ip?: string | string[] | null,
 *   not_ip?: string | string[] | null}} Match
 * @typedef {{id: string, name: string | null, mode: string, priority: number, key: string[],
 *   group: string | null, rollout: string | null, algorithm: string, bands: Band[],
 *   lease: {share: string, for_ms: number} | null, on_exceed: string, max_wait_ms?: number | null,
 *   match?: Match | null}} Rule
 */

const UNITS = /** @type {const} */ ([
  [86_400_000, "day"],
  [3_600_000, "hour"],
  [60_000, "minute"],
  [1000, "second"],
]);

/** @type {Record<string, string>} */
const PARTS = {
  ip: "address",
  user: "user",
  api_key: "API key",
  method: "method",
  path: "path",
};

/**
 * Returns what a rule limits: `10 per second and 100 per minute for each user on /api/**`.
 * @param {Rule} rule
 */
export function sentence(rule) {
  const limits = listed(rule.bands.map(limitWords), "and");
  return [limits, keyWords(rule.key), ...matchWords(rule.match)].join(" ");
}

/**
 * Returns what else there is to know about a rule, as short sentences.
 * @param {Rule} rule
 * @returns {string[]}
 */
export function details(rule) {
  const all = [];
  if (rule.mode === "shadow") all.push("Shadow: counts and reports, but never denies.");
  if (rule.rollout) all.push(`Enforced for ${rule.rollout} of the identities, shadow for the others.`);
  if (rule.group) all.push(`Group ${rule.group}: only the first rule that matches applies.`);
  if (rule.on_exceed === "wait") all.push(waitWords(rule.max_wait_ms));
  if (rule.lease) {
    const time = duration(rule.lease.for_ms);
    all.push(`Lease: instances take up to ${rule.lease.share} in advance, for ${time} at most.`);
  }
  const hold = rule.bands.find((band) => band.hold_ms)?.hold_ms;
  if (hold) all.push(`A slot that is not renewed ends after ${duration(hold)}.`);
  if (rule.priority !== 100) all.push(`Priority ${rule.priority}.`);
  return all;
}

/**
 * Returns the name of an algorithm: `token bucket`.
 * @param {string | null} algorithm
 */
export function algorithmWords(algorithm) {
  return algorithm === "gcra" ? "GCRA" : (algorithm ?? "").replaceAll("_", " ");
}

/** @param {Band} band */
function limitWords({ capacity, window_ms, refill, period_ms, hold_ms, calendar, time_zone }) {
  if (hold_ms) return `at most ${count(capacity)} at the same time`;
  if (calendar) {
    const zone = time_zone && time_zone !== "UTC" ? ` in ${time_zone}` : "";
    return `${count(capacity)} per calendar ${calendar}${zone}`;
  }
  if (refill && period_ms) {
    const rate = `${count(refill)} ${per(period_ms)}`;
    return capacity === refill ? rate : `${rate} with bursts of up to ${count(capacity)}`;
  }
  return `${count(capacity)} ${per(window_ms ?? 0)}`;
}

/** @param {string[]} key */
function keyWords(key) {
  if (key.length === 0) return "for all requests together";
  const parts = key.map(partWords);
  if (parts.length === 1) return `for each ${parts[0]}`;
  return `for each combination of ${listed(parts, "and")}`;
}

/** @param {string} part */
function partWords(part) {
  const [kind, name] = split(part, ":");
  if (kind === "header") return `value of header ${name}`;
  if (kind === "attr") return `value of attribute ${name}`;
  return PARTS[part] ?? part;
}

/**
 * @param {Match | null | undefined} match
 * @returns {string[]}
 */
function matchWords(match) {
  if (!match) return [];
  const words = [];
  const methods = listed(many(match.methods), "or");
  const paths = listed(many(match.path), "or");
  if (paths) words.push(`on ${methods ? `${methods} ` : ""}${paths}`);
  else if (methods) words.push(`on ${methods} requests`);
  if (match.not_path) words.push(`except on ${listed(many(match.not_path), "and")}`);
  if (match.ip) words.push(`from ${listed(many(match.ip), "or")}`);
  if (match.not_ip) words.push(`not from ${listed(many(match.not_ip), "or")}`);
  const values = [
    ...Object.entries(match.headers ?? {}).map(([name, value]) => valueWords("header", name, value)),
    ...Object.entries(match.attributes ?? {}).map(([name, value]) =>
      valueWords("attribute", name, value)),
  ];
  if (values.length > 0) words.push(listed(values, "and"));
  return words;
}

/**
 * @param {string} kind
 * @param {string} name
 * @param {Value} value
 */
function valueWords(kind, name, value) {
  if (typeof value === "object" && value !== null && !Array.isArray(value)) {
    if ("present" in value) return `${value.present ? "with any" : "without"} ${kind} ${name}`;
    return `with ${kind} ${name} other than ${listed(many(value.not).map(quoted), "or")}`;
  }
  return `with ${kind} ${name} ${listed(many(value).map(quoted), "or")}`;
}

/** @param {number | null | undefined} wait */
function waitWords(wait) {
  const limit = wait ? `up to ${duration(wait)}` : "a while";
  return `Requests over the limit wait for ${limit} before they are denied.`;
}

/**
 * Returns a duration in words: `10 minutes`, `1 second`.
 * @param {number} ms
 */
export function duration(ms) {
  const [size, unit] = unitOf(ms);
  return `${count(size)} ${unit}${size === 1 ? "" : "s"}`;
}

/** @param {number} ms */
function per(ms) {
  const [size, unit] = unitOf(ms);
  return size === 1 ? `per ${unit}` : `per ${count(size)} ${unit}s`;
}

/**
 * @param {number} ms
 * @returns {[number, string]}
 */
function unitOf(ms) {
  const found = UNITS.find(([size]) => ms >= size && ms % size === 0);
  return found ? [ms / found[0], found[1]] : [ms, "millisecond"];
}

/**
 * @param {string[]} items
 * @param {"and" | "or"} last
 */
function listed(items, last) {
  if (items.length < 2) return items.join("");
  return `${items.slice(0, -1).join(", ")} ${last} ${items.at(-1)}`;
}

/**
 * @template T
 * @param {T | T[] | null | undefined} value
 * @returns {T[]}
 */
function many(value) {
  if (value === null || value === undefined) return [];
  return Array.isArray(value) ? value : [value];
}

/** @param {Scalar} value */
function quoted(value) {
  return typeof value === "string" ? `“${value}”` : String(value);
}

/** @param {number} value */
function count(value) {
  return value.toLocaleString("en-US");
}

/**
 * @param {string} text
 * @param {string} at
 */
function split(text, at) {
  const index = text.indexOf(at);
  return index < 0 ? [text, ""] : [text.slice(0, index), text.slice(index + 1)];
}
