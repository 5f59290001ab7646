// The parts of keys, and the values that a person gives for them.

/** @typedef {Map<string, string>} Values from parts, such as `user` or `attr:tenant`, to values */

/**
 * @typedef {object} Band
 * @property {string} id
 * @property {number} capacity
 * @property {number} [window_ms]
 * @property {number} [period_ms]
 * @property {number} [refill]
 * @property {number} [hold_ms]
 * @property {string} [calendar]
 * @property {string} [time_zone]
 */

/**
 * A rule as `GET /v1/rule_sets` lists it.
 * @typedef {object} Rule
 * @property {string} id
 * @property {string | null} name
 * @property {"enforce" | "shadow"} mode
 * @property {string[]} key
 * @property {string} algorithm
 * @property {Band[]} bands
 */

/** @typedef {{name: string, rules: Rule[]}} RuleSet */
/** @typedef {{set: string, rule: Rule}} Entry */

const ORDER = ["user", "api_key", "ip", "header:", "attr:", "method", "path"];
const PART = /^(user|api_key|ip|method|path|header:.+|attr:.+)$/;
const SAID = /(?:^|,? )(user|api_key|ip|method|path|header:[^\s=]+|attr:[^\s=]+)=/g;

/**
 * Returns what people read for a part, within a sentence.
 * @param {string} part
 */
export function nounOf(part) {
  if (part === "ip") return "IP address";
  if (part === "api_key") return "API key";
  return part.replace(/^header:/, "header ").replace(/^attr:/, "attribute ");
}

/** @param {string} part */
export function labelOf(part) {
  const noun = nounOf(part);
  return noun.charAt(0).toUpperCase() + noun.slice(1);
}

/**
 * Names of headers are the same in any case.
 * @param {string} part
 */
function normal(part) {
  return part.startsWith("header:") ? part.toLowerCase() : part;
}

/** @param {RuleSet[]} sets @returns {Entry[]} */
export function entriesOf(sets) {
  return sets.flatMap(({ name, rules }) => rules.map((rule) => ({
    set: name,
    rule: { ...rule, key: rule.key.map(normal) },
  })));
}

/**
 * Returns the parts that the rules count by or that have a value, in a fixed order.
 * @param {Entry[]} entries
 * @param {Values} values
 */
export function partsOf(entries, values) {
  const parts = new Set([...entries.flatMap(({ rule }) => rule.key), ...values.keys()]);
  const place = (/** @type {string} */ part) => ORDER.findIndex((start) => part.startsWith(start));
  return [...parts].sort((a, b) => place(a) - place(b) || (a < b ? -1 : 1));
}

/**
 * Reads values from a link: `user=ann&ip=…`, or `identity=user=ann&rule=SET/RULE`.
 * @param {URLSearchParams} params
 * @param {Entry[]} entries
 * @returns {Values}
 */
export function readValues(params, entries) {
  /** @type {Values} */
  const values = new Map();
  const identity = params.get("identity");
  if (identity) {
    const found = entries.find(({ set, rule }) => `${set}/${rule.id}` === params.get("rule"));
    for (const [part, value] of splitIdentity(identity, found?.rule.key ?? [])) values.set(part, value);
  }
  for (const [name, value] of params) {
    if (PART.test(name) && value !== "") values.set(normal(name), value);
  }
  return values;
}

/**
 * Splits an identity as it is shown, `user=ann, attr:tenant=x`. The key of its rule says where the
 * parts start, because a value may look like another part.
 * @param {string} identity
 * @param {string[]} key
 * @returns {[string, string][]}
 */
export function splitIdentity(identity, key) {
  if (key.length > 0) {
    const starts = key.map((part) => part.replace(/[^\w:-]/g, "\\$&"));
    const whole = new RegExp(`^${starts.map((part) => `${part}=(.*?)`).join(",? ")}$`, "si");
    const found = whole.exec(identity);
    if (found) return key.map((part, index) => [part, found[index + 1]]);
  }
  const starts = [...identity.matchAll(SAID)];
  return starts.map((start, index) => [
    normal(start[1]),
    identity.slice(start.index + start[0].length, starts[index + 1]?.index),
  ]);
}

/**
 * Returns the values as a link. An API key is a secret, and stays out of it.
 * @param {Values} values
 */
export function linkOf(values) {
  const params = new URLSearchParams([...values].filter(([part]) => part !== "api_key"));
  return params.size > 0 ? `#/identities?${params}` : "#/identities";
}

/**
 * Returns the parts of the rule's key that have no value.
 * @param {Rule} rule
 * @param {Values} values
 */
export function missingOf(rule, values) {
  return rule.key.filter((part) => !values.has(part));
}

/**
 * @param {Rule} rule
 * @param {Values} values
 * @returns {string[]} in the order of the key
 */
export function identityOf(rule, values) {
  return rule.key.map((part) => values.get(part) ?? "");
}

/** @param {Values} values */
export function describe(values) {
  return [...values].map(([part, value]) => `${part} = ${value}`).join(", ");
}
