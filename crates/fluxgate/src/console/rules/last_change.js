// What the last change of a rule did: its text, and its requests before and after.

import { get, Problem, REFUSED } from "../api.js";
import { now } from "../clock.js";
import { ageTag, empty, table, timeTag } from "../components.js";
import { h } from "../dom.js";
import { count, duration, number, share, sum } from "../format.js";
import { diffBlock } from "./code.js";
import { ruleText } from "./document.js";
import { pathOf } from "./store.js";

/** @import { History } from "../api.js" */
/** @import { Context } from "../main.js" */
/** `text` is that of the rule set. @typedef {{at_ms: number, who: string, what: string, text: string | null}} SetChange */
/** @typedef {{at: number, who: string | null, before: string | null, after: string | null, isOfSet: boolean}} Change */

const AROUND_MS = 600_000;
/** How far back changes are read, if the record is kept as long: 7 days. */
const MOST_MS = 7 * 86_400_000;
/** No rule has this id, so that only changes are read. */
const NO_RULE = "-";
/** Of how many rules of a change the requests are shown. */
const MOST_RULES = 5;

/** @param {Context} context @param {string} set @param {string} rule */
export async function lastChange({ session }, set, rule) {
  const change = session.writable ? await storedChange(set, rule) : await recordedChange(session.history, set);
  if (!change) {
    return empty("No change is known", session.writable ? "The history of this rule set has none of this rule."
      : session.history ? "The record of what happened has none of this rule set."
      : "What happened is not recorded: history is false in the config.");
  }
  const { at, who, before, after, isOfSet } = change;
  const diff = before !== null && after !== null ? diffBlock(before, after, `Last change of ${set}/${rule}`) : null;
  return h("div.stack-small",
    h("p", timeTag(at), " (", ageTag(at), ")", who ? [" by ", h("strong", who)] : null,
      isOfSet ? ": the rule set changed; its older texts are not kept here." : before === null ? ": the rule was added." : "."),
    diff?.element,
    session.history ? await effect(set, [rule], at) : h("p.hint", "Requests before and after are not recorded: history is false in the config."));
}

/** @param {string} set @param {string} rule @returns {Promise<Change | null>} */
async function storedChange(set, rule) {
  /** @type {{changes: SetChange[]}} */
  const { changes } = await get(`${pathOf(set)}/history`);
  const texts = changes.map(({ text }) => (text === null ? null : ruleText(text, null, rule)));
  for (const [index, { at_ms: at, who }] of changes.entries()) {
    const [after, before] = [texts[index], texts[index + 1] ?? null];
    // The oldest that is kept has nothing to compare with.
    if (after !== null && after !== before && index + 1 < changes.length) return { at, who, before, after, isOfSet: false };
  }
  const oldest = changes.at(-1);
  return oldest && texts.at(-1) !== null
    ? { at: oldest.at_ms, who: oldest.who, before: null, after: texts.at(-1) ?? null, isOfSet: false } : null;
}

/** @param {number | null} kept for how many milliseconds @param {string} set @returns {Promise<Change | null>} */
async function recordedChange(kept, set) {
  if (kept === null) return null;
  const from = Math.round(now() - Math.min(kept, MOST_MS));
  /** @type {History} */
  const { changes } = await get(`/v1/history?rule_set=${encodeURIComponent(set)}&rule=${NO_RULE}&from=${from}`);
  const last = changes.at(-1);
  return last ? { at: last.at_ms, who: last.who, before: null, after: null, isOfSet: true } : null;
}

/**
 * Returns the requests of each rule that a change of its set has changed, before and after it.
 * @param {string} set @param {string} before @param {string} after its texts @param {number} at
 */
export async function effectsOf(set, before, after, at) {
  const ids = new Set([...`${after}\n${before}`.matchAll(/^\s*- id: "?([\w-]+)/gm)].map(([, id]) => id));
  const changed = [...ids].filter((id) => ruleText(before, null, id) !== ruleText(after, null, id));
  const rest = changed.length - MOST_RULES;
  return h("div.stack-small", changed.length > 0 && await effect(set, changed.slice(0, MOST_RULES), at),
    rest > 0 && h("p.hint", `${count(rest, "more rule was", "more rules were")} changed.`));
}

/** Returns the requests of rules before and after a time. @param {string} set @param {string[]} rules @param {number} at */
async function effect(set, rules, at) {
  const [from, to] = [at - AROUND_MS, Math.min(now(), at + AROUND_MS)];
  /** @param {string} rule @returns {Promise<[string, string, string] | null>} */
  const row = async (rule) => {
    const query = new URLSearchParams({ rule_set: set, rule, from: String(from), to: String(Math.round(to)) });
    /** @type {History | null} */
    const history = await get(`/v1/history?${query}`).catch((error) => {
      if (error instanceof Problem && error.status === 400) return null;
      throw error;
    });
    if (!history) return null;
    const { step_s: step, from_ms: start, series } = history;
    // The step in which it changed belongs to neither.
    const split = Math.floor((at - start) / (1000 * step));
    /** @param {number} first @param {number} [end] */
    const words = (first, end) => {
      const total = (/** @type {(outcome: string) => boolean} */ isCounted) => series.filter(({ outcome }) => isCounted(outcome))
        .reduce((all, { values }) => all + sum(values.slice(first, end)), 0);
      const requests = total(() => true);
      const of = (/** @type {number} */ part) => `${number(part)}${part > 0 ? ` (${share(part / requests)})` : ""}`;
      const shadow = total((outcome) => outcome === "shadow_denied");
      return `${count(requests, "request")}, ${of(total((outcome) => REFUSED.includes(outcome)))} denied`
        + (shadow > 0 ? `, ${of(shadow)} would be denied (shadow)` : "");
    };
    return [rule, words(0, split), words(split + 1)];
  };
  const rows = (await Promise.all(rules.map(row))).filter((each) => each !== null);
  if (rows.length === 0) return h("p.hint", "The requests of that time are no longer recorded.");
  return table(`What the change of ${set} did`,
    ["Rule", `${duration(AROUND_MS)} before`, `${duration(Math.min(AROUND_MS, Math.max(0, to - at)))} after`], rows);
}
