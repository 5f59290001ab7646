// Events and changes: what happened in the fleet, and who changed what, and why.

import { button, field, pageHead, segmented, showProblem, textInput } from "./components.js";
import { h, replace, setText } from "./dom.js";
import { changeItem, changeText, eventItem, eventText, KINDS, shownOf } from "./events/item.js";
import { link, zone } from "./format.js";
import { watch } from "./polling.js";
import { sharedStream } from "./stream.js";

/** @import { Change, Event } from "./events/item.js" */

const MOST = 1000;
const PAGE = 50;
const EVENTS_EVERY_MS = 30_000;
const CHANGES_EVERY_MS = 5000;
/** The service sends a comment every 15 seconds. */
const STALLED_MS = 40_000;

/** @param {import("./main.js").Context} context */
export function view({ params, session, signal }) {
  let shows = params.get("show") === "changes" && session.history ? "changes" : "events";
  let kind = params.get("kind") ?? "all";
  let query = params.get("q") ?? "";
  let most = PAGE;
  /** @type {Map<string, Event>} */
  const events = new Map();
  let changes = /** @type {Change[]} */ ([]);
  let isKnown = { events: false, changes: false };

  const list = h("ol.events");
  const status = h("p.hint", { role: "status" });
  const problem = h("div");
  const more = button(`Show ${PAGE} more`, () => {
    most += PAGE;
    show();
  });
  const search = textInput({ type: "search", name: "q", value: query, oninput: () => {
    query = search.value;
    changed();
  } });
  const kinds = segmented("Kind", [["all", "All"], ...Object.entries(KINDS)], kind in KINDS ? kind : "all", (value) => {
    kind = value;
    changed();
  });

  function changed() {
    most = PAGE;
    history.replaceState(null, "", link("events", {
      show: shows === "changes" ? shows : null, kind: kind === "all" ? null : kind, q: query || null,
    }));
    show();
  }

  function show() {
    const isChanges = shows === "changes";
    kinds.hidden = isChanges;
    list.setAttribute("aria-label", isChanges ? "Changes, newest first" : "Events, newest first");
    const words = query.toLowerCase().split(/\s+/).filter(Boolean);
    const has = (/** @type {string} */ text) => words.every((word) => text.toLowerCase().includes(word));
    const found = isChanges
      ? changes.filter((change) => has(`${change.who} ${changeText(change)} ${change.reason ?? ""}`))
      : [...events.values()].filter((event) => (kind === "all" || event.kind === kind)
        && has(`${KINDS[event.kind] ?? event.kind} ${eventText(event)}`)).sort((a, b) => b.at_ms - a.at_ms);
    const shown = found.slice(0, most);
    replace(list, isChanges ? shown.map((each) => changeItem(/** @type {Change} */ (each)))
      : shown.map((each) => eventItem(/** @type {Event} */ (each))));
    more.hidden = shown.length === found.length;
    const all = isChanges ? changes.length : events.size;
    setText(status, !isKnown[isChanges ? "changes" : "events"] ? "Loading…"
      : all === 0 ? (isChanges
        ? "No change was made through the console or the API yet."
        : "No event yet. A rule with notify tells when an identity reaches a share of its limit.")
      : found.length === 0 ? "Nothing matches the search."
      : shownOf(found.length, shown.length));
  }

  /** @param {Event} event */
  function add(event) {
    events.set(event.id ?? `${event.at_ms} ${event.text}`, event);
    if (events.size <= MOST) return;
    const [oldest] = events.keys();
    events.delete(oldest);
  }

  watch(signal, "/v1/events", EVENTS_EVERY_MS, (answer) => {
    isKnown.events = true;
    for (const event of answer.events) add(event);
    show();
  }, (error) => showProblem(problem, error));
  sharedStream("/v1/events", signal, STALLED_MS, (event) => {
    add(event);
    if (shows === "events") show();
  }, () => {});
  if (session.history) {
    watch(signal, `/v1/audit?n=${MOST}`, CHANGES_EVERY_MS, (answer) => {
      const isNew = answer.entries[0]?.id !== changes[0]?.id || !isKnown.changes;
      changes = answer.entries;
      isKnown.changes = true;
      if (shows === "changes" && isNew) show();
    }, (error) => shows === "changes" && showProblem(problem, error));
  }
  const tabs = session.history ? segmented("Show",
    /** @type {const} */ ([["events", "Events"], ["changes", "Changes by people"]]),
    /** @type {"events" | "changes"} */ (shows), (value) => {
      shows = value;
      changed();
    }) : null;
  show();
  return { element: h("div.stack",
    pageHead("Events", [
      "What happened in the whole fleet, as it happens; and who changed, refunded or reset what. ",
      `Times are in ${zone()}.`,
    ]),
    h("section.card.stack-small", { "aria-label": "Events and changes" },
      h("div.row.spread.bottom", tabs, h("div.event-search", field("Search", search))),
      kinds, problem, status, list, h("div.actions", more))) };
}
