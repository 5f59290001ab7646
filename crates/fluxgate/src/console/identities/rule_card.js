// The state of one identity under one rule: what each band has left, refunds and resets.

import { get, post } from "../api.js";
import { badge, button, confirmDialog, gauge, notice, problemNotice } from "../components.js";
import { h, replace } from "../dom.js";
import { count, number } from "../format.js";
import { identityOf, nounOf } from "./parts.js";
import { algorithmName, bandWords, wait } from "./words.js";

/** @typedef {import("./parts.js").Entry} Entry */
/** @typedef {import("./parts.js").Values} Values */
/** @typedef {import("./parts.js").Band} Band */

/** @typedef {{
 *   band: string, limit: number, remaining: number, reset_after_ms: number, on_lease?: number,
 * }} State */

/**
 * @typedef {object} RuleCard
 * @property {HTMLElement} element
 * @property {(signal: AbortSignal) => Promise<void>} refresh reads the state again, and throws if
 *   the service does not answer
 * @property {() => void} tick counts down to the refill
 * @property {() => boolean | null} isUsed whether a band of the identity's own has less
 *   than its limit; null if there is none or it is not known yet
 */

/**
 * @param {Entry} entry
 * @param {Values} values
 * @param {boolean} mayChange whether the session may refund and reset
 * @returns {RuleCard}
 */
export function ruleCard({ set, rule }, values, mayChange) {
  const identity = identityOf(rule, values);
  const shared = identity.length === 0;
  const who = shared ? "everyone" : rule.key.map((part, index) => `${part} = ${identity[index]}`).join(", ");
  const target = { rule_set: set, rule: rule.id, identity };
  const bands = h("ul", { class: "id-bands" });
  const message = h("div", { class: "id-message" });
  const link = `#/rules?${new URLSearchParams({ set, rule: rule.id })}`;
  const element = h("section", { class: "card id-rule", "aria-label": `${set}/${rule.id}` },
    h("div", { class: "id-rule-head" },
      h("h3", {}, h("span", { class: "quiet" }, `${set} / `), h("a", { href: link }, rule.id)),
      rule.mode === "shadow" && badge("shadow", "info"),
      shared && badge("shared by everyone", "quiet")),
    h("p", { class: "hint" }, rule.name && `${rule.name}. `,
      `${capitalized(algorithmName(rule.algorithm))}, `,
      shared ? "one counter for all requests." : `counted by ${rule.key.map(nounOf).join(" and ")}.`),
    bands, mayChange && actions(), message);

  /** @type {Map<string, ReturnType<typeof bandRow>>} */
  const rows = new Map();

  /** @param {AbortSignal} signal */
  async function refresh(signal) {
    const query = new URLSearchParams({ rule_set: set, rule: rule.id });
    for (const value of identity) query.append("identity", value);
    try {
      show((await get(`/v1/state?${query}`, signal)).bands);
    } catch (error) {
      if (signal.aborted) return;
      element.dataset.stale = "";
      const status = /** @type {{status?: number}} */ (error).status;
      if (status === 0 || (status ?? 0) >= 500) throw error;
      // The service answers, but not for this rule and identity.
      replace(bands, h("li", {}, problemNotice(error)));
      rows.clear();
    }
  }

  /** @param {State[]} states */
  function show(states) {
    delete element.dataset.stale;
    if (states.length !== rows.size || states.some(({ band }) => !rows.has(band))) {
      rows.clear();
      for (const { band } of states) {
        rows.set(band, bandRow(band, rule.bands.find(({ id }) => id === band)));
      }
      replace(bands, [...rows.values()].map((row) => row.element));
    }
    for (const state of states) rows.get(state.band)?.update(state);
  }

  function actions() {
    const units = h("input", { type: "number", min: 1, max: 1_000_000_000, step: 1, value: 1, class: "id-units",
      "aria-label": `Units to refund to ${set}/${rule.id}` });
    const refund = button("Refund…", async () => {
      if (!units.reportValidity()) return;
      const given = Number(units.value);
      const text = `${who} gets back ${count(given, "unit")} in every band of ${set}/${rule.id}, `
        + "up to what is used.";
      await change("Refund units?", text, "Refund", async () => {
        const { remaining } = await post("/v1/refund", { ...target, units: given });
        return `Refunded. ${number(remaining)} left.`;
      });
    });
    const reset = button("Reset…", async () => {
      const text = `All counters of ${who} under ${set}/${rule.id} start again from zero. `
        + "This cannot be undone.";
      await change("Reset this identity?", text, "Reset", async () => {
        const { reset } = await post("/v1/reset", target);
        return reset === 0 ? "There was nothing to reset." : `Reset: ${count(reset, "counter")} deleted.`;
      });
    }, { kind: "danger" });
    for (const [control, name] of /** @type {const} */ ([[refund, "Refund units"], [reset, "Reset"]])) {
      control.setAttribute("aria-label", `${name}: ${set}/${rule.id}`);
    }
    // Slots end with their requests; a refund does not change them.
    const hasUnits = rule.algorithm !== "concurrency";
    return h("div", { class: "id-actions" }, hasUnits && units, hasUnits && refund, reset);
  }

  /**
   * @param {string} title
   * @param {string} text
   * @param {string} action
   * @param {() => Promise<string>} send
   */
  async function change(title, text, action, send) {
    if (!(await confirmDialog(title, text, action))) return;
    try {
      replace(message, notice("good", await send()));
      await refresh(new AbortController().signal);
    } catch (error) {
      replace(message, problemNotice(error));
    }
  }

  return {
    element,
    refresh,
    tick: () => rows.forEach((row) => row.tick()),
    isUsed: () => (shared || rows.size === 0 ? null : [...rows.values()].some((row) => row.isUsed())),
  };
}

/**
 * @param {string} id
 * @param {Band | undefined} band as the rule has it
 */
function bandRow(id, band) {
  const meter = gauge(0, 1, `Used of ${id}`);
  const left = h("strong", { class: "id-left" });
  const used = h("span", {});
  const refill = h("span", {});
  const lease = h("span", {});
  const special = h("span", {});
  const element = h("li", {},
    h("div", { class: "id-band-head" },
      h("span", {}, h("span", { class: "mono" }, id),
        h("span", { class: "hint" }, band && ` ${bandWords(band)} `), special),
      left),
    meter,
    h("p", { class: "id-band-foot hint" }, used, refill, lease));
  const slots = band?.hold_ms !== undefined;
  /** @type {State | null} */
  let state = null;
  let readAt = 0;

  /** @param {State} next */
  function update(next) {
    state = next;
    readAt = performance.now();
    // Settled costs may exceed a limit, so used units have no upper bound here.
    const taken = next.limit - next.remaining;
    meter.update(taken, next.limit);
    left.textContent = slots ? `${number(next.remaining)} free` : `${number(next.remaining)} left`;
    used.textContent = `${number(taken)} of ${number(next.limit)} ${slots ? "slots taken" : "used"}`;
    lease.textContent = next.on_lease === undefined ? "" : `${number(next.on_lease)} on lease`;
    replace(special, band && band.capacity !== next.limit && badge("override", "info"));
    tick();
  }

  function tick() {
    if (!state) return;
    const rest = state.reset_after_ms - (performance.now() - readAt);
    if (state.reset_after_ms === 0) refill.textContent = "";
    else if (slots) refill.textContent = `all free in ${wait(rest)} at the latest`;
    else refill.textContent = rest <= 0 ? "full again now" : `full again in ${wait(rest)}`;
  }

  return { element, update, tick, isUsed: () => state !== null && state.remaining < state.limit };
}

/** @param {string} text */
function capitalized(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
