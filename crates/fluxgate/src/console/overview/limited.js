// Who is limited now, and why; and who sends most.

import { get, plainly } from "../api.js";
import { now } from "../clock.js";
import { poll, segmented } from "../components.js";
import { h, setText } from "../dom.js";
import { count, identityLink, link, number } from "../format.js";
import { watch } from "../polling.js";
import { limitWords } from "../rules/words.js";
import { rowList } from "./row_list.js";

/** @import { RuleSet, Top } from "../api.js" */
/** @import { Context } from "../main.js" */
/** A row of `/v1/denials`. @typedef {{
 *   rule_set: string | null, rule: string | null, band: string | null, outcome: string,
 *   identity: string | null, handle: string | null, last_ms: number, count: number,
 *   method: string | null, path: string | null,
 * }} Denial */

const SHOWN = 8;
const EVERY_MS = 5000;
const RULES_EVERY_MS = 60_000;
const EVERYONE = "(everyone)";

/** @param {Context} context */
export function limitedCard({ signal, session, live }) {
  /** @type {"denied" | "requests"} */
  let by = "denied";
  let sets = /** @type {RuleSet[]} */ ([]);
  const list = rowList(SHOWN);
  const title = h("h2", "Who is limited now");
  const text = h("p.hint", "Loading…");
  const rules = watch(signal, "/v1/rule_sets", RULES_EVERY_MS, (answer) => (sets = answer.rule_sets));
  live.onRules(signal, () => rules.run());

  const { problem, run } = poll(signal, EVERY_MS, async (current) => {
    const asked = by;
    /** @type {{entries: Top[], total: number, scope?: string, failure?: string | null}} */
    const top = await get(`/v1/top?by=${asked}&window=60s&n=${SHOWN}`, current);
    const isDenied = asked === "denied";
    const denials = isDenied && session.history && top.entries.length > 0 ? await recent(current) : [];
    if (asked !== by) return;
    const most = Math.max(1, ...top.entries.map((entry) => entry.count));
    list.show(top.entries.map((entry) => rowOf(entry, most, isDenied ? whyOf(entry, denials, sets) : "", isDenied)));
    const what = isDenied ? "denial" : "request";
    const ranges = top.entries.some(({ error }) => error > 0) ? " The true count is within the range." : "";
    const scope = top.failure ? ` Only this instance is counted: ${plainly(top.failure)}.` : "";
    setText(text, top.entries.length === 0
      ? `No identity ${isDenied ? "was denied" : "sent a request that a rule counts"} in the last minute.${scope}`
      : `${count(top.total, what)} in the last minute, counted by rule.${ranges}${scope}`);
  });
  const head = h("div.card-head", title, segmented("Count",
    /** @type {const} */ ([["denied", "Denied"], ["requests", "Requests"]]), by, (value) => {
      by = value;
      setText(title, value === "denied" ? "Who is limited now" : "Who sends most");
      run();
    }));
  return h("section.card", { "aria-label": "Who is limited now" }, head, problem, list.element, text);
}

/** @param {AbortSignal} signal @returns {Promise<Denial[]>} */
async function recent(signal) {
  const { denials } = await get(`/v1/denials?from=${Math.ceil(now() - 120_000)}&n=200`, signal);
  return denials;
}

/** @param {Top} entry @param {number} most @param {string} why @param {boolean} isDenied */
function rowOf(entry, most, why, isDenied) {
  const { rule_set: set, rule, rule_id: id, identity, handle, count: highest, error } = entry;
  const unit = isDenied ? "denial" : "request";
  const range = error > 0 ? `${number(Math.max(0, highest - error))}–${count(highest, unit)}` : count(highest, unit);
  const place = set ? `${set} / ${rule}` : `${id ?? "a limit that comes with the call"}`;
  const isEveryone = identity === EVERYONE;
  return {
    key: JSON.stringify([set, rule, id, identity, handle]),
    name: isEveryone ? "Everyone together" : identity,
    href: isEveryone && set && rule ? link("identities", { rule: `${set}/${rule}` }) : identityLink(entry),
    value: range,
    rule: place,
    ruleHref: set && rule ? link("rules", { set, rule }) : undefined,
    detail: why,
    part: highest / most,
  };
}

/** Returns why an identity is denied, in words. @param {Top} entry @param {Denial[]} denials @param {RuleSet[]} sets */
function whyOf(entry, denials, sets) {
  const { rule_set: set, rule, handle, identity } = entry;
  const ofRule = denials.filter((row) => row.rule_set === set && row.rule === rule);
  const own = ofRule.find((row) => handle !== null && row.handle === handle)
    ?? ofRule.find((row) => row.identity === identity) ?? (ofRule.length === 1 ? ofRule[0] : undefined);
  if (!own) return "";
  const request = own.path ? ` Last: ${own.method ?? ""} ${own.path}`.trimEnd() : "";
  return `: ${reasonOf(own, sets)}.${request}`;
}

/** @param {Denial} denial @param {RuleSet[]} sets */
export function reasonOf({ outcome, band, rule_set: set, rule }, sets) {
  const known = sets.find(({ name }) => name === set)?.rules.find(({ id }) => id === rule);
  const limit = known?.bands.find(({ id }) => id === band);
  if (outcome === "forbidden") return "the rule forbids these requests";
  if (outcome === "never") return band ? "a request costs more than the whole limit" : "the request has no value for the key";
  if (outcome === "failed_closed") return "Redis did not answer, and on_error is deny";
  const used = limit ? `${limitWords(limit)} are used up` : "the limit is used up";
  if (outcome === "shadow_denied") return `${used}, but the rule is in shadow mode: it only reports`;
  return outcome === "fallback" ? `${used}, decided without Redis` : used;
}
