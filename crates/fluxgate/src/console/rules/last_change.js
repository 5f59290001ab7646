// What the last change of a rule did: its text, and its requests before and after.

import { get, Problem } from "../api.js";
import { now } from "../clock.js";
import { ageTag, empty, table, timeTag } from "../components.js";
import { h } from "../dom.js";
import { count, duration, number, share } from "../format.js";
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
const DENIALS = ["denied", "never", "forbidden"];

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
    session.history ? await effect(set, rule, at) : h("p.hint", "Requests before and after are not recorded: history is false in the config."));
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

/** Returns the requests of a rule before and after a time. @param {string} set @param {string} rule @param {number} at */
async function effect(set, rule, at) {
  const [from, to] = [at - AROUND_MS, Math.min(now(), at + AROUND_MS)];
  const query = new URLSearchParams({ rule_set: set, rule, from: String(from), to: String(Math.round(to)) });
  /** @type {History | null} */
  const history = await get(`/v1/history?${query}`).catch((error) => {
    if (error instanceof Problem && error.status === 400) return null;
    throw error;
  });
  if (!history) return h("p.hint", "The requests of that time are no longer recorded.");
  const { step_s: step, from_ms: start, series } = history;
  // The step in which it changed belongs to neither.
  const split = Math.floor((at - start) / (1000 * step));
  /** @param {(outcome: string) => boolean} isCounted @param {number} first @param {number} [end] */
  const total = (isCounted, first, end) => series.filter(({ outcome }) => isCounted(outcome))
    .reduce((sum, { values }) => sum + values.slice(first, end).reduce((all, value) => all + value, 0), 0);
  const spans = [[0, split], [split + 1, undefined]];
  const columns = spans.map(([first, end]) => {
    const of = (/** @type {(outcome: string) => boolean} */ isCounted) => total(isCounted, /** @type {number} */ (first), end);
    return { requests: of(() => true), denied: of((outcome) => DENIALS.includes(outcome)), shadow: of((outcome) => outcome === "shadow_denied") };
  });
  /** @param {number} part @param {number} all */
  const withShare = (part, all) => (all === 0 ? number(part) : `${number(part)} (${share(part / all)})`);
  const passed = Math.max(0, to - at);
  return table(`What the last change of ${set}/${rule} did`,
    ["Of this rule", `${duration(AROUND_MS)} before`, `${duration(Math.min(AROUND_MS, passed))} after`], [
      ["Requests", ...columns.map(({ requests }) => count(requests, "request"))],
      ["Denied", ...columns.map(({ requests, denied }) => withShare(denied, requests))],
      ["Would be denied (shadow)", ...columns.map(({ requests, shadow }) => withShare(shadow, requests))],
    ], 1);
}
