// The active rules in words, with their live pressure and their switches.

import { get, Problem } from "../api.js";
import {
  badge, button, confirmDialog, disclosure, empty, field, gauge, hidden, loaded,
} from "../components.js";
import { h, setText } from "../dom.js";
import { capitalized, count, link, number, share } from "../format.js";
import { codeBlock } from "./code.js";
import { ruleText } from "./document.js";
import { changeRule, changeWords, drafts, pathOf, readText, switchRule } from "./store.js";
import { algorithmWords, details, sentence } from "./words.js";

/** @import { LiveEvent, Rule, RuleSet } from "../api.js" */

/** @type {Record<string, string>} */
const ON_ERROR = {
  local: "this instance decides by itself", allow: "requests are allowed", deny: "requests are denied",
};

/**
 * @param {import("../main.js").Context} context @param {RuleSet[]} sets
 * @param {() => void} onChange called when a switch has changed the rules
 */
export function ruleList({ session, notify }, sets, onChange) {
  /** @type {Map<string, (live: LiveEvent["rules"][number] | undefined) => void>} */
  const rows = new Map();
  const { writable } = session;
  const isAdmin = session.role === "admin";
  const maySwitch = writable && session.role !== "viewer";

  /** @param {RuleSet} set */
  function setCard({ name, rules, on_error: onError }) {
    const items = h("ol", rules.map((rule) => activeItem(name, rule)));
    if (writable) addDisabled(name, items);
    /** @param {string} text @param {string} view */
    const action = (text, view) =>
      h("a.button", { href: link("rules", { view, set: name }) }, text, hidden(`of ${name}`));
    return h("section.card", { "data-set": name },
      h("div.card-head",
        h("div", h("h2", name), h("p.hint",
          `${count(rules.length, "active rule")}. If the store fails, ${ON_ERROR[onError]}.`)),
        writable && h("div.actions",
          drafts.has(name) && badge("unsaved edits", "warn"),
          action("History", "history"),
          action(isAdmin ? "Edit" : "Text", "edit"))),
      items);
  }

  /** @param {string} set @param {Rule} rule */
  function activeItem(set, rule) {
    const bar = gauge(`Highest used share of ${rule.id}`);
    const used = h("span");
    const denied = h("span.denied");
    rows.set(keyOf(set, rule.id), (live) => {
      const part = live?.used ?? 0;
      bar.update(part, 1);
      const no = live?.denied ?? 0;
      const shadow = live?.outcomes.shadow_denied ?? 0;
      setText(used, !live ? "No data for the last second"
        : rule.action ? "It counts nothing" : `${share(part)} used`);
      setText(denied, (no > 0 ? ` · ${number(no)}/s denied` : "")
        + (shadow > 0 ? ` · ${number(shadow)}/s shadow-denied` : ""));
      denied.dataset.any = String(no > 0);
    });
    const place = h("div");
    return item(set, rule, [
      rule.mode === "shadow" ? badge("shadow", "info") : badge("enforced", "good"),
      rule.action ? badge(rule.action, rule.action === "deny" ? "bad" : "good")
        : badge(algorithmWords(rule.algorithm)),
      rule.group && badge(`group ${rule.group}`),
      rule.rollout && badge(`rollout ${rule.rollout}`, "info"),
    ], [
      h("div.rule-body", h("p.rule-words", capitalized(sentence(rule)), "."),
        h("ul.hint", details(rule).map((text) => h("li", text)))),
      h("div.pressure", bar, h("p.hint", used, denied)),
    ], maySwitch && disclosure("Switches", place, () => switches(set, rule), `of ${set}/${rule.id}`), place);
  }

  /** They are stored, but not among the active ones. @param {string} set @param {HTMLElement} items */
  async function addDisabled(set, items) {
    /** @type {{rules: {id: string, name: string | null, enabled?: boolean}[]}} */
    const { rules } = await get(pathOf(set)).catch(() => ({ rules: [] }));
    for (const rule of rules.filter(({ enabled }) => enabled === false)) {
      const name = `${set}/${rule.id}`;
      const enable = () => ask(`Enable ${name}?`,
        "The rule will apply to requests that it matches.", "Enable",
        () => switchRule(set, rule.id, "enable"), `${name} is enabled.`);
      items.append(item(set, rule, [badge("disabled", "warn")],
        [h("p.rule-body.quiet", "Stored, but ignored.")],
        maySwitch && button("Enable…", enable, { of: name }), null));
    }
  }

  /**
   * @param {string} set @param {{id: string, name: string | null}} rule
   * @param {(Node | null | false | "")[]} badges @param {Node[]} body
   * @param {Node | false} action @param {Node | null} more what the action shows
   */
  function item(set, { id, name }, badges, body, action, more) {
    const place = h("div");
    const read = async () => {
      const { text } = writable ? await readText(set) : await get("/v1/rules_text");
      return codeBlock(ruleText(text, writable ? null : set, id) ?? text, `${set}/${id} in YAML`);
    };
    return h("li.rule", { tabindex: -1, "data-rule": keyOf(set, id) },
      h("div.row", h("h3", name ?? id), name && h("span.mono.quiet", id), badges),
      body,
      h("div.actions", disclosure("YAML", place, () => loaded(read()), `of ${set}/${id}`), action),
      h("div.rule-more", place, more));
  }

  /** @param {string} set @param {Rule} rule */
  function switches(set, { id, mode, key, rollout }) {
    const name = `${set}/${id}`;
    const isShadow = mode === "shadow";
    const percent = h("input", {
      type: "number", min: 0, max: 100, step: 0.01, required: true, value: parseFloat(rollout ?? "100"),
    });
    const hint = isShadow ? "The rollout has no effect while the rule is in shadow." : undefined;
    return h("div.switches.stack-small",
      h("div.row",
        isAdmin && (isShadow
          ? button("Enforce…", () => ask(`Enforce ${name}?`,
            "The rule will deny requests that exceed it.", "Enforce",
            () => changeRule(set, id, { mode: "enforce" })))
          : button("Switch to shadow…", () => ask(`Switch ${name} to shadow?`,
            "The rule will count and report, but deny nothing.", "Switch to shadow",
            () => changeRule(set, id, { mode: "shadow" })))),
        button("Disable…", () => ask(`Disable ${name}?`, "The rule will be ignored.",
          "Disable", () => switchRule(set, id, "disable")))),
      isAdmin && key.length > 0 && h("div.row.bottom",
        field("Rollout, % of identities", percent, hint),
        button("Change…", () => {
          const next = `${Number(percent.value)}%`;
          if (percent.reportValidity()) ask(`Enforce ${name} for ${next}?`,
            "The choice depends on the identity alone. For the others, the rule is in shadow.", "Change",
            () => changeRule(set, id, { rollout: next === "100%" ? undefined : next }));
        })));
  }

  /**
   * @param {string} title @param {string} text @param {string} action
   * @param {() => Promise<import("./store.js").Written>} write @param {string} [done]
   */
  async function ask(title, text, action, write, done) {
    if (!(await confirmDialog(title, text, action))) return;
    try {
      const { changes, delayed } = await write();
      const words = changes.map(changeWords).join(" ") || "Nothing has changed.";
      notify(delayed ?? done ?? words, delayed ? "bad" : "good");
      onChange();
    } catch (error) {
      const isRace = error instanceof Problem && error.status === 412;
      notify(isRace
        ? "412 Not applied: the rule was changed at the same time. Try again."
        : String(error), "bad");
    }
  }

  const element = h("div.stack", sets.map(setCard),
    sets.length === 0 && empty("There are no rules", "No rule set is active."));
  /** @param {LiveEvent | null} event */
  function update(event) {
    const live = new Map(event?.rules.map((rule) => [keyOf(rule.rule_set, rule.rule), rule]));
    for (const [key, show] of rows) show(live.get(key));
  }
  return { element, update };
}

/** @param {string} set @param {string} rule */
export const keyOf = (set, rule) => JSON.stringify([set, rule]);
