// What a customer has under each rule: who is counted, and what is left. One call reads all of it.

import { get, plainly, post } from "../api.js";
import { now } from "../clock.js";
import { count } from "../format.js";
import { filtersOf, missingOf, partsOfRequest, readIdentity } from "./parts.js";

/** @import { Recorded, Session } from "../api.js" */
/** @import { Entry, Values } from "./parts.js" */
/** @import { State } from "./bands.js" */

/**
 * An identity of a rule. `identity` are its values, if they are known; `isOwn` is false for what was
 * only seen together with the customer.
 * @typedef {Entry & {
 *   identity: string[] | null, handle: string | null, name: string, isOwn: boolean,
 *   states: State[] | null, retry: number | null, ends: number[], problem: string,
 * }} Subject
 */
/** @typedef {{
 *   rule_set: string | null, rule: string | null, band: string | null, outcome: string,
 *   identity: string | null, handle: string | null, first_ms: number, last_ms: number, count: number,
 *   method: string | null, path: string | null,
 * }} Denial a row of `/v1/denials` */
/** @typedef {{
 *   records: boolean, identities: boolean, events: Recorded[],
 *   instances: {known: number, answered: number, recording: number}, failure: string | null,
 *   decisions: {outcome: string | null, rule: string | null, handle: string | null}[],
 * }} Recent the answer of `/v1/recent` */
/** @typedef {{rule_set: string, rule: string, handle: string, identity: string | null, isOwn: boolean}} Found */

/** A call takes so many. */
const MAX_STATES = 1000;
const MAX_FOUND = 200;
const MAX_RECENT = 200;
const LATELY_MS = 60_000;

/** @param {Entry} entry @param {Partial<Subject>} fields @returns {Subject} */
const subject = (entry, fields) => ({ ...entry, identity: null, handle: null, name: "", isOwn: true,
  states: null, retry: 0, ends: [], problem: "", ...fields });

/** Returns the rules that count these values. @param {Entry[]} entries @param {Values} values */
export const subjectsOf = (entries, values) => entries
  .filter(({ rule }) => missingOf(rule, values).length === 0)
  .map((entry) => subject(entry, { identity: entry.rule.key.map((part) => values.get(part) ?? "") }));

/** @param {Entry[]} entries @param {Found} found */
export function subjectOf(entries, { rule_set: set, rule: id, handle, identity, isOwn }) {
  const entry = entries.find(({ set: name, rule }) => name === set && rule.id === id);
  return entry && subject(entry, { handle, name: identity ?? "", isOwn });
}

/** Returns what state, refund and reset find it by. @param {Subject} subject */
export const targetOf = ({ set, rule, identity, handle }) =>
  handle !== null ? { rule_set: set, rule: rule.id, handle }
    : { rule_set: set, rule: rule.id, ...(identity?.length ? { identity } : {}) };

/**
 * Reads what all of them have left, in one call. What cannot be read keeps what was known.
 * @param {Subject[]} subjects @param {AbortSignal} [signal]
 */
export async function readStates(subjects, signal) {
  const asked = subjects.slice(0, MAX_STATES);
  const { states } = await post("/v1/state/batch", { states: asked.map(targetOf) }, signal);
  asked.forEach((each, index) => {
    const { bands, identity, handle, retry_after_ms: retry = 0, slots_end_after_ms: ends = [], error } = states[index];
    each.problem = error ? plainly(error.detail) : "";
    if (error) return;
    Object.assign(each, { states: bands, retry, ends });
    if (identity) each.name = identity;
    if (handle) each.handle = handle;
  });
}

/**
 * Returns the identity that a handle refers to.
 * @param {Entry[]} entries @param {string} handle @param {AbortSignal} signal
 */
export async function openHandle(entries, handle, signal) {
  const { states: [{ rule_set, rule, identity, error }] } =
    await post("/v1/state/batch", { states: [{ handle }] }, signal);
  if (error) throw new Error(error.detail);
  const found = subjectOf(entries, { rule_set, rule, handle, identity, isOwn: true });
  if (!found) throw new Error(`The rule ${rule_set}/${rule} is not active.`);
  return { found, values: readIdentity(identity, found.rule.key) };
}

/** Whether something of it is used. @param {Subject} subject */
export const isUsed = ({ states }) => states !== null
  && states.some(({ remaining, limit }) => remaining < limit);

/** Returns the highest used share. @param {Subject} subject */
export const usedShare = ({ states }) =>
  Math.max(0, ...(states ?? []).map(({ limit, remaining }) => (limit - remaining) / Math.max(limit, 1)));

/**
 * Finds what else is used by a customer, or denied to it.
 * @param {Values} values @param {string | null} handle @param {Session} session @param {AbortSignal} signal
 */
export async function discover(values, handle, session, signal) {
  const filters = filtersOf(values);
  const by = new URLSearchParams(filters.map((text) => ["identity", text]));
  const one = filters[0] ?? handle;
  if (!session.history || !one) return { found: [], denied: [], problems: [] };
  const answers = await Promise.allSettled([
    filters.length > 0 ? get(`/v1/usage?n=${MAX_FOUND}&${by}`, signal) : { usage: [] },
    get(`/v1/denials?n=${MAX_FOUND}&${new URLSearchParams({ identity: one })}`, signal),
  ]);
  signal.throwIfAborted();
  const rows = answers.flatMap((each) => each.status === "fulfilled" ? each.value.usage ?? each.value.denials : []);
  const lately = (/** @type {Denial} */ { outcome, last_ms: last }) =>
    (outcome === "denied" || outcome === "never") && last > now() - LATELY_MS;
  return {
    found: found(rows, true),
    /** The rules that have denied it lately. @type {string[]} */
    denied: [...new Set(rows.filter(lately).map(({ rule_set: set, rule }) => `${set}/${rule}`))],
    problems: answers.flatMap((each) => (each.status === "rejected" ? [each.reason] : [])),
  };
}

/**
 * Reads the last requests of a customer on all instances, which takes up to seconds, and finds what they
 * were counted by.
 * @param {Values} values @param {string | null} handle @param {AbortSignal} signal
 */
export async function readRecent(values, handle, signal) {
  const filters = filtersOf(values);
  const by = filters.length > 0 ? filters.map((text) => ["identity", text]) : [["handle", handle ?? ""]];
  /** @type {Recent} */
  const recent = await get(`/v1/recent?n=${MAX_RECENT}&${new URLSearchParams(by)}`, signal);
  const rows = recent.decisions.map(({ rule, handle: of }, index) =>
    ({ rule_set: recent.events[index].rule_set, rule, handle: of, identity: null }));
  // A request is also counted by other parts of it, such as its address.
  return { recent, found: found(rows, false) };
}

/** @param {any[]} rows @param {boolean} isOwn @returns {Found[]} */
const found = (rows, isOwn) => rows.filter(({ rule, handle }) => rule && handle)
  .map(({ rule_set, rule, handle, identity }) => ({ rule_set, rule, handle, identity, isOwn }));

/** Returns which instances do not tell their requests. @param {Recent} recent */
export function missingWords({ instances: { known, answered, recording }, failure }) {
  if (failure) return ` Only those of this instance: ${plainly(failure)}.`;
  const silent = known - answered;
  const deaf = answered - recording;
  return (silent > 0 ? ` ${count(silent, "instance")} did not answer.` : "")
    + (deaf > 0 ? ` ${count(deaf, "instance does", "instances do")} not record requests.` : "");
}

/**
 * Returns users, keys, addresses and other values that came in the requests of a customer, those with
 * the most requests first.
 * @param {Recent | null} recent @param {Entry[]} entries @param {Values} own
 */
export function seenTogether(recent, entries, own) {
  const counted = new Set(["user", "api_key", "ip", ...entries.flatMap(({ rule }) => rule.key)]);
  /** @type {Map<string, {part: string, value: string, count: number}>} */
  const all = new Map();
  for (const event of recent?.events ?? []) {
    for (const [part, value] of partsOfRequest(event)) {
      // All of them have the values that they were found by, in the clear or not.
      if (!counted.has(part) || own.has(part)) continue;
      const key = `${part}=${value}`;
      const known = all.get(key) ?? { part, value, count: 0 };
      known.count++;
      all.set(key, known);
    }
  }
  return [...all.values()].sort((a, b) => b.count - a.count);
}

