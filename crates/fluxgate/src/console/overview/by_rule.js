// What each rule decided in the time that the chart shows.

import { REFUSED } from "../api.js";
import { h, setText } from "../dom.js";
import { count, duration, link, number, rate, share, sum } from "../format.js";
import { stepsOf } from "./history.js";
import { rowList } from "./row_list.js";

/** @import { Range, Recorded } from "./history.js" */

const SHOWN = 8;

export function byRuleCard() {
  const list = rowList(SHOWN);
  const text = h("p.hint", "Loading…");

  /** @param {Recorded | null} recorded @param {Range} range */
  function update(recorded, range) {
    if (!recorded) return setText(text, "It is tried again every few seconds.");
    // The last minute or, in minutes, the last five; the last step is not over yet.
    const recent = Math.max(1, Math.min(recorded.step === 1000 ? 60 : 5, stepsOf(recorded) - 1));
    const seconds = (recent * recorded.step) / 1000;
    /** @type {Map<string, {set: string, rule: string, passed: number, refused: number, shadow: number, recent: number}>} */
    const sums = new Map();
    for (const { rule_set: set, rule, outcome, values } of recorded.rules) {
      if (set === null || rule === null) continue;
      const key = JSON.stringify([set, rule]);
      const counts = sums.get(key) ?? { set, rule, passed: 0, refused: 0, shadow: 0, recent: 0 };
      const all = sum(values);
      counts.recent += sum(values.slice(-recent - 1, -1));
      if (REFUSED.includes(outcome)) counts.refused += all;
      else if (outcome === "shadow_denied") counts.shadow += all;
      else counts.passed += all;
      sums.set(key, counts);
    }
    const order = [...sums.values()].filter(({ passed, refused, shadow }) => passed + refused + shadow > 0)
      .sort((a, b) => b.refused - a.refused || b.passed - a.passed);
    list.show(order.map(({ set, rule, passed, refused, shadow, recent: lately }) => ({
      key: JSON.stringify([set, rule]),
      name: `${set} / ${rule}`,
      href: link("rules", { set, rule }),
      value: rate(lately / seconds),
      detail: `${number(passed)} passed, ${number(refused)} refused`
        + (shadow > 0 ? `, ${number(shadow)} would be refused (shadow)` : ""),
      part: refused / (passed + refused + shadow),
      bar: `Refused by ${set} / ${rule}: ${share(refused / (passed + refused + shadow))}`,
    })));
    const span = duration(Math.round(range.span / 60_000) * 60_000);
    const rest = order.length - SHOWN;
    setText(text, order.length === 0 ? `No rule took part in a decision in the last ${span}.`
      : `In the last ${span}, of all instances. The bar is the share that was refused.`
        + (rest > 0 ? ` ${count(rest, "more rule is", "more rules are")} not shown.` : ""));
  }
  const element = h("section.card", { "aria-label": "Rules" },
    h("div.card-head", h("h2", "Rules that refuse most"), h("a", { href: "#/rules" }, "All rules")), list.element, text);
  return { element, update };
}
