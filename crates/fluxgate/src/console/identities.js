// Identities: what one identity has left under every rule, what it sent, and how a request of it
// would be decided.

import { get } from "./api.js";
import { badge, button, card, empty, field, notice, problemNotice } from "./components.js";
import { h, replace } from "./dom.js";
import { count } from "./format.js";
import { explainCard } from "./identities/explain.js";
import { describe, entriesOf, labelOf, linkOf, missingOf, partsOf, readValues } from "./identities/parts.js";
import { recentRequests } from "./identities/recent.js";
import { ruleCard } from "./identities/rule_card.js";

/** @typedef {import("./identities/parts.js").Entry} Entry */
/** @typedef {import("./identities/parts.js").Values} Values */
/** @typedef {import("./identities/rule_card.js").RuleCard} RuleCard */

const REFRESH = 2000;
/** Recent requests are many, so they are read less often than states. */
const RECENT_EVERY = 5;
/** How many states are read at the same time. */
const AT_ONCE = 6;

const PLACEHOLDERS = /** @type {Record<string, string>} */ ({
  user: "ann", ip: "203.0.113.9", method: "GET", path: "/api/items",
});

/** @param {import("./main.js").Context} context */
export function view({ session, params, signal }) {
  const mayChange = session.role !== "viewer";
  const fields = h("div", { class: "id-fields" });
  const form = h("form", { class: "id-search", onsubmit: submit }, fields,
    h("div", { class: "actions" },
      h("button", { type: "submit", class: "button primary" }, "Look up"),
      button("Clear", () => search(new Map()))));
  const problem = h("div", { class: "id-problem" });
  const results = h("div", { class: "stack" });
  const explain = explainCard(signal);
  const recent = recentRequests(explain.explainEvent);
  const element = h("div", { class: "stack" },
    h("div", {}, h("h1", {}, "Identities"),
      h("p", { class: "quiet" }, "Look up a user, an address or another identity under all active rules.")),
    card("Look up", form), problem, results, recent.element, explain.element);
  recent.element.hidden = true;

  /** @type {Entry[]} */
  let entries = [];
  /** @type {Values} */
  let values = new Map();
  /** @type {RuleCard[]} */
  let cards = [];
  let round = new AbortController();
  signal.addEventListener("abort", () => round.abort());

  async function load() {
    try {
      const { rule_sets } = await get("/v1/rule_sets", signal);
      entries = entriesOf(rule_sets);
      explain.showSets(rule_sets.map((/** @type {{name: string}} */ { name }) => name));
      replace(problem);
      lookUp(readValues(params, entries));
    } catch (error) {
      if (signal.aborted) return;
      const again = button("Try again", load);
      replace(problem, problemNotice(error), h("div", { class: "actions id-retry" }, again));
    }
  }

  /** @param {Event} event */
  function submit(event) {
    event.preventDefault();
    const given = [...fields.querySelectorAll("input")].map(({ name, value }) =>
      /** @type {[string, string]} */ ([name, value.trim()]));
    search(new Map(given.filter(([, value]) => value !== "")));
  }

  /** @param {Values} next */
  function search(next) {
    history.pushState(null, "", linkOf(next));
    params = new URLSearchParams();
    lookUp(next);
  }

  /** @param {Values} next */
  function lookUp(next) {
    values = next;
    round.abort();
    round = new AbortController();
    showFields();
    explain.fill(values);
    recent.element.hidden = values.size === 0;
    const wanted = params.get("rule");
    const isWanted = (/** @type {Entry} */ { set, rule }) => `${set}/${rule.id}` === wanted;
    const complete = entries.filter(({ rule }) => missingOf(rule, values).length === 0);
    if (values.size === 0 && !complete.some(isWanted)) {
      cards = [];
      showNothing(round.signal);
      return;
    }
    // A link from a list is about one rule, which comes first; what all share comes last.
    const place = (/** @type {Entry} */ entry) => (isWanted(entry) ? 0 : entry.rule.key.length > 0 ? 1 : 2);
    complete.sort((a, b) => place(a) - place(b));
    cards = complete.map((entry) => ruleCard(entry, values, mayChange));
    showCards();
    follow(round.signal);
  }

  function showFields() {
    const inputs = partsOf(entries, values).map((part) => {
      const input = h("input", {
        type: "text", name: part, value: values.get(part) ?? "", placeholder: PLACEHOLDERS[part],
        autocomplete: "off", autocapitalize: "none", spellcheck: "false",
      });
      return field(labelOf(part), input, part === "api_key" ? "Not part of the link." : undefined);
    });
    const none = h("p", { class: "quiet" }, "No active rule counts by identity.");
    const focused = [...fields.querySelectorAll("input")].find((input) => input.matches(":focus"));
    replace(fields, inputs.length > 0 ? inputs : none);
    [...fields.querySelectorAll("input")].find(({ name }) => name === focused?.name)?.focus();
  }

  function showCards() {
    const incomplete = entries.filter(({ rule }) => missingOf(rule, values).length > 0);
    replace(results,
      h("div", { class: "id-results-head" }, h("h2", {}, values.size > 0 ? describe(values) : "Everyone"),
        h("p", { class: "hint", role: "status" }, status)),
      cards.length > 0
        ? h("div", { class: "id-cards" }, cards.map((each) => each.element))
        : notice("quiet", "No rule can be looked up with these values alone."),
      !mayChange && h("p", { class: "hint" },
        `Refunds and resets need the role operator. You have the role ${session.role}.`),
      incomplete.length > 0 && card("Rules that need more",
        h("ul", { class: "id-missing" }, incomplete.map(({ set, rule }) => h("li", {},
          h("span", {}, h("span", { class: "quiet" }, `${set} / `), rule.id),
          missingOf(rule, values).map((part) => badge(`needs ${part}`, "quiet")))))));
  }

  const status = h("span", {});

  /**
   * Reads the states again and again while the page is visible.
   * @param {AbortSignal} current
   */
  async function follow(current) {
    status.textContent = "";
    for (let turn = 0; !current.aborted; turn++) {
      if (!document.hidden) {
        if (turn % RECENT_EVERY === 0 && values.size > 0) recent.refresh(values, current).then(explain.suggest);
        await readStates(current);
      }
      await new Promise((done) => setTimeout(done, REFRESH));
    }
  }

  /** @param {AbortSignal} current */
  async function readStates(current) {
    try {
      for (let start = 0; start < cards.length && !current.aborted; start += AT_ONCE) {
        await Promise.all(cards.slice(start, start + AT_ONCE).map((each) => each.refresh(current)));
      }
      if (current.aborted) return;
      replace(problem);
      showStatus();
    } catch (error) {
      if (current.aborted) return;
      if (!problem.firstChild) replace(problem, problemNotice(error));
    }
  }

  function showStatus() {
    const known = cards.map((each) => each.isUsed()).filter((each) => each !== null);
    const used = known.filter(Boolean).length;
    const next = known.length === 0 ? ""
      : used === 0 ? "Nothing is used: all its bands are full."
      : `Has used units of ${used} of ${count(known.length, "rule")}.`;
    if (status.textContent !== next) status.textContent = next;
  }

  /** @param {AbortSignal} current */
  async function showNothing(current) {
    const list = h("div", {});
    const identity = params.get("identity");
    replace(results, card("Most denied in the last minute",
      identity !== null && notice("warn", `The identity “${identity}” cannot be looked up: `
        + "it is shared, hidden or not an identity."),
      list));
    try {
      const { entries: top } = await get("/v1/top?by=denied&window=60s&n=10", current);
      if (!current.aborted) replace(list, topList(top));
    } catch (error) {
      if (!current.aborted) replace(list, problemNotice(error));
    }
  }

  const ticking = setInterval(() => cards.forEach((each) => each.tick()), 1000);
  signal.addEventListener("abort", () => clearInterval(ticking));
  load();
  return { element };
}

/** @param {{rule_set: string, rule: string, identity: string, count: number}[]} top */
function topList(top) {
  if (top.length === 0) {
    return empty("No identity was denied",
      "Type a value above to see what an identity has left under each rule.");
  }
  return h("div", {},
    h("p", { class: "quiet" }, "Type a value above, or choose one of these."),
    h("ul", { class: "id-top" }, top.map(({ rule_set, rule, identity, count: denied }) => {
      const query = new URLSearchParams({ identity, rule: `${rule_set}/${rule}` });
      return h("li", {}, h("a", { href: `#/identities?${query}` },
        h("span", { class: "mono" }, identity),
        h("span", { class: "hint" }, `${rule_set} / ${rule}, denied ${count(denied, "time")}`)));
    })));
}
