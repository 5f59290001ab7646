// The history of a stored rule set.

import { get } from "../api.js";
import { badge, button, empty } from "../components.js";
import { h, replace } from "../dom.js";
import { ago, time } from "../format.js";
import { codeBlock, diffBlock } from "./code.js";
import { keep } from "./drafts.js";
import { pathOf, readText } from "./store.js";

/** @typedef {{at_ms: number, who: string, what: string, etag: string, text: string | null}} Change */

/**
 * @param {import("../main.js").Context} context
 * @param {string} set
 * @returns {Promise<HTMLElement>}
 */
export async function history(context, set) {
  /** @type {{changes: Change[]}} */
  const { changes } = await get(`${pathOf(set)}/history`, context.signal);
  if (changes.length === 0) {
    return h("div", { class: "card" }, empty("No history yet", "The next change of this rule set is the first to be listed."));
  }
  return h("section", { class: "card" },
    h("h2", {}, "Changes, newest first"),
    h("ol", { class: "history" }, changes.map((change, index) =>
      entry(context, set, change, changes[index + 1], index === 0))));
}

/**
 * @param {import("../main.js").Context} context
 * @param {string} set
 * @param {Change} change
 * @param {Change | undefined} before
 * @param {boolean} isActive
 */
function entry(context, set, change, before, isActive) {
  const place = h("div", { hidden: true });
  const text = change.text ?? "";
  const diff = before && diffBlock(before.text ?? "", text, "Changed lines");
  const see = button(before ? "See the change" : "See the text", () => {
    place.hidden = !place.hidden;
    see.setAttribute("aria-expanded", String(!place.hidden));
    // The oldest has nothing to compare with.
    replace(place, diff ? diff.element : codeBlock(text, "Text after the change"));
  });
  see.setAttribute("aria-expanded", "false");
  const canRestore = context.session.role === "admin" && change.text !== null && !isActive;
  return h("li", { class: "change" },
    h("div", { class: "rule-head" },
      h("h3", {}, h("time", { datetime: new Date(change.at_ms).toISOString() }, time(change.at_ms))),
      h("span", { class: "quiet" }, ago(change.at_ms)),
      isActive && badge("active", "good")),
    h("p", {}, h("strong", {}, change.who), ` · ${change.what}`, diff && ` · ${diff.words}`),
    h("div", { class: "actions" }, see,
      canRestore && button("Restore in the editor", () => restore(context, set, text))),
    place);
}

/**
 * Puts an old text into the editor. It is not active until it is applied.
 * @param {import("../main.js").Context} context
 * @param {string} set
 * @param {string} text
 */
async function restore(context, set, text) {
  try {
    const stored = await readText(set, context.signal);
    keep(set, { text, base: stored.text, etag: stored.etag });
    context.navigate(`#/rules?${new URLSearchParams({ view: "edit", set })}`);
  } catch (error) {
    context.notify(/** @type {Error} */ (error).message, "bad");
  }
}
