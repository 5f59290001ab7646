// What one identity has left under one rule, and what can be done about it.

import { post } from "../api.js";
import { now } from "../clock.js";
import { badge, button, gauge, notice, problemNotice, reasonDialog } from "../components.js";
import { h, replace, setText } from "../dom.js";
import { capitalized, count, isNamed, link, number } from "../format.js";
import { algorithmWords, limitWords } from "../rules/words.js";
import { leftWords, nextWords, refundWords, resetDone, resetWords, slotWords, unitOf, usedWords, windowDates } from "./bands.js";
import { explainHandle } from "./explain.js";
import { nounOf } from "./parts.js";
import { raiseDialog } from "./raise.js";
import { readStates, targetOf } from "./subjects.js";

/** @import { Band } from "../api.js" */
/** @import { Context } from "../main.js" */
/** @import { State } from "./bands.js" */
/** @import { Subject } from "./subjects.js" */
/** @typedef {ReturnType<typeof ruleCard>} RuleCard */

const UNCERTAIN = "Whether it was done is not known: look at what is left.";

/**
 * @param {Context} context @param {Subject} subject
 * @param {{isShared?: boolean}} [options] `isShared`: it is a counter of everyone, shown on the page of
 * a customer, who must not be able to change it by mistake
 */
export function ruleCard({ session, notify }, subject, { isShared = false } = {}) {
  const { set, rule } = subject;
  const name = `${set}/${rule.id}`;
  const unit = unitOf(rule);
  const isGlobal = rule.key.length === 0;
  const who = () => isGlobal ? "everyone" : subject.name || "this identity";
  const mayChange = session.role !== "viewer" && !isShared;
  const bands = h("ul.id-bands");
  const next = h("p.id-next", { hidden: true });
  const problem = h("p.hint.id-problem", { hidden: true });
  const identity = h("span");
  const message = h("div.stack-small");
  const explained = h("div.stack-small", { "aria-live": "polite" });
  const label = subject.isOwn ? name : `${name} of ${subject.name || "an identity seen together"}`;
  const element = h("section.card.id-rule.stack-small", { "aria-label": label },
    h("div.row",
      h("h3", h("span.quiet", `${set} / `), h("a", { href: link("rules", { set, rule: rule.id }) }, rule.id)),
      rule.mode === "shadow" && badge("shadow: never denies", "info"),
      rule.rollout && badge(`enforced for ${rule.rollout}`, "info")),
    h("p.hint", rule.name && `${rule.name}. `, `${capitalized(algorithmWords(rule.algorithm))}, `,
      isGlobal ? "one counter for all requests." : `counted by ${rule.key.map(nounOf).join(" and ")}.`, identity),
    next, bands, problem, actions(), message, explained);

  /** @param {State} state */
  const limitOf = (state) => {
    const band = rule.bands.find(({ id }) => id === state.band);
    return band && band.capacity === state.limit ? limitWords(band) : count(state.limit, unit);
  };

  function update() {
    const { states, retry } = subject;
    const shown = subject.name !== "" && !isGlobal && !(subject.isOwn && subject.identity);
    setText(identity, shown ? ` ${capitalized(subject.isOwn ? "" : "seen together: ")}${subject.name}` : "");
    const at = now();
    if (states) {
      replace(bands, states.map((state) =>
        bandItem(state, rule.bands.find(({ id }) => id === state.band), subject, unit, at)));
      const text = nextWords(states, retry, rule);
      setText(next, text);
      next.hidden = text === "";
    }
    element.toggleAttribute("data-stale", subject.problem !== "" && states !== null);
    setText(problem, subject.problem && `${states ? "Not up to date: " : ""}${subject.problem}`);
    problem.hidden = subject.problem === "";
  }

  function actions() {
    if (isShared) return h("p.hint", "All customers share this counter. Change it from the page of its rule.");
    const explain = button("Explain", async () => {
      if (subject.handle) replace(explained, ...await explainHandle(set, subject.handle));
      else replace(explained, notice("warn", "The identity is too long to be looked up by a handle: explain a request below."));
    }, { of: name });
    if (!mayChange) return h("div.actions.id-actions", explain, !isGlobal && raise());
    const units = h("input.id-units", {
      type: "number", min: 1, max: 1_000_000_000, step: 1, value: 1,
      "aria-label": `${capitalized(unit)}s to refund: ${name}`,
    });
    const refund = button("Refund…", () => units.reportValidity() && askRefund(Number(units.value)));
    const reset = button("Reset…", askReset, { kind: "danger" });
    refund.ariaLabel = `Refund ${unit}s: ${name}`;
    reset.ariaLabel = `Reset: ${name}`;
    // Slots end with their requests; a refund does not change them.
    const hasUnits = rule.algorithm !== "concurrency";
    return h("div.actions.id-actions", explain, hasUnits && h("span.row.tight", units, refund),
      !isGlobal && raise(), reset);
  }

  function raise() {
    const open = button("Raise until…", () => raiseDialog({ session, notify }, subject));
    open.ariaLabel = `Raise until…: ${name}`;
    return open;
  }

  /** @param {number} units */
  function askRefund(units) {
    const text = `Gives ${count(units, unit)} back to ${who()}, in every band (limit) of ${name}, but not `
      + "more than is used.";
    return change(`Refund ${unit}s?`, text, "Refund", "primary", async (reason) => {
      const before = await fresh();
      await post("/v1/refund", { ...targetOf(subject), units }, undefined, reason);
      return refundWords(before, await fresh(), units, unit, limitOf);
    });
  }

  function askReset() {
    const what = isGlobal ? "Deletes the counter that all requests share" : `Deletes the counters of ${who()}`;
    return change(`Reset ${name}?`, `${what} under ${name}: all of the limit is available again. This cannot be undone.`,
      "Reset", "danger", async (reason) => {
        const { reset } = await post("/v1/reset", targetOf(subject), undefined, reason);
        return resetDone(reset, await fresh(), who(), limitOf);
      });
  }

  async function fresh() {
    await readStates([subject]);
    if (subject.problem) throw new Error(subject.problem);
    update();
    return subject.states ?? [];
  }

  /**
   * @param {string} title @param {string} text @param {string} action @param {"primary" | "danger"} kind
   * @param {(reason: string) => Promise<{kind: "good" | "quiet", text: string}>} run
   */
  async function change(title, text, action, kind, run) {
    const answer = await reasonDialog(title, text, action, { kind });
    if (!answer) return;
    replace(explained);
    try {
      const done = await run(answer.reason);
      replace(message, notice(done.kind, done.text));
    } catch (error) {
      const status = /** @type {{status?: number}} */ (error).status ?? 500;
      replace(message, problemNotice(error), (status === 0 || status >= 500) && h("p.hint", UNCERTAIN));
    }
  }

  update();
  return { element, update };
}

/** @param {State} state @param {Band | undefined} band as the rule has it @param {Subject} subject @param {string} unit @param {number} at */
function bandItem(state, band, { rule, ends }, unit, at) {
  const { band: id, limit, remaining, on_lease: leased } = state;
  const meter = gauge(`Used of ${id}`);
  meter.update(limit - remaining, limit);
  const foot = [
    usedWords(state, unit),
    resetWords(state, band, rule, at),
    leased !== undefined && leased > 0 && `${number(leased)} on lease to instances`,
  ];
  return h("li",
    h("div.row.spread",
      h("span", isNamed(id) && h("span.mono", `${id} `), h("span.hint", band && `${limitWords(band)} `),
        band && band.capacity !== limit && badge(`override: ${count(limit, unit)}`, "info")),
      h("strong.id-left", leftWords(state, unit))),
    meter,
    h("p.row.hint", foot.map((text) => text && h("span", text))),
    ends.length > 0 && h("p.hint", `Unless released or renewed, they expire: ${slotWords(ends)}.`),
    band?.calendar && h("p.hint", windowDates(band, at)));
}
