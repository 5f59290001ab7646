// Events and changes: what happened in the fleet, and who changed what, and why.

import { button, field, pageHead, segmented, showProblem, textInput } from "./components.js";
import { h, setText } from "./dom.js";
import { changeItem, changeText, eventItem, eventText, grouped, groupOf, KINDS, shownOf } from "./events/item.js";
import { link, zone } from "./format.js";
import { watch } from "./polling.js";
import { sharedStream } from "./stream.js";

/** @import { Change, Event } from "./events/item.js" */

const MOST = 1000;
/** Entries are taller on phones. */
const pageSize = () => (matchMedia("(max-width: 760px)").matches ? 25 : 50);
const EVENTS_EVERY_MS = 30_000;
const CHANGES_EVERY_MS = 5000;
/** The service sends a comment every 15 seconds. */
const STALLED_MS = 40_000;

/** @param {Event | Change} entry */
const keyOf = (entry) => entry.id ?? `${entry.at_ms} ${"text" in entry ? entry.text : ""}`;

/** @param {import("./main.js").Context} context */
export function view({ params, session, signal }) {
  let shows = params.get("show") === "changes" && session.history ? "changes" : "events";
  let kind = params.get("kind") ?? "all";
  let query = params.get("q") ?? "";
  let most = pageSize();
  /** @type {Map<string, Event>} */
  const events = new Map();
  let changes = /** @type {Change[]} */ ([]);
  /** The items that are shown. @type {Map<string, HTMLElement>} */
  let items = new Map();
  let isKnown = { events: false, changes: false };

  const list = h("ol.events");
  const status = h("p.hint", { role: "status" });
  const problem = h("div");
  const more = button("Show more", () => {
    most += pageSize();
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
    most = pageSize();
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
      : grouped([...events.values()].filter((event) => (kind === "all" || event.kind === kind)
        && has(`${KINDS[event.kind] ?? event.kind} ${eventText(event)}`)).sort((a, b) => b.at_ms - a.at_ms));
    const shown = found.slice(0, most);
    showItems(shown);
    more.hidden = shown.length === found.length;
    const all = isChanges ? changes.length : events.size;
    setText(status, !isKnown[isChanges ? "changes" : "events"] ? "Loading…"
      : all === 0 ? (isChanges
        ? "No change was made through the console or the API yet."
        : "No event yet. A rule with notify tells when an identity reaches a share of its limit.")
      : found.length === 0 ? "Nothing matches the search."
      : shownOf(found.length, shown.length));
  }

  /** Leaves alone what is shown already, and so the focus. @param {(Event | Change)[]} shown */
  function showItems(shown) {
    const before = items;
    items = new Map(shown.map((each) => {
      if ("what" in each) return [keyOf(each), before.get(keyOf(each)) ?? changeItem(each)];
      const key = groupOf(each) ?? keyOf(each);
      const known = /** @type {ReturnType<typeof eventItem> | undefined} */ (before.get(key));
      known?.update(each);
      return [key, known ?? eventItem(each)];
    }));
    const wanted = [...items.values()];
    for (const element of [...list.children]) if (!wanted.includes(/** @type {HTMLLIElement} */ (element))) element.remove();
    wanted.forEach((element, place) => {
      if (list.children[place] !== element && !element.matches(":focus-within")) list.insertBefore(element, list.children[place] ?? null);
    });
  }

  /** @param {Event} event */
  function add(event) {
    events.set(keyOf(event), event);
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
