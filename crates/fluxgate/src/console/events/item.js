// An event or a change as an item of a list.

import { ageTag, badge, timeTag } from "../components.js";
import { h, replace, setText } from "../dom.js";
import { capitalized, count, identityLink, link, number, time } from "../format.js";

/** @import { Child } from "../dom.js" */
/** @import { Kind } from "../components.js" */
/** An event of `/v1/events`; what else it has depends on its kind. @typedef {{
 *   id: string | null, at_ms: number, kind: string, text: string,
 *   rule_set?: string | null, rule?: string, identity?: string, handle?: string | null,
 *   band?: string, share?: number, state?: string, action?: string,
 *   times?: number, since_ms?: number,
 * }} Event `times` and `since_ms`: of how many events it is the last, and when the first was */
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
export const eventText = ({ kind, text }) => kind === "threshold" ? text.replace(/ \(band (\S+)\)/, ", limit “$1”")
  : capitalized(kind === "store" ? text.replace(/^the store fails for/, "Redis does not answer").replace(/^the store/, "Redis") : text);

/**
 * Returns what events have in common that say that one identity has reached the same share of a limit
 * again; `null` for others. @param {Event} event
 */
export const groupOf = ({ kind, rule_set: set, rule, band, identity, handle, share }) =>
  (kind === "threshold" ? JSON.stringify([set, rule, band, handle ?? identity, share]) : null);

/** Returns the last event of each group, and the others. @param {Event[]} events newest first */
export function grouped(events) {
  /** @type {Map<unknown, Event & {times: number}>} */
  const groups = new Map();
  for (const event of events) {
    const key = groupOf(event) ?? event;
    const known = groups.get(key);
    if (known) Object.assign(known, { times: known.times + 1, since_ms: event.at_ms });
    else groups.set(key, { ...event, times: 1 });
  }
  return [...groups.values()];
}

/** @param {Event} event */
export function eventItem(event) {
  const { at_ms: at, kind, rule_set: set, rule, identity, handle } = event;
  const links = [
    identity && set && rule && h("a", { href: identityLink({ rule_set: set, rule, identity, handle }) }, "Open the identity"),
    set && rule && h("a", { href: link("rules", { set, rule }) }, "Open the rule"),
    kind === "rules" && set && h("a", { href: link("rules", { view: "history", set, at: String(at) }) }, "What changed"),
  ];
  const often = h("span.event-reason");
  const element = item(at, badge(KINDS[kind] ?? kind, levelOf(event)), [`${eventText(event)}.`, often], links);
  /** @param {Event} last of the same group */
  function update({ at_ms: last, times = 1, since_ms: since = last }) {
    if (element.dataset.last === `${last} ${times}`) return;
    element.dataset.last = `${last} ${times}`;
    replace(/** @type {Element} */ (element.firstElementChild), whenOf(last));
    setText(often, times > 1 ? ` ${number(times)} times since ${time(since)}.` : "");
  }
  update(event);
  return Object.assign(element, { update });
}

/** @param {Change} change */
export function changeItem(change) {
  const { at_ms: at, who, rule_set: set, rule, identity, outcome, reason } = change;
  const links = [
    identity && set && rule && h("a", { href: identityLink(change) }, "Open the identity"),
    set && rule && h("a", { href: link("rules", { set, rule }) }, "Open the rule"),
    set && change.etag_after && h("a", { href: link("rules", { view: "history", set, at: String(at) }) }, "What changed"),
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

/** @param {number} at */
const whenOf = (at) => [timeTag(at), " ", ageTag(at)];

/** @param {number} at @param {Child} head @param {Child | Child[]} text @param {(Child | "")[]} links */
function item(at, head, text, links) {
  const shown = links.filter(Boolean);
  return h("li.event",
    h("div.event-when", whenOf(at)),
    h("div.event-head", head),
    h("div.event-text", h("p", text), shown.length > 0 && h("p.row.event-links", shown)));
}

/** @param {number} all @param {number} shown */
export const shownOf = (all, shown) => `${number(shown)} of ${count(all, "entry", "entries")}, newest first.`;
