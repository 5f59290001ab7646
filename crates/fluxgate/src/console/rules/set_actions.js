// What can be done with a rule set of the list.

import { button, hidden, reasonDialog } from "../components.js";
import { h } from "../dom.js";
import { count, link } from "../format.js";
import { deleteSet } from "./store.js";

/**
 * @param {import("../main.js").Context} context @param {string} set @param {number} active its active rules
 * @param {() => Promise<void>} onChange
 */
export function setActions({ session, notify }, set, active, onChange) {
  if (!session.writable) return null;
  const isAdmin = session.role === "admin";
  /** @param {string} text @param {string} view */
  const action = (text, view) => h("a.button", { href: link("rules", { view, set }) }, text, hidden(`of ${set}`));

  async function askToDelete() {
    const given = await reasonDialog(`Delete ${set}?`,
      `${count(active, "active rule")} of it will no longer limit anything, on all instances. Requests that name `
      + "this rule set are then decided by on_missing_rule_set, which allows them by default. The history keeps the text.",
      "Delete the rule set");
    if (!given) return;
    try {
      await deleteSet(set, given.reason);
      await onChange();
      notify(`The rule set ${set} is deleted.`);
    } catch (error) {
      notify(String(error), "bad");
    }
  }

  return [action("History", "history"), action(isAdmin ? "Edit" : "Text", "edit"),
    isAdmin && button("Delete…", askToDelete, { of: `the rule set ${set}` })];
}
