// What came of a write: the changes, or that somebody else was faster.

import { button, notice } from "../components.js";
import { h, replace } from "../dom.js";
import { diffBlock } from "./code.js";

/** @typedef {import("./store.js").Change} Change */

/**
 * @param {import("./store.js").Written} answer
 * @returns {HTMLElement}
 */
export function writtenNotice({ changes, warnings, delayed }) {
  const head = delayed ?? (changes.length === 0 ? "Applied. Nothing has changed in effect." : "Applied. The new rules are active.");
  return notice(delayed ? "warn" : "good",
    h("p", {}, h("strong", {}, head)),
    changes.length > 0 && h("ul", {}, changes.map((change) => h("li", {}, changeWords(change)))),
    warnings.length > 0 && h("p", {}, "Warnings:"),
    warnings.length > 0 && h("ul", {}, warnings.map(({ message }) => h("li", {}, message))));
}

/**
 * Returns a change in words: `per-user: bands from … to …`.
 * @param {Change} change
 */
export function changeWords({ rule_set: set, rule, change, fields }) {
  const what = rule === null ? `Rule set ${set}` : `Rule ${rule}`;
  if (fields.length === 0) return `${what} ${change}.`;
  const values = fields.map(({ field, before, after }) =>
    `${field} from ${before ?? "the default"} to ${after ?? "the default"}`);
  return `${what}: ${values.join("; ")}.`;
}

/**
 * A choice what to do when the stored set is no longer the one that was edited.
 * @param {import("./store.js").Stored} theirs
 * @param {() => string} mine
 * @param {{canWrite: boolean, overwrite: () => void, discard: () => void}} actions
 * @returns {HTMLElement}
 */
export function conflict(theirs, mine, { canWrite, overwrite, discard }) {
  const difference = h("div", { hidden: true });
  const see = button("See the difference", () => {
    difference.hidden = !difference.hidden;
    see.setAttribute("aria-expanded", String(!difference.hidden));
    replace(difference, h("p", {}, "From their text (-) to yours (+):"),
      diffBlock(theirs.text, mine(), "From their text to yours").element);
  });
  see.setAttribute("aria-expanded", "false");
  const gone = theirs.etag === null;
  return h("section", { class: "card conflict stack-small", tabindex: -1, role: "alert" },
    h("h2", {}, gone ? "Somebody else has deleted this rule set" : "Somebody else has changed this rule set"),
    h("p", {}, "Your text is based on an older version. Nothing of it has been applied, and nothing of it is lost."),
    h("div", { class: "actions" }, see,
      canWrite && button("Overwrite theirs with mine", overwrite, { kind: "danger" }),
      button("Discard mine", discard)),
    difference);
}
