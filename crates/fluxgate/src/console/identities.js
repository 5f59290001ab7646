// Identities: what one identity has left under every rule, and what it sent.

import { get, isLookedUp } from "./api.js";
import {
  badge, button, card, empty, field, loaded, notice, pageHead, poll, problemNotice, submitButton,
  table, textInput,
} from "./components.js";
import { h, replace, setText } from "./dom.js";
import { capitalized, count, link, time } from "./format.js";
import { explainCard } from "./identities/explain.js";
import {
  describe, entriesOf, hasValues, linkOf, missingOf, nounOf, partsOf, readValues, requestOf,
} from "./identities/parts.js";
import { ruleCard } from "./identities/rule_card.js";

/** @import { Recorded, RuleSet, Top } from "./api.js" */
/** @import { Entry, Values } from "./identities/parts.js" */

const SHOWN = 50;
const OFF = "Requests are not recorded. Set admin: { record: true } in the config and restart.";
const UNNAMED = " Recorded requests have pseudonyms unless telemetry.identities is true; "
  + "API keys always do.";

/** @param {import("./main.js").Context} context */
export function view({ session, params, signal }) {
  const fields = h("div.grid.id-fields");
  const form = h("form.stack-small", { onsubmit: submit }, fields,
    h("div.actions", submitButton("Look up"), button("Clear", () => search(new Map()))));
  const results = h("div.stack");
  const explain = explainCard();
  const recent = recentRequests(explain.explainEvent);
  recent.element.hidden = true;

  /** @type {Entry[]} */
  let entries = [];
  let round = new AbortController();
  signal.addEventListener("abort", () => round.abort());

  async function load() {
    try {
      /** @type {{rule_sets: RuleSet[]}} */
      const { rule_sets: sets } = await get("/v1/rule_sets");
      entries = entriesOf(sets);
      explain.showSets(sets.map(({ name }) => name));
      const values = readValues(params, entries);
      const inputs = partsOf(entries, values).map((part) =>
        field(capitalized(nounOf(part)), textInput({ name: part }),
          part === "api_key" ? "Not part of the link." : undefined));
      replace(fields, inputs);
      if (!signal.aborted) lookUp(values);
    } catch (error) {
      replace(results, problemNotice(error), h("div.actions", button("Try again", load)));
    }
  }

  /** @param {Event} event */
  function submit(event) {
    event.preventDefault();
    const given = [...new FormData(form)].map(([name, value]) =>
      /** @type {[string, string]} */ ([name, String(value).trim()]));
    search(new Map(given.filter(([, value]) => value !== "")));
  }

  /** @param {Values} values */
  function search(values) {
    history.pushState(null, "", linkOf(values));
    params = new URLSearchParams();
    lookUp(values);
  }

  /** @param {Values} values */
  function lookUp(values) {
    round.abort();
    round = new AbortController();
    for (const input of fields.querySelectorAll("input")) input.value = values.get(input.name) ?? "";
    explain.fillIdentity(requestOf(values));
    recent.element.hidden = values.size === 0;
    const wanted = params.get("rule");
    const isWanted = (/** @type {Entry} */ { set, rule }) => `${set}/${rule.id}` === wanted;
    const complete = entries.filter(({ rule }) => missingOf(rule, values).length === 0);
    if (values.size === 0 && !complete.some(isWanted)) return showNothing();
    // A link from a list is about one rule, which comes first; what all share comes last.
    const place = (/** @type {Entry} */ entry) =>
      (isWanted(entry) ? 0 : entry.rule.key.length > 0 ? 1 : 2);
    showRules(complete.sort((a, b) => place(a) - place(b)), values, round.signal);
  }

  /** @param {Entry[]} complete @param {Values} values @param {AbortSignal} current */
  function showRules(complete, values, current) {
    const mayChange = session.role !== "viewer";
    const cards = complete.map((entry) => ruleCard(entry, values, mayChange));
    const status = h("p.hint", { role: "status" });
    const states = poll(current, 2000, async () => {
      await Promise.all(cards.map((each) => each.refresh(current)));
      const known = cards.map((each) => each.isUsed()).filter((each) => each !== null);
      const used = known.filter(Boolean).length;
      setText(status, known.length === 0 ? ""
        : used === 0 ? "No units used."
        : `Units used under ${used} of ${count(known.length, "rule")}.`);
    });
    // Recent requests are many, so they are read less often than states.
    const requests = values.size > 0
      && poll(current, 10_000, () => recent.refresh(values, current));
    const incomplete = entries.filter(({ rule }) => missingOf(rule, values).length > 0);
    replace(results,
      h("div.row", h("h2", values.size > 0 ? describe(values) : "Everyone"), status),
      states.problem, requests && requests.problem,
      cards.length > 0
        ? h("div.grid", cards.map((each) => each.element))
        : notice("quiet", "These values are not enough for any rule."),
      !mayChange && h("p.hint",
        `Refunds and resets need the role operator. You have the role ${session.role}.`),
      incomplete.length > 0 && card("Rules that need more values",
        h("ul", incomplete.map(({ set, rule }) => h("li.row",
          h("span", h("span.quiet", `${set} / `), rule.id),
          missingOf(rule, values).map((part) => badge(`needs ${part}`)))))));
  }

  function showNothing() {
    const identity = params.get("identity");
    const top = get("/v1/top?by=denied&window=60s&n=10");
    replace(results, card("Most denied in the last minute",
      identity !== null && notice("warn",
        `The identity “${identity}” cannot be looked up: it is anonymous, hidden or invalid.`),
      loaded(top.then(({ entries }) => topList(entries.filter(isLookedUp))))));
  }

  load();
  return {
    element: h("div.stack",
      pageHead("Identities", ["Look up a user, an address or another identity under all active rules."]),
      card("Look up", form), results, recent.element, explain.element),
  };
}

/** @param {Top[]} top */
function topList(top) {
  if (top.length === 0) {
    return empty("No identity was denied",
      "Type a value above to see what an identity has left under each rule.");
  }
  return h("div.stack-small",
    h("p.quiet", "Type a value above, or choose one of these."),
    h("ul.grid.id-top", top.map(({ rule_set: set, rule, identity, count: denied }) =>
      h("li", h("a", { href: link("identities", { identity, rule: `${set}/${rule}` }) },
        h("span.mono", identity),
        h("span.hint", `${set} / ${rule}, denied ${count(denied, "time")}`))))));
}

/** @param {(event: Recorded) => void} onExplain */
function recentRequests(onExplain) {
  const body = h("div");
  let shown = "";

  /** @param {Values} values @param {AbortSignal} signal */
  async function refresh(values, signal) {
    /** @type {{records: boolean, identities: boolean, events: Recorded[]}} */
    const { records, identities, events } = await get("/v1/recent?n=10000", signal);
    const own = events.filter((event) => event.settle === undefined && hasValues(event, values));
    // The table stays as it is, with its focus, if there is nothing new.
    const next = JSON.stringify([records, own.length, own.at(-1), [...values]]);
    const none = `No recorded request has ${describe(values)}.`
      + (identities && !values.has("api_key") ? "" : UNNAMED);
    if (next !== shown) show(own, records ? none : OFF);
    shown = next;
  }

  /** @param {Recorded[]} own @param {string} none */
  function show(own, none) {
    if (own.length === 0) return replace(body, h("p.quiet", none));
    const rows = own.slice(-SHOWN).reverse().map((event) => [
      time(event.t === undefined ? Date.parse(event.time ?? "") : event.t / 1000),
      event.method ?? "–",
      h("span.mono.id-path", event.path ?? "–"),
      event.rule_set ?? "–",
      event.ip ?? "–",
      button("Explain", () => onExplain(event), { of: `${event.method ?? ""} ${event.path ?? ""}` }),
    ]);
    const list = table("Recent requests, newest first",
      ["Time", "Method", "Path", "Rule set", "IP address", "Decision now"], rows);
    list.classList.add("scroll-box");
    replace(body, h("p.hint", own.length > SHOWN && `The latest ${SHOWN} of `,
      `${count(own.length, "recorded request")}.`), list);
  }

  return { element: card("Recent requests", body), refresh };
}
