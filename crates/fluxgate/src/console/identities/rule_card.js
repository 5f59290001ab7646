// The state of one identity under one rule: what each band has left, refunds and resets.

import { get, post, Problem } from "../api.js";
import { badge, button, confirmDialog, gauge, notice, problemNotice } from "../components.js";
import { h, replace } from "../dom.js";
import { capitalized, count, link, number, wait } from "../format.js";
import { algorithmWords, limitWords } from "../rules/words.js";
import { describe, nounOf } from "./parts.js";

/** @import { Band } from "../api.js" */
/** @typedef {{
 *   band: string, limit: number, remaining: number, reset_after_ms: number, on_lease?: number,
 * }} State */

/**
 * @param {import("./parts.js").Entry} entry @param {import("./parts.js").Values} values
 * @param {boolean} mayChange whether the session may refund and reset
 */
export function ruleCard({ set, rule }, values, mayChange) {
  const identity = rule.key.map((part) => values.get(part) ?? "");
  const isShared = identity.length === 0;
  const who = isShared ? "everyone" : describe(rule.key.map((part, i) => [part, identity[i]]));
  const name = `${set}/${rule.id}`;
  const target = { rule_set: set, rule: rule.id, identity };
  const bands = h("ul.id-bands");
  const message = h("div");
  const element = h("section.card.id-rule.stack-small", { "aria-label": name },
    h("div.row",
      h("h3", h("span.quiet", `${set} / `), h("a", { href: link("rules", { set, rule: rule.id }) }, rule.id)),
      rule.mode === "shadow" && badge("shadow", "info")),
    h("p.hint", rule.name && `${rule.name}. `, `${capitalized(algorithmWords(rule.algorithm))}, `,
      isShared ? "one counter for all requests." : `counted by ${rule.key.map(nounOf).join(" and ")}.`),
    bands, mayChange && actions(), message);

  /** @type {State[]} */
  let states = [];

  /** @param {AbortSignal} [signal] */
  async function refresh(signal) {
    const query = new URLSearchParams({ rule_set: set, rule: rule.id });
    for (const value of identity) query.append("identity", value);
    try {
      states = (await get(`/v1/state?${query}`, signal)).bands;
      delete element.dataset.stale;
      replace(bands, states.map((state) =>
        bandItem(state, rule.bands.find(({ id }) => id === state.band))));
    } catch (error) {
      if (signal?.aborted) return;
      element.dataset.stale = "";
      const isAnswer = error instanceof Problem && error.status > 0 && error.status < 500;
      if (!isAnswer) throw error;
      // The service answers, but not for this rule and identity.
      replace(bands, h("li", problemNotice(error)));
    }
  }

  function actions() {
    const units = h("input.id-units", {
      type: "number", min: 1, max: 1_000_000_000, step: 1, value: 1,
      "aria-label": `Units to refund to ${name}`,
    });
    const refund = button("Refund…", () => units.reportValidity() && change("Refund units?",
      `${count(Number(units.value), "unit")} to ${who}, in every band of ${name}, but not more than is used.`,
      "Refund", async () => {
        const { remaining } = await post("/v1/refund", { ...target, units: Number(units.value) });
        return `Refunded. ${number(remaining)} left.`;
      }));
    const reset = button("Reset…", () => change(`Reset ${name}?`,
      `Deletes the counters of ${who}. This cannot be undone.`,
      "Reset", async () => {
        const { reset } = await post("/v1/reset", target);
        return reset === 0 ? "There was nothing to reset." : `Reset: ${count(reset, "counter")} deleted.`;
      }), { kind: "danger" });
    refund.ariaLabel = `Refund units: ${name}`;
    reset.ariaLabel = `Reset: ${name}`;
    // Slots end with their requests; a refund does not change them.
    const hasUnits = rule.algorithm !== "concurrency";
    return h("div.actions.id-actions", hasUnits && units, hasUnits && refund, reset);
  }

  /** @param {string} title @param {string} text @param {string} action @param {() => Promise<string>} send */
  async function change(title, text, action, send) {
    if (!(await confirmDialog(title, text, action))) return;
    try {
      replace(message, notice("good", await send()));
      await refresh();
    } catch (error) {
      replace(message, problemNotice(error));
    }
  }

  return {
    element,
    refresh,
    /** Whether the identity has used a band; null if all share the bands or they are not known. */
    isUsed: () => isShared || states.length === 0 ? null
      : states.some(({ remaining, limit }) => remaining < limit),
  };
}

/** @param {State} state @param {Band | undefined} band as the rule has it */
function bandItem({ band: id, limit, remaining, reset_after_ms: reset, on_lease: leased }, band) {
  const isSlots = band?.hold_ms !== undefined;
  const used = limit - remaining;
  const meter = gauge(`Used of ${id}`);
  meter.update(used, limit);
  const foot = [
    `${number(used)} of ${number(limit)} ${isSlots ? "slots taken" : "used"}`,
    reset > 0 && (isSlots ? `all free in ${wait(reset)} at the latest` : `all available in ${wait(reset)}`),
    leased !== undefined && `${number(leased)} on lease`,
  ];
  return h("li",
    h("div.row.spread",
      h("span", h("span.mono", id), h("span.hint", band && ` ${limitWords(band)} `),
        band && band.capacity !== limit && badge("override", "info")),
      h("strong.id-left", `${number(remaining)} ${isSlots ? "free" : "left"}`)),
    meter,
    h("p.row.hint", foot.map((text) => text && h("span", text))));
}
