// Rules by the share of their limit that is used.

import { gauge } from "./components.js";
import { h } from "./dom.js";
import { compact, count, share } from "./format.js";
import { totals } from "./live.js";

const SHOWN = 8;
/** The highest share of this time is shown, so that a rule does not jump with each second. */
const PEAK_MS = 10_000;
const KEEP_MS = 60_000;
const MAX_KEPT = 500;

/** @typedef {{
 *   set: string, rule: string, used: number, usedAt: number, seen: number,
 *   allowed: number, denied: number, shadow: number,
 * }} Entry */

/** A card that takes the live events. */
export function pressure() {
  /** @type {Map<string, Entry>} */
  const entries = new Map();
  /** @type {Entry[]} */
  let order = [];
  const list = h("ol", { class: "ranking" });
  const rows = Array.from({ length: SHOWN }, () => ruleRow());
  list.append(...rows.map(({ element }) => element));
  const text = h("p", { class: "hint" });

  /** @param {import("./live.js").LiveEvent} event */
  function update({ at_ms: now, rules }) {
    for (const entry of entries.values()) entry.allowed = entry.denied = entry.shadow = 0;
    for (const { rule_set: set, rule, outcomes, used } of rules) {
      const key = JSON.stringify([set, rule]);
      const entry = entries.get(key) ??
        { set, rule, used: 0, usedAt: 0, seen: 0, allowed: 0, denied: 0, shadow: 0 };
      Object.assign(entry, totals(outcomes), { seen: now });
      if (used !== null && (used >= entry.used || now - entry.usedAt > PEAK_MS)) {
        Object.assign(entry, { used, usedAt: now });
      }
      entries.set(key, entry);
    }
    for (const [key, entry] of entries) {
      if (now - entry.seen > KEEP_MS || entries.size > MAX_KEPT) entries.delete(key);
    }
    // Rows do not change places under the pointer or the focus.
    if (!list.matches(":hover, :focus-within")) {
      order = [...entries.values()].sort((a, b) => b.used - a.used || b.denied - a.denied);
    }
    rows.forEach((row, index) => row.show(order[index]));
    text.textContent = entries.size === 0
      ? "No rule has decided in the last minute."
      : `The highest used share of a limit in the last 10 seconds.${more(entries.size)}`;
  }

  return {
    element: h("section", { class: "card" },
      h("div", { class: "card-head" }, h("h2", {}, "Rules by pressure")), list, text),
    update,
  };
}

/** @param {number} size */
function more(size) {
  return size > SHOWN ? ` ${count(size - SHOWN, "more rule is", "more rules are")} below these.` : "";
}

function ruleRow() {
  const link = h("a", { class: "ranking-name" });
  const bar = gauge(0, 1, "Used share");
  const used = h("span", { class: "ranking-value" });
  const rates = h("span", { class: "hint ranking-detail" });
  const element = h("li", { class: "ranking-row", hidden: true }, link, used, bar, rates);
  let shown = "";
  return {
    element,
    /** @param {Entry | undefined} entry */
    show(entry) {
      element.hidden = !entry;
      if (!entry) return;
      const name = `${entry.set} / ${entry.rule}`;
      if (shown !== name) {
        shown = name;
        link.textContent = name;
        link.href = `#/rules?${new URLSearchParams({ set: entry.set, rule: entry.rule })}`;
        bar.setAttribute("aria-label", `Used share of ${name}`);
      }
      bar.update(entry.used, 1);
      used.textContent = share(entry.used);
      const shadow = entry.shadow > 0 ? `, ${compact(entry.shadow)}/s shadow-denied` : "";
      rates.textContent = `${compact(entry.allowed)}/s allowed, ${compact(entry.denied)}/s denied${shadow}`;
    },
  };
}
