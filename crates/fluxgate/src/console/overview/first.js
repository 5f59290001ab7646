// What to do before there is a decision.

import { get } from "../api.js";
import { card, codeLine, empty } from "../components.js";
import { h, replace } from "../dom.js";

/** @import { RuleSet, Session } from "../api.js" */

/** @param {Session} session @param {AbortSignal} signal */
export function firstDecision(session, signal) {
  const command = h("div.first-command");
  /** @param {{rule_sets: RuleSet[]}} active */
  function show({ rule_sets: [set] }) {
    // A rule of the demo matches the path of its name.
    const path = session.demo ? `/${set?.rules[0]?.id}` : "/";
    const request = { rule_set: set?.name, user: "ann", ip: "203.0.113.1", method: "GET", path };
    const body = JSON.stringify(request).replaceAll("'", "'\\''");
    replace(command, codeLine(`curl -d '${body}' ${location.origin}/v1/check`));
  }
  get("/v1/rule_sets", signal).then(show, () => {});
  const text = session.demo
    ? "Send demo traffic with the button above, or request a decision from a terminal:"
    : "Request one from a terminal:";
  return card("Decisions", empty("No decisions yet", text), command);
}
