// The overview of the fleet: what is decided, who is limited, who runs out soon, what happened.

import { pageHead } from "./components.js";
import { demoTraffic } from "./demo.js";
import { h } from "./dom.js";
import { happenedCard } from "./events/happened.js";
import { byRuleCard } from "./overview/by_rule.js";
import { decisionsCard } from "./overview/decisions.js";
import { fleetStrip } from "./overview/fleet_strip.js";
import { limitedCard } from "./overview/limited.js";
import { runningOutCard } from "./overview/running_out.js";

/** @param {import("./main.js").Context} context */
export function view(context) {
  const rules = byRuleCard();
  const decisions = decisionsCard(context, rules.update);
  rules.element.hidden = !context.session.history;
  return {
    element: h("div.stack",
      pageHead("Overview", [], context.session.demo && demoTraffic(context)),
      decisions.first, decisions.element,
      h("div.cards",
        h("div.column", limitedCard(context), context.session.history && runningOutCard(context)),
        h("div.column", rules.element, happenedCard(context))),
      fleetStrip(context)),
  };
}
