// The last events and changes, as a card of the overview.

import { showProblem } from "../components.js";
import { h, replace, setText } from "../dom.js";
import { watch } from "../polling.js";
import { changeItem, eventItem, grouped } from "./item.js";

/** @import { Change, Event } from "./item.js" */

const SHOWN = 6;
/** Many of them may be of one identity. */
const READ = 100;
const EVERY_MS = 10_000;
const NONE = "Nothing yet. Limits that are reached (notify), changed rules, Redis and upstreams that fail, and "
  + "wrong tokens are listed here.";

/** @param {import("../main.js").Context} context */
export function happenedCard({ session, signal, live }) {
  const place = h("ol.events");
  const none = h("p.hint", "Loading…");
  const problem = h("div");
  let events = /** @type {Event[]} */ ([]);
  let changes = /** @type {Change[]} */ ([]);
  let isKnown = false;
  let shown = "";

  function show() {
    // Changes of rules are events, too.
    const people = changes.filter(({ what }) => what === "refund" || what === "reset");
    const all = [...grouped(events.toReversed()).map((event) => ({ at: event.at_ms, event, change: null })),
      ...people.map((change) => ({ at: change.at_ms, event: null, change }))]
      .sort((a, b) => b.at - a.at).slice(0, SHOWN);
    const next = JSON.stringify([isKnown, all]);
    if (next === shown) return;
    shown = next;
    replace(place, all.map(({ event, change }) => (event ? eventItem(event) : change && changeItem(change))));
    none.hidden = all.length > 0;
    if (isKnown) setText(none, NONE);
  }
  const heard = watch(signal, `/v1/events?n=${READ}`, EVERY_MS, (answer) => {
    events = answer.events;
    isKnown = true;
    show();
  }, (error) => showProblem(problem, error));
  if (session.history) {
    watch(signal, `/v1/audit?n=${SHOWN}`, EVERY_MS, (answer) => {
      changes = answer.entries;
      show();
    });
  }
  live.onRules(signal, () => heard.run());
  return h("section.card", { "aria-label": "What happened" }, h("h2", "What happened"), problem, place, none,
    h("p.card-foot", h("a", { href: "#/events" }, "All events and changes")));
}
