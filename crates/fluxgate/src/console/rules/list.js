// The rules in words, with their pressure: searched, filtered and folded, so that hundreds of them
// stay a page.

import { badge, button, empty, field, gauge, hidden, options, textInput } from "../components.js";
import { h, replace, setText } from "../dom.js";
import { capitalized, compact, count, identityLink, number, share, time } from "../format.js";
import { keyOf } from "./pressure.js";
import { drafts } from "./store.js";
import { rowActions } from "./row_actions.js";
import { setActions } from "./set_actions.js";
import { algorithmWords, details, sentence } from "./words.js";

/** @import { Rule, RuleSet } from "../api.js" */
/** @import { Context } from "../main.js" */
/** @import { Pressure, pressureFeed } from "./pressure.js" */
/**
 * A rule of the list: an active one, or one that is stored but disabled.
 * @typedef {{set: string, id: string, name: string | null, rule: Rule | null, text: string}} Item
 * @typedef {{element: HTMLElement, json: string, update: (pressure: Pressure) => void}} Row
 */

const SETS_PER_PAGE = 30;
const NARROW = "(max-width: 760px)";
/** @type {Record<string, string>} */
const ON_ERROR = {
  local: "each instance decides by itself", allow: "requests are allowed", deny: "requests are denied",
};
/** @type {Record<string, [string, (item: Item) => boolean]>} */
const STATES = {
  any: ["Any state", () => true],
  enforce: ["Enforced", ({ rule }) => rule !== null && rule.mode !== "shadow"],
  shadow: ["Shadow, or partly enforced", ({ rule }) => rule !== null && (rule.mode === "shadow" || rule.rollout !== null)],
  action: ["Denies or exempts by itself", ({ rule }) => rule?.action !== undefined],
  disabled: ["Disabled", ({ rule }) => rule === null],
};
/** @type {Record<string, [string, (pressure: Pressure) => boolean]>} */
const PRESSURES = {
  any: ["Any pressure", () => true],
  denying: ["Denying now", ({ denied, shadow }) => denied + shadow > 0],
  full: ["An identity at its limit", ({ full }) => full > 0],
  high: ["80% used or more", ({ fullest }) => (fullest?.used_share ?? 0) >= 0.8],
  today: ["Denied today", ({ today }) => (today ?? 0) > 0],
  idle: ["No requests now", (pressure) => pressure.rate === 0],
};

/**
 * @param {Context} context @param {ReturnType<typeof pressureFeed>} feed
 * @param {() => Promise<void>} reload
 */
export function ruleList(context, feed, reload) {
  const { session, params } = context;
  /** @type {RuleSet[]} */
  let sets = [];
  /** @type {Map<string, Row>} */
  const rows = new Map();
  /** What is said of the rules of a set, also of those that are not shown. @type {Map<string, {element: HTMLElement, keys: string[]}>} */
  const summaries = new Map();
  /** Sets that were opened or folded by hand. @type {Map<string, boolean>} */
  const opened = new Map();
  /** The first rule that is shown of each set. @type {Map<string, number>} */
  const pages = new Map();
  /** The set and the rule to move to. */
  let target = params.get("set") && keyOf(params.get("set"), params.get("rule"));
  let shown = "";
  let mostSets = SETS_PER_PAGE;

  const query = textInput({ type: "search", value: params.get("q"), oninput: changed, placeholder: "Id, name, path, header…" });
  const setChoice = h("select", { onchange: changed });
  const state = choice(STATES);
  const pressure = choice(PRESSURES);
  const found = h("p.hint", { role: "status" });
  const list = h("div.stack");
  const filters = h("div.filters", { role: "search", "aria-label": "Rules" }, field("Search", query),
    field("Rule set", setChoice), field("State", state), field("Pressure", pressure));
  const element = h("div.stack", filters, found, list);

  /** @param {Record<string, [string, unknown]>} choices */
  function choice(choices) {
    return h("select", { onchange: changed },
      options(Object.entries(choices).map(([value, [text]]) => [value, text])));
  }

  function changed() {
    pages.clear();
    opened.clear();
    mostSets = SETS_PER_PAGE;
    draw();
  }

  /** @param {RuleSet[]} next */
  function show(next) {
    sets = next;
    const names = sets.map(({ name }) => name);
    const chosen = setChoice.value;
    replace(setChoice, options([["", "All rule sets"], ...names.map((name) => /** @type {[string, string]} */ ([name, name]))], chosen));
    filters.hidden = sets.length === 0;
    draw();
  }

  const isFiltered = () => query.value.trim() !== "" || state.value !== "any" || pressure.value !== "any";

  /** @param {Item} item */
  function isWanted(item) {
    const words = query.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
    return words.every((word) => item.text.includes(word)) && STATES[state.value][1](item)
      && (pressure.value === "any"
        || item.rule !== null && PRESSURES[pressure.value][1](feed.of(keyOf(item.set, item.id))));
  }

  function draw() {
    summaries.clear();
    const wanted = sets.filter(({ name }) => setChoice.value === "" || name === setChoice.value);
    const matching = wanted.map((set) => ({ set, items: itemsOf(set).filter(isWanted) }))
      .filter(({ items }) => items.length > 0 || !isFiltered());
    const all = matching.reduce((sum, { items }) => sum + items.length, 0);
    const total = sets.reduce((sum, set) => sum + itemsOf(set).length, 0);
    setText(found, total === 0 ? "" : all === total ? `${count(total, "rule")} in ${count(sets.length, "rule set")}.`
      : `${number(all)} of ${count(total, "rule")}.`);
    // Sets are open as long as they fit on the page.
    let room = pageSize();
    const cards = matching.slice(0, mostSets).map(({ set, items }) => {
      const isTarget = target !== null && JSON.parse(target)[0] === set.name;
      const isOpen = opened.get(set.name) ?? (isTarget || items.length <= room || room === pageSize());
      if (isOpen) room -= Math.min(items.length, pageSize());
      return setCard(set, items, isOpen);
    });
    const more = matching.length - cards.length;
    replace(list, cards,
      more > 0 && h("div.actions", button(`Show ${count(Math.min(more, SETS_PER_PAGE), "more set")}`, () => {
        mostSets += SETS_PER_PAGE;
        draw();
      })),
      sets.length === 0 && empty("There are no rules", "No rule set is active. Requests that name one are decided by on_missing_rule_set."),
      sets.length > 0 && matching.length === 0 && h("div.card", empty("No rule matches", "Change the search or the filters."),
        h("div.actions.centred", button("Show all rules", () => {
          query.value = "";
          setChoice.value = "";
          state.value = pressure.value = "any";
          changed();
        }))));
    shown = matching.map(({ items }) => items.map(({ set, id }) => keyOf(set, id))).join();
    update();
    if (target && sets.length > 0) moveTo(target);
  }

  /** @param {RuleSet} set @param {Item[]} items @param {boolean} isOpen */
  function setCard({ name, on_error: onError, rules }, items, isOpen) {
    const denying = h("strong.denied");
    summaries.set(name, { element: denying, keys: rules.map((rule) => keyOf(name, rule.id)) });
    const size = pageSize();
    const isIn = items.findIndex(({ set, id }) => keyOf(set, id) === target);
    const first = isIn >= 0 ? isIn - isIn % size : Math.min(pages.get(name) ?? 0, Math.max(0, items.length - 1));
    pages.set(name, first);
    const page = items.slice(first, first + size);
    const id = `rules-of-${CSS.escape(name)}`;
    const toggle = h("button.fold", {
      type: "button", "aria-expanded": String(isOpen), "aria-controls": id,
      onclick() {
        opened.set(name, !isOpen);
        target = null;
        draw();
        focusOn(`[data-set=${CSS.escape(name)}] .fold`);
      },
    }, isOpen ? "Hide rules" : "Show rules", hidden(`of ${name}`));
    /** @param {string} text @param {number} start */
    const turn = (text, start) => {
      const to = button(text, () => {
        pages.set(name, start);
        target = null;
        draw();
        focusOn(`[data-set=${CSS.escape(name)}] h2`);
      }, { of: `of ${name}` });
      to.disabled = start < 0 || start >= items.length;
      return to;
    };
    return h("section.card.rule-set", { "data-set": name },
      h("div.card-head",
        h("div", h("h2", { tabindex: -1 }, name), h("p.hint",
          `${count(rules.length, "active rule")}. If the store fails, ${ON_ERROR[onError]}.`, denying)),
        h("div.actions",
          drafts.has(name) && badge("unsaved edits", "warn"),
          setActions(context, name, rules.length, reload),
          toggle)),
      h("div", { id, hidden: !isOpen },
        isOpen && h("ol", page.map((item) => rowOf(item).element)),
        isOpen && items.length > size && h("div.row.pager", turn("Previous", first - size),
          h("span.quiet", `Rules ${number(first + 1)} to ${number(first + page.length)} of ${number(items.length)}`),
          turn("Next", first + size))));
  }

  /** A row is kept while its rule stays as it is. @param {Item} item */
  function rowOf(item) {
    const key = keyOf(item.set, item.id);
    const json = JSON.stringify(item);
    const known = rows.get(key);
    if (known?.json === json) return known;
    const row = { json, ...newRow(context, item, reload) };
    rows.set(key, row);
    return row;
  }

  /** @param {string} key */
  function moveTo(key) {
    const [set] = JSON.parse(key);
    const rule = /** @type {HTMLElement | null} */ (list.querySelector(`[data-rule=${CSS.escape(key)}]`));
    requestAnimationFrame(() => {
      (rule ?? list.querySelector(`[data-set=${CSS.escape(set)}]`))?.scrollIntoView();
      rule?.focus({ preventScroll: true });
    });
    target = null;
  }

  /** @param {string} selector */
  const focusOn = (selector) => /** @type {HTMLElement | null} */ (list.querySelector(selector))?.focus();

  function update() {
    for (const { element, keys } of summaries.values()) {
      const denying = keys.filter((key) => feed.of(key).denied > 0).length;
      setText(element, denying > 0 ? ` ${count(denying, "rule denies", "rules deny")} requests now.` : "");
    }
    for (const [key, row] of rows) if (row.element.isConnected || list.contains(row.element)) row.update(feed.of(key));
  }

  /** Shows the numbers again, and the rules that a filter by pressure then finds. */
  function updatePressure() {
    if (pressure.value !== "any") {
      const now = sets.map((set) => itemsOf(set).filter(isWanted).map(({ id }) => keyOf(set.name, id))).filter(({ length }) => length > 0).join();
      if (now !== shown && !list.contains(document.activeElement)) return draw();
    }
    update();
  }

  /** @param {Context} of @param {Item} item @param {() => Promise<void>} onChange */
  function newRow(of, item, onChange) {
    const { set, id, name, rule } = item;
    const { actions, more } = rowActions(of, item, onChange);
    const numbers = rule ? pressureOf(item, rule) : null;
    const element = h("li.rule", { tabindex: -1, "data-rule": keyOf(set, id) },
      h("div.row.rule-head", h("h3", name ?? id), name && h("span.mono.quiet", id), rule ? badgesOf(rule) : badge("disabled", "warn")),
      h("div.rule-body", rule ? [h("p.rule-words", capitalized(sentence(rule)), "."),
        h("p.hint", details(rule, time).join(" "))] : h("p.quiet", "Stored, but ignored.")),
      numbers?.element,
      h("div.actions", actions),
      more);
    return { element, update: numbers?.update ?? (() => {}) };
  }

  /** @param {Item} item @param {Rule} rule */
  function pressureOf({ set, id }, rule) {
    const bar = gauge(`Used share of the identity that has used most of ${id}`);
    const perSecond = h("strong.rate");
    const unit = h("span");
    const denied = h("span.denied");
    const today = h("span");
    const fullest = h("p.hint");
    const isAction = rule.action !== undefined;
    /** @param {Pressure} now */
    function updateRow(now) {
      setText(perSecond, session.history && feed.isKnown ? perSecondOf(now.rate) : "");
      setText(unit, perSecond.textContent ? " requests" : "");
      setText(denied, [now.denied > 0 && `${perSecondOf(now.denied)} denied`, now.shadow > 0 && `${perSecondOf(now.shadow)} would be denied`]
        .filter(Boolean).map((text) => `, ${text}`).join(""));
      denied.dataset.any = String(now.denied > 0);
      setText(today, now.today === null ? session.history ? "" : "No record is kept."
        : `${count(now.today, "request")} denied ${since(feed.since)}`);
      if (isAction) return setText(fullest, "It counts nothing: it decides by itself.");
      const { fullest: most, full, isLeast } = now;
      bar.hidden = most === null;
      bar.update(most?.used_share ?? 0, 1);
      const used = share(most?.used_share ?? 0);
      // What is used is known some seconds later.
      const isUnused = feed.isUsageKnown && now.rate === 0;
      const key = most ? `${most.identity} ${full} ${used}` : String(isUnused);
      if (fullest.dataset.shown === key) return;
      fullest.dataset.shown = key;
      if (!most) return replace(fullest, isUnused && "No identity has used it within the last hour.");
      if (rule.key.length === 0) return replace(fullest, `All requests together have used ${used}.`);
      const name = h("a.mono", { href: identityLink(most) }, most.identity);
      if (full === 0) replace(fullest, name, ` has used ${used}, more than any other identity.`);
      else if (full === 1) replace(fullest, "1 identity is at its limit: ", name, ".");
      else replace(fullest, `${isLeast ? "At least " : ""}${number(full)} identities are at their limit, such as `, name, ".");
    }
    return { update: updateRow, element: h("div.pressure",
      h("p", perSecond, unit, denied), !isAction && bar, h("p.hint", today), fullest) };
  }

  matchMedia(NARROW).addEventListener("change", draw, { signal: context.signal });
  return { element, show, updatePressure };
}

/** @param {Rule} rule */
function badgesOf(rule) {
  return [
    rule.mode === "shadow" ? badge("shadow", "info") : badge("enforced", "good"),
    rule.action ? badge(rule.action, rule.action === "deny" ? "bad" : "good") : badge(algorithmWords(rule.algorithm)),
    rule.group && badge(`group ${rule.group}`),
    rule.rollout && badge(`rollout ${rule.rollout}`, "info"),
  ];
}

/** @type {WeakMap<RuleSet, Item[]>} */
const items = new WeakMap();

/** @param {RuleSet} set @returns {Item[]} */
function itemsOf(set) {
  const known = items.get(set) ?? newItems(set);
  items.set(set, known);
  return known;
}

/** @param {RuleSet} set @returns {Item[]} */
function newItems({ name: set, rules, disabled = [] }) {
  /** @param {string[]} words */
  const text = (...words) => words.join(" ").toLowerCase();
  return [
    ...rules.map((rule) => ({ set, id: rule.id, name: rule.name, rule,
      text: text(set, rule.id, rule.name ?? "", sentence(rule), ...details(rule)) })),
    ...disabled.map(({ id, name }) => ({ set, id, name, rule: null, text: text(set, id, name ?? "", "disabled") })),
  ];
}

/** @param {number} value */
const perSecondOf = (value) => (value > 0 && value < 0.1 ? "<0.1/s" : `${compact(value)}/s`);

/** How many rules a page has: on phones they are higher. */
const pageSize = () => (matchMedia(NARROW).matches ? 10 : 20);

/** @param {number} at */
const since = (at) => (new Date(at).getHours() === 0 && new Date(at).getMinutes() === 0 ? "today" : `since ${time(at)}`);
