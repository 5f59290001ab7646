// The recorded requests of a customer, and how they were decided.

import { badge, button, card, table, timeTag } from "../components.js";
import { h, replace } from "../dom.js";
import { count } from "../format.js";
import { missingWords } from "./subjects.js";

/** @import { Recorded, Session } from "../api.js" */
/** @import { Recent } from "./subjects.js" */
/** @typedef {(event: Recorded, decision: Recent["decisions"][number], isNamed: boolean) => void} OnExplain */

const SHOWN = 50;
const OFF = "Requests are not recorded. Set admin: { record: true } in the config and restart.";
const UNNAMED = "Users and addresses are shown as pseudonyms, because telemetry.identities is not true.";

/** @param {Session} session @param {OnExplain} onExplain */
export function recentRequests(session, onExplain) {
  const body = h("div.stack-small", h("p.quiet", session.records ? "Loading…" : OFF));
  const element = card("Recent requests", body);
  let shown = "";

  /** @param {Recent | null} recent @param {string} who */
  function show(recent, who) {
    if (!recent) return;
    const { events, decisions, identities, records } = recent;
    const listed = events.map((event, index) => ({ event, decision: decisions[index] }))
      .filter(({ event }) => event.settle === undefined);
    // The table stays as it is, with its focus, if there is nothing new.
    const next = JSON.stringify([records, recent.instances, listed.length, listed.at(-1), who]);
    if (next === shown) return;
    shown = next;
    if (!records) return replace(body, h("p.quiet", OFF));
    const missing = missingWords(recent);
    if (listed.length === 0) return replace(body, h("p.quiet", `No recorded request has ${who}.${missing}`));
    const rows = listed.slice(-SHOWN).reverse().map(({ event, decision }) => [
      timeTag(event.t === undefined ? Date.parse(event.time ?? "") : event.t / 1000),
      event.method ?? "–",
      h("span.mono.id-path", event.path ?? "–"),
      h("span.row", outcomeBadge(decision.outcome), decision.rule && h("span.hint", decision.rule)),
      event.rule_set ?? "–",
      event.ip ?? "–",
      button("Explain", () => onExplain(event, decision, identities), { of: `${event.method ?? ""} ${event.path ?? ""}` }),
    ]);
    const list = table("Recent requests, newest first",
      ["Time", "Method", "Path", "Decided", "Rule set", "IP address", "Decision now"], rows);
    list.classList.add("scroll-box");
    replace(body, h("p.hint", listed.length > SHOWN && `The latest ${SHOWN} of `,
      `${count(listed.length, "recorded request")}.${missing}${identities ? "" : ` ${UNNAMED}`}`), list);
  }
  return { element, show };
}

/** @param {string | null} outcome */
function outcomeBadge(outcome) {
  if (outcome === null) return "–";
  const isGood = ["allowed", "exempt", "no_rule"].includes(outcome);
  const isBad = ["denied", "never", "forbidden", "failed_closed"].includes(outcome);
  return badge(outcome.replaceAll("_", " "), isGood ? "good" : isBad ? "bad" : "warn");
}
