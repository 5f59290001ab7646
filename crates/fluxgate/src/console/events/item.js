// An event or a change as an item of a list.

import { ageTag, badge, timeTag } from "../components.js";
import { h } from "../dom.js";
import { capitalized, count, identityLink, link, number } from "../format.js";

/** @import { Child } from "../dom.js" */
/** @import { Kind } from "../components.js" */
/** An event of `/v1/events`; what else it has depends on its kind. @typedef {{
 *   id: string | null, at_ms: number, kind: string, text: string,
 *   rule_set?: string | null, rule?: string, identity?: string, handle?: string | null,
 *   share?: number, state?: string, action?: string,
 * }} Event */
/** An entry of `/v1/audit`. @typedef {{
 *   id: string, at_ms: number, who: string, what: string, rule_set: string | null, rule: string | null,
 *   rule_id: string | null, identity: string | null, handle: string | null, units: number | null,
 *   reset: number | null, etag_before: string | null, etag_after: string | null,
 *   outcome: string | null, reason: string | null,
 * }} Change */

/** Kinds of events, and what people call them. @type {Record<string, string>} */
export const KINDS = {
  threshold: "Limit", rules: "Rules", store: "Redis", upstream: "Upstream", login: "Wrong tokens",
};

/** @param {Event} event @returns {Kind} */
function levelOf({ kind, share, state, action }) {
  if (kind === "threshold") return (share ?? 0) >= 100 ? "bad" : "warn";
  if (kind === "rules") return action === "refused" ? "bad" : "info";
  if (kind === "login") return "bad";
  return state === "back" ? "good" : "bad";
}

/** @param {Event} event */
export const eventText = ({ kind, text }) => kind === "threshold" ? text
  : capitalized(kind === "store" ? text.replace(/^the store fails for/, "Redis does not answer").replace(/^the store/, "Redis") : text);

/** @param {Event} event */
export function eventItem(event) {
  const { at_ms: at, kind, rule_set: set, rule, identity, handle } = event;
  const links = [
    identity && set && rule && h("a", { href: identityLink({ rule_set: set, rule, identity, handle }) }, "Open the identity"),
    set && rule && h("a", { href: link("rules", { set, rule }) }, "Open the rule"),
    kind === "rules" && set && h("a", { href: link("rules", { view: "history", set }) }, "What changed"),
  ];
  return item(at, badge(KINDS[kind] ?? kind, levelOf(event)), `${eventText(event)}.`, links);
}

/** @param {Change} change */
export function changeItem(change) {
  const { at_ms: at, who, rule_set: set, rule, identity, outcome, reason } = change;
  const links = [
    identity && set && rule && h("a", { href: identityLink(change) }, "Open the identity"),
    set && rule && h("a", { href: link("rules", { set, rule }) }, "Open the rule"),
    set && change.etag_after && h("a", { href: link("rules", { view: "history", set }) }, "What changed"),
  ];
  const more = [
    outcome === "unknown" && h("span.attention", " It is not known whether it was applied: Redis did not answer."),
    h("span.event-reason", reason ? ` Reason: “${reason}”` : " No reason was given."),
  ];
  return item(at, h("strong", who), [`${changeText(change)}.`, ...more], links);
}

/** Returns what was done, without who did it: `refunded 3 units to user=ann …`. @param {Change} change */
export function changeText({ what, rule_set: set, rule, rule_id: id, identity, units, reset, etag_before: before }) {
  const place = set ? (rule ? `rule ${set} / ${rule}` : `rule set ${set}`) : `limit ${id ?? "of a call"}`;
  const counters = reset === null ? "" : ` (${count(reset, "counter")} deleted)`;
  switch (what) {
    case "refund": return `refunded ${count(units ?? 0, "unit")} to ${identity ?? "everyone"}, ${place}`;
    case "reset": return `reset ${identity ?? "all identities"}, ${place}${counters}`;
    case "put rule set": return `${before ? "changed" : "created"} ${place}`;
    case "delete rule set": return `deleted ${place}`;
    case "put rule": return `wrote ${place}`;
    case "delete rule": return `deleted ${place}`;
    case "enable rule": return `enabled ${place}`;
    case "disable rule": return `disabled ${place}`;
    default: return `${what}, ${place}`;
  }
}

/** @param {number} at @param {Child} head @param {Child | Child[]} text @param {(Child | "")[]} links */
function item(at, head, text, links) {
  const shown = links.filter(Boolean);
  return h("li.event",
    h("div.event-when", timeTag(at), " ", ageTag(at)),
    h("div.event-head", head),
    h("div.event-text", h("p", text), shown.length > 0 && h("p.row.event-links", shown)));
}

/** @param {number} all @param {number} shown */
export const shownOf = (all, shown) => `${number(shown)} of ${count(all, "entry", "entries")}, newest first.`;
