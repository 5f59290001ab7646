// The active rules in words, with their live pressure.

import { get } from "../api.js";
import { badge, button, empty, gauge, problemNotice } from "../components.js";
import { h, replace } from "../dom.js";
import { count, number, share } from "../format.js";
import { codeBlock } from "./code.js";
import { ruleText } from "./document.js";
import { draftOf } from "./drafts.js";
import { pathOf, readText } from "./store.js";
import { enableButton, switches } from "./switches.js";
import { algorithmWords, details, sentence } from "./words.js";

/** @typedef {import("../main.js").Context} Context */
/** @typedef {import("../live.js").LiveEvent} LiveEvent */
/** @typedef {import("./words.js").Rule} Rule */
/** @typedef {{name: string, on_error: string, rules: Rule[]}} RuleSet */
/** @typedef {LiveEvent["rules"][number]} LiveRule */

/** @type {Record<string, string>} */
const ON_ERROR = {
  local: "If the store fails, this instance decides by itself.",
  allow: "If the store fails, requests are allowed.",
  deny: "If the store fails, requests are denied.",
};

/**
 * @param {Context} context
 * @param {RuleSet[]} sets
 * @param {() => void} onChange called when a switch has changed the rules
 * @returns {{element: HTMLElement, update: (event: LiveEvent) => void}}
 */
export function ruleList(context, sets, onChange) {
  /** @type {Map<string, (live: LiveRule | undefined) => void>} */
  const rows = new Map();
  const texts = textCache(context);
  const element = h("div", { class: "stack" });
  if (sets.length === 0) {
    const { session } = context;
    const canCreate = session.writable && session.role === "admin";
    element.append(empty("There are no rules",
      canCreate ? "Requests are not limited until there is a rule set." : "Requests are not limited. Rules come from the config.",
      canCreate && h("a", { class: "button primary", href: "#/rules?view=new" }, "New rule set")));
  }
  for (const set of sets) element.append(setCard(context, set, { texts, rows, onChange }));
  return {
    element,
    update(event) {
      const live = new Map(event.rules.map((rule) => [keyOf(rule.rule_set, rule.rule), rule]));
      for (const [key, update] of rows) update(live.get(key));
    },
  };
}

/**
 * Returns the id of the element of a rule.
 * @param {string} set
 * @param {string} rule
 */
export function keyOf(set, rule) {
  return JSON.stringify([set, rule]);
}

/** @typedef {{texts: (set: string) => Promise<string>, rows: Map<string, (live: LiveRule | undefined) => void>, onChange: () => void}} Shared */

/**
 * @param {Context} context
 * @param {RuleSet} set
 * @param {Shared} shared
 */
function setCard(context, set, shared) {
  const { session } = context;
  const canWrite = session.writable && session.role === "admin";
  const query = new URLSearchParams({ set: set.name });
  const items = h("ol", { class: "rules" }, set.rules.map((rule) => item(context, set.name, rule, shared)));
  if (session.writable) addDisabled(context, set, items, shared);
  return h("section", { class: "card", "data-set": set.name },
    h("div", { class: "card-head" },
      h("div", { class: "set-title" }, h("h2", {}, set.name),
        h("p", { class: "hint" }, `${count(set.rules.length, "active rule")}. ${ON_ERROR[set.on_error] ?? ""}`)),
      session.writable && h("div", { class: "actions" },
        draftOf(set.name) && badge("unsaved edits", "warn"),
        h("a", { class: "button plain", href: `#/rules?view=history&${query}` }, "History",
          h("span", { class: "visually-hidden" }, ` of ${set.name}`)),
        h("a", { class: "button plain", href: `#/rules?view=edit&${query}` }, canWrite ? "Edit" : "Text",
          h("span", { class: "visually-hidden" }, ` of ${set.name}`)))),
    items);
}

/**
 * @param {Context} context
 * @param {string} set
 * @param {Rule} rule
 * @param {Shared} shared
 */
function item(context, set, rule, { texts, rows, onChange }) {
  const { element: pressure, update } = pressureOf(rule);
  rows.set(keyOf(set, rule.id), update);
  const { session } = context;
  const canSwitch = session.writable && session.role !== "viewer";
  const more = h("div", { class: "rule-more" });
  return h("li", { class: "rule", tabindex: -1, "data-rule": keyOf(set, rule.id) },
    h("div", { class: "rule-head" },
      h("h3", {}, rule.name ?? rule.id),
      rule.name && h("span", { class: "mono quiet" }, rule.id),
      rule.mode === "shadow" ? badge("shadow", "info") : badge("enforced", "good"),
      badge(algorithmWords(rule.algorithm)),
      rule.group && badge(`group ${rule.group}`),
      rule.rollout && badge(`rollout ${rule.rollout}`, "info")),
    h("div", { class: "rule-body" },
      h("p", { class: "rule-words" }, upperFirst(sentence(rule)), "."),
      h("ul", { class: "rule-details" }, details(rule).map((text) => h("li", {}, text)))),
    pressure,
    h("div", { class: "actions" },
      toggle("YAML", `${set}/${rule.id}`, more, () => yaml(texts, set, rule.id, session.writable)),
      canSwitch && toggle("Switches", `${set}/${rule.id}`, more, () => switches(rule, { context, set, onChange }))),
    more);
}

/**
 * A button that shows something below the rule.
 * @param {string} text
 * @param {string} of
 * @param {HTMLElement} place
 * @param {() => Node} content
 */
function toggle(text, of, place, content) {
  const slot = h("div", { hidden: true });
  place.append(slot);
  const element = button(text, () => {
    slot.hidden = !slot.hidden;
    element.setAttribute("aria-expanded", String(!slot.hidden));
    if (!slot.hidden && slot.childElementCount === 0) replace(slot, content());
  });
  element.append(h("span", { class: "visually-hidden" }, ` of ${of}`));
  element.setAttribute("aria-expanded", "false");
  return element;
}

/**
 * @param {Shared["texts"]} texts
 * @param {string} set
 * @param {string} rule
 * @param {boolean} isStored
 */
function yaml(texts, set, rule, isStored) {
  const place = h("div", {}, h("p", { class: "quiet" }, "Loading …"));
  texts(set).then((text) => {
    const found = ruleText(text, isStored ? null : set, rule);
    // A text in flow style cannot be taken apart by lines.
    replace(place, codeBlock(found ?? text, `${set}/${rule} in YAML`));
  }, (error) => replace(place, problemNotice(error)));
  return place;
}

/**
 * Each text is read once, when it is first shown.
 * @param {Context} context
 * @returns {(set: string) => Promise<string>}
 */
function textCache({ session, signal }) {
  /** @type {Map<string, Promise<string>>} */
  const texts = new Map();
  return (set) => {
    const key = session.writable ? set : "";
    const known = texts.get(key) ?? (session.writable
      ? readText(set, signal).then(({ text }) => text)
      : get("/v1/rules_text", signal).then(({ text }) => text));
    texts.set(key, known);
    known.catch(() => texts.delete(key));
    return known;
  };
}

/**
 * Adds the disabled rules of a stored set, which are not among the active ones.
 * @param {Context} context
 * @param {RuleSet} set
 * @param {HTMLElement} items
 * @param {Shared} shared
 */
async function addDisabled(context, set, items, { texts, onChange }) {
  let stored;
  try {
    stored = await get(pathOf(set.name), context.signal);
  } catch {
    return; // The active rules are shown all the same.
  }
  for (const { id, name, enabled } of stored.rules) {
    if (enabled !== false) continue;
    const more = h("div", { class: "rule-more" });
    items.append(h("li", { class: "rule", tabindex: -1, "data-rule": keyOf(set.name, id) },
      h("div", { class: "rule-head" }, h("h3", {}, name ?? id), name && h("span", { class: "mono quiet" }, id),
        badge("disabled", "warn")),
      h("p", { class: "rule-body quiet" }, "Stored, but ignored."),
      h("div", { class: "actions" },
        toggle("YAML", `${set.name}/${id}`, more, () => yaml(texts, set.name, id, true)),
        context.session.role !== "viewer" && enableButton(id, { context, set: set.name, onChange })),
      more));
  }
}

/** @param {Rule} rule */
function pressureOf(rule) {
  const bar = gauge(0, 1, `Highest used share of ${rule.id}`);
  const used = h("span", {});
  const denied = h("span", { class: "denied" });
  const element = h("div", { class: "pressure" }, bar, h("p", { class: "hint" }, used, denied));
  /** @param {LiveRule | undefined} live */
  function update(live) {
    const share_ = live?.used ?? 0;
    bar.update(share_, 1);
    const { denied: no = 0, never = 0, shadow_denied: shadow = 0 } = live?.outcomes ?? {};
    setText(used, live ? `${share(share_)} used` : "No requests in the last second");
    const words = [];
    if (no + never > 0) words.push(`${number(no + never)}/s denied`);
    if (shadow > 0) words.push(`${number(shadow)}/s denied in shadow`);
    setText(denied, words.map((text) => ` · ${text}`).join(""));
    denied.dataset.any = String(no + never > 0);
  }
  update(undefined);
  return { element, update };
}

/**
 * @param {HTMLElement} element
 * @param {string} text
 */
function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** @param {string} text */
function upperFirst(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
