// Switches of one stored rule: enabled, mode and rollout. Only those that the role permits.

import { Problem } from "../api.js";
import { button, confirmDialog, field, problemNotice } from "../components.js";
import { h, replace } from "../dom.js";
import { changeWords } from "./outcome.js";
import { changeRule, enableRule } from "./store.js";

/** @typedef {import("./words.js").Rule} Rule */
/** @typedef {{context: import("../main.js").Context, set: string, onChange: () => void}} Options */

/**
 * @param {Rule} rule
 * @param {Options} options
 * @returns {HTMLElement}
 */
export function switches(rule, { context, set, onChange }) {
  const messages = h("div", {});
  const name = `${set}/${rule.id}`;

  /**
   * @param {string} title
   * @param {string} text
   * @param {string} action
   * @param {() => Promise<import("./store.js").Written>} write
   */
  async function ask(title, text, action, write) {
    if (!(await confirmDialog(title, text, action))) return;
    try {
      const { changes, delayed } = await write();
      context.notify(delayed ?? (changes.map(changeWords).join(" ") || "Nothing has changed."), delayed ? "bad" : "good");
      onChange();
    } catch (error) {
      const raced = error instanceof Problem && error.status === 412;
      replace(messages, problemNotice(raced
        ? new Problem(412, "Somebody else changed this rule at the same moment. Nothing was changed. Try again.")
        : error));
    }
  }

  const isAdmin = context.session.role === "admin";
  const shadow = rule.mode === "shadow";
  const mode = button(shadow ? "Enforce …" : "Switch to shadow …", () => {
    const text = shadow
      ? "From then on, the rule denies requests that exceed it."
      : "From then on, the rule counts and reports, but denies nothing.";
    ask(`${shadow ? "Enforce" : "Shadow"} ${name}?`, text, shadow ? "Enforce" : "Switch to shadow",
      () => changeRule(set, rule.id, { mode: shadow ? "enforce" : "shadow" }));
  });
  const disable = button("Disable …", () => {
    ask(`Disable ${name}?`, "From then on, the rule is ignored.", "Disable", () => enableRule(set, rule.id, false));
  });
  return h("div", { class: "switches stack-small" },
    h("div", { class: "row" }, isAdmin && mode, disable),
    isAdmin && rule.key.length > 0 && rollout(rule, (percent) =>
      ask(`Enforce ${name} for ${percent}?`, "It is decided by the identity alone; the others have the rule in shadow.",
        "Change", () => changeRule(set, rule.id, { rollout: percent === "100%" ? undefined : percent }))),
    messages);
}

/**
 * @param {Rule} rule
 * @param {(percent: string) => void} change
 */
function rollout(rule, change) {
  const input = h("input", {
    type: "number", min: 0, max: 100, step: 0.01, required: true, value: parseFloat(rule.rollout ?? "100"),
  });
  return h("div", { class: "stack-small" },
    h("div", { class: "rollout" },
      field("Rollout, % of identities", input),
      button("Change …", () => {
        if (input.reportValidity()) change(`${Number(input.value)}%`);
      })),
    rule.mode === "shadow" && h("p", { class: "hint" }, "The rollout has no effect while the rule is in shadow."));
}

/**
 * A button for a rule that is stored, but disabled.
 * @param {string} rule
 * @param {Options} options
 */
export function enableButton(rule, { context, set, onChange }) {
  const element = button("Enable …", async () => {
    const text = "From then on, the rule applies to the requests that it matches.";
    if (!(await confirmDialog(`Enable ${set}/${rule}?`, text, "Enable"))) return;
    try {
      const { delayed } = await enableRule(set, rule, true);
      context.notify(delayed ?? `${set}/${rule} is enabled.`, delayed ? "bad" : "good");
      onChange();
    } catch (error) {
      context.notify(/** @type {Error} */ (error).message, "bad");
    }
  });
  element.append(h("span", { class: "visually-hidden" }, ` ${set}/${rule}`));
  return element;
}
