// The parts of keys, and the values that a person gives for them.

/** @import { Recorded, Rule, RuleSet } from "../api.js" */
/** @typedef {Map<string, string>} Values from parts, such as `user` or `attr:tenant`, to values */
/** @typedef {{set: string, rule: Rule}} Entry */

const ORDER = ["user", "api_key", "ip", "header:", "attr:", "method", "path"];
const PART = /^(user|api_key|ip|method|path|header:.+|attr:.+)$/;

/** @param {string} part */
export function nounOf(part) {
  if (part === "ip") return "IP address";
  if (part === "api_key") return "API key";
  return part.replace(/^header:/, "header ").replace(/^attr:/, "attribute ");
}

/** Names of headers are the same in any case. @param {string} part */
const normal = (part) => part.startsWith("header:") ? part.toLowerCase() : part;

/** @param {RuleSet[]} sets @returns {Entry[]} */
export function entriesOf(sets) {
  return sets.flatMap(({ name, rules }) =>
    rules.map((rule) => ({ set: name, rule: { ...rule, key: rule.key.map(normal) } })));
}

/** @param {Entry[]} entries @param {Values} values */
export function partsOf(entries, values) {
  const parts = new Set([...entries.flatMap(({ rule }) => rule.key), ...values.keys()]);
  const place = (/** @type {string} */ part) => ORDER.findIndex((start) => part.startsWith(start));
  return [...parts].sort((a, b) => place(a) - place(b) || (a < b ? -1 : 1));
}

/**
 * Reads `user=ann&ip=…`, or `identity=user=ann&rule=SET/RULE`.
 * @param {URLSearchParams} params @param {Entry[]} entries @returns {Values}
 */
export function readValues(params, entries) {
  const identity = params.get("identity") ?? "";
  const found = entries.find(({ set, rule }) => `${set}/${rule.id}` === params.get("rule"));
  const all = [...splitIdentity(identity, found?.rule.key ?? identity.split("=", 1)), ...params];
  return new Map(all.filter(([name, value]) => PART.test(name) && value !== "")
    .map(([name, value]) => [normal(name), value]));
}

/**
 * Splits `user=ann, attr:tenant=x`. The key of its rule says where the parts start, because a
 * value may look like another part.
 * @param {string} identity @param {string[]} key @returns {[string, string][]}
 */
function splitIdentity(identity, key) {
  const starts = key.map((part) => `${part.replace(/[^\w:-]/g, "\\$&")}=(.*?)`);
  const found = new RegExp(`^${starts.join(",? ")}$`, "si").exec(identity);
  return found ? key.map((part, index) => [part, found[index + 1]]) : [];
}

/** Returns a link. An API key is a secret, and stays out of it. @param {Values} values */
export function linkOf(values) {
  const params = new URLSearchParams([...values].filter(([part]) => part !== "api_key"));
  return params.size > 0 ? `#/identities?${params}` : "#/identities";
}

/** @param {Rule} rule @param {Values} values */
export const missingOf = (rule, values) => rule.key.filter((part) => !values.has(part));

/** @param {Iterable<[string, string]>} values */
export const describe = (values) =>
  [...values].map(([part, value]) => `${part} = ${value}`).join(", ");

/** @param {Values} values @returns {Recorded} */
export function requestOf(values) {
  const named = (/** @type {string} */ start) => Object.fromEntries([...values]
    .filter(([part]) => part.startsWith(start))
    .map(([part, value]) => [part.slice(start.length), value]));
  return { ...Object.fromEntries(values), headers: named("header:"), attributes: named("attr:") };
}

/** @param {Recorded} event @param {Values} values */
export function hasValues(event, values) {
  const { headers = {}, attributes = {}, ...plain } = event;
  /** @type {Map<string, unknown>} */
  const all = new Map(Object.entries(plain));
  for (const [name, value] of Object.entries(headers)) all.set(`header:${name.toLowerCase()}`, value);
  for (const [name, value] of Object.entries(attributes)) all.set(`attr:${name}`, value);
  return [...values].every(([part, value]) => String(all.get(part) ?? "") === value);
}
