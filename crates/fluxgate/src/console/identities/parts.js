// The parts of keys, and the values that a person or a link gives for them. Pure.

/** @import { Recorded, Rule, RuleSet } from "../api.js" */
/** @typedef {Map<string, string>} Values from parts, such as `user` or `attr:tenant`, to values */
/** @typedef {{set: string, rule: Rule}} Entry */

const ORDER = ["user", "api_key", "ip", "header:", "attr:", "method", "path"];
const PART = /^(user|api_key|ip|method|path|header:.+|attr:.+)$/;
/** Where the next part of a text may begin: `user=ann attr:tenant=x`. */
const NEXT = /,? (?=(?:user|api_key|ip|method|path|header:[^=\s]+|attr:[^=\s]+)=)/;
const ADDRESS = /^(\d{1,3}(\.\d{1,3}){3}|[0-9a-f]*:[0-9a-f:.]*:[0-9a-f:.]*)$/i;
/** What responses show in place of a value: a pseudonym, or the ends of an API key. */
const PSEUDONYM = /^~[0-9a-f]{12}$/;
const SHORTENED = /^(.{4})?…(.{2})?$/u;

/** @param {string} part */
export function nounOf(part) {
  if (part === "ip") return "IP address";
  if (part === "api_key") return "API key";
  return part.replace(/^header:/, "header ").replace(/^attr:/, "attribute ");
}

/** Whether a text stands for a value, and finds nothing if it is taken for one. @param {string} value */
export const isHidden = (value) => PSEUDONYM.test(value) || SHORTENED.test(value);

/** Names of headers are the same in any case. @param {string} part */
const normal = (part) => part.startsWith("header:") ? part.toLowerCase() : part;

/** Returns the rules that limit something. @param {RuleSet[]} sets @returns {Entry[]} */
export const entriesOf = (sets) => sets.flatMap(({ name, rules }) =>
  rules.filter(({ action }) => !action)
    .map((rule) => ({ set: name, rule: { ...rule, key: rule.key.map(normal) } })));

/** Returns the parts that rules count by, in order. @param {Entry[]} entries */
export function partsOf(entries) {
  const place = (/** @type {string} */ part) => ORDER.findIndex((start) => part.startsWith(start));
  return [...new Set(entries.flatMap(({ rule }) => rule.key))]
    .sort((a, b) => place(a) - place(b) || (a < b ? -1 : 1));
}

/**
 * Reads what is shown of an identity: `user=ann attr:tenant=x`. The key of its rule says where the
 * parts start, because a value may look like another part.
 * @param {string} text @param {string[]} [key] @returns {Values}
 */
export function readIdentity(text, key = []) {
  const starts = key.map((part) => `${part.replace(/[^\w:-]/g, "\\$&")}=(.*?)`);
  const found = key.length > 0 && new RegExp(`^${starts.join(",? ")}$`, "si").exec(text);
  if (found) return new Map(key.map((part, index) => [part, found[index + 1]]));
  return new Map(text.split(NEXT).map((each) => each.split(/=(.*)/s))
    .filter(([name, value]) => PART.test(name) && value)
    .map(([name, value]) => [normal(name), value]));
}

/**
 * Reads `user=ann&ip=…`, or `identity=user=ann&rule=SET/RULE`.
 * @param {URLSearchParams} params @param {Entry[]} entries @returns {Values}
 */
export function readLink(params, entries) {
  const found = entries.find(({ set, rule }) => `${set}/${rule.id}` === params.get("rule"));
  const values = readIdentity(params.get("identity") ?? "", found?.rule.key);
  for (const [name, value] of params) {
    if (PART.test(name) && value !== "") values.set(normal(name), value);
  }
  return values;
}

/**
 * Reads what is typed into the search: parts with values, or one value, which may be that of several
 * parts. The likeliest comes first.
 * @param {string} text @param {string[]} parts that rules count by @returns {Values[]}
 */
export function readSearch(text, parts) {
  const values = readIdentity(text);
  if (values.size > 0) return [values];
  const isAddress = ADDRESS.test(text);
  const possible = parts.filter((part) => part !== "method" && (part === "ip" ? isAddress : true)
    && (part === "path") === text.startsWith("/"));
  const first = (/** @type {string} */ part) => Number(isAddress && part !== "ip");
  return (possible.length > 0 ? possible : ["user"]).sort((a, b) => first(a) - first(b))
    .map((part) => new Map([[part, text]]));
}

/** Returns a link. An API key is a secret, and stays out of it. @param {Values} values */
export function linkOf(values) {
  const shown = [...values].filter(([part, value]) => part !== "api_key" || isHidden(value));
  const params = new URLSearchParams(shown);
  return params.size > 0 ? `#/identities?${params}` : "#/identities";
}

/** Returns the values that are known in full. @param {Values} values */
export const clearOf = (values) => new Map([...values].filter(([, value]) => !isHidden(value)));

/** @param {Rule} rule @param {Values} values */
export const missingOf = (rule, values) => rule.key.filter((part) => !values.has(part));

/** Returns texts by which calls find identities; the ends of an API key find nothing. @param {Values} values */
export const filtersOf = (values) => [...values].filter(([, value]) => !SHORTENED.test(value))
  .map(([part, value]) => `${part}=${value}`);

/** Returns `user = ann, attr:tenant = x`. @param {Iterable<[string, string]>} values */
export const describe = (values) =>
  [...values].map(([part, value]) => `${part} = ${value}`).join(", ");

/** @param {Values} values @returns {Recorded} */
export function requestOf(values) {
  const clear = clearOf(values);
  const named = (/** @type {string} */ start) => Object.fromEntries([...clear]
    .filter(([part]) => part.startsWith(start))
    .map(([part, value]) => [part.slice(start.length), value]));
  return { ...Object.fromEntries(clear), headers: named("header:"), attributes: named("attr:") };
}

/** Returns the parts of a recorded request that rules may count by. @param {Recorded} event @returns {Values} */
export function partsOfRequest({ headers = {}, attributes = {}, ...plain }) {
  /** @type {[string, unknown][]} */
  const all = [...["user", "api_key", "ip"].map((part) => /** @type {[string, unknown]} */ ([part, plain[part]])),
    ...Object.entries(headers).map(([name, value]) => /** @type {[string, unknown]} */ ([`header:${name.toLowerCase()}`, value])),
    ...Object.entries(attributes).map(([name, value]) => /** @type {[string, unknown]} */ ([`attr:${name}`, value]))];
  return new Map(all.filter(([, value]) => value !== undefined && value !== null && value !== "")
    .map(([part, value]) => [part, String(value)]));
}
