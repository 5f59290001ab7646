// What can be seen of, and done with, a rule of the list: its text, its last change, its switches.

import { get, Problem } from "../api.js";
import { button, disclosure, field, hidden, reasonDialog, reloading } from "../components.js";
import { h } from "../dom.js";
import { link } from "../format.js";
import { codeBlock } from "./code.js";
import { ruleText } from "./document.js";
import { lastChange } from "./last_change.js";
import { changeRule, readText, switchRule } from "./store.js";
import { changeWords } from "./words.js";

/** @import { Rule } from "../api.js" */
/** @import { Item } from "./list.js" */

/**
 * @param {import("../main.js").Context} context @param {Item} item
 * @param {() => Promise<void>} onChange shows the rules that have changed
 */
export function rowActions(context, { set, id, rule }, onChange) {
  const { session, notify } = context;
  const { writable } = session;
  const name = `${set}/${id}`;
  const isAdmin = session.role === "admin";
  const maySwitch = writable && session.role !== "viewer";
  const [yaml, past, more] = [h("div"), h("div"), h("div")];

  const read = async () => {
    const { text } = writable ? await readText(set) : await get("/v1/rules_text");
    return codeBlock(ruleText(text, writable ? null : set, id) ?? text, `${name} in YAML`);
  };
  const once = (/** @type {() => Promise<HTMLElement>} */ load) => reloading(context, load, { followsRules: false }).element;
  const enable = () => ask(`Enable ${name}?`, "The rule will apply to requests that it matches.", "Enable",
    (reason) => switchRule(set, id, "enable", reason), `${name} is enabled.`);
  const actions = [
    disclosure("YAML", yaml, () => once(read), `of ${name}`),
    rule && disclosure("Last change", past, () => once(() => lastChange(context, set, id)), `of ${name}`),
    isAdmin && writable && h("a.button", { href: link("rules", { view: "edit", set, rule: id }) }, "Edit", hidden(`of ${name}`)),
    maySwitch && rule && disclosure("Switches", more, () => switches(rule), `of ${name}`),
    maySwitch && !rule && button("Enable…", enable, { of: name }),
  ];

  /** @param {Rule} rule */
  function switches({ mode, key, rollout }) {
    const isShadow = mode === "shadow";
    const percent = h("input", {
      type: "number", min: 0, max: 100, step: 0.01, required: true, value: parseFloat(rollout ?? "100"),
    });
    const hint = isShadow ? "The rollout has no effect while the rule is in shadow." : undefined;
    return h("div.switches.stack-small",
      h("div.row",
        isAdmin && (isShadow
          ? button("Enforce…", () => ask(`Enforce ${name}?`,
            "The rule denies requests that exceed it from now on, on all instances.", "Enforce",
            (reason) => changeRule(set, id, { mode: "enforce" }, reason)))
          : button("Switch to shadow…", () => ask(`Switch ${name} to shadow?`,
            "The rule will count and report, but deny nothing.", "Switch to shadow",
            (reason) => changeRule(set, id, { mode: "shadow" }, reason)))),
        button("Disable…", () => ask(`Disable ${name}?`, "The rule will be ignored.",
          "Disable", (reason) => switchRule(set, id, "disable", reason)))),
      isAdmin && key.length > 0 && h("div.row.bottom",
        field("Rollout, % of identities", percent, hint),
        button("Change…", () => {
          const next = `${Number(percent.value)}%`;
          if (percent.reportValidity()) ask(`Enforce ${name} for ${next}?`,
            "The choice depends on the identity alone. For the others, the rule is in shadow.", "Change",
            (reason) => changeRule(set, id, { rollout: next === "100%" ? undefined : next }, reason));
        })));
  }

  /**
   * @param {string} title @param {string} text @param {string} action
   * @param {(reason: string) => Promise<import("./store.js").Written>} write @param {string} [done]
   */
  async function ask(title, text, action, write, done) {
    const given = await reasonDialog(title, text, action);
    if (!given) return;
    try {
      const { changes, delayed } = await write(given.reason);
      const words = changes.map((each) => changeWords(/** @type {any} */ (each))).join(" ") || "Nothing has changed.";
      // First, so that what is used next is what stays.
      await onChange();
      notify(delayed ?? done ?? words, delayed ? "bad" : "good");
    } catch (error) {
      const isRace = error instanceof Problem && error.status === 412;
      notify(isRace
        ? "412 Not applied: the rule was changed at the same time. Try again."
        : String(error), "bad");
    }
  }

  return { actions, more: h("div.rule-more", yaml, past, more) };
}
