// A decision, and how each rule contributes to it, in words.

import { badge, hidden, notice } from "../components.js";
import { h } from "../dom.js";
import { count, duration, isNamed, listed, number, wait } from "../format.js";

/** @typedef {Record<string, any>} Decision of `POST /v1/explain`, docs/api.md */
/** @typedef {Record<string, any>} Explained a rule of its answer */

/**
 * Returns `Allowed.` or `Denied.` with the reason.
 * @param {Decision} decision @param {string} [more] what it does not cover
 */
export function verdict(decision, more) {
  const { allowed, outcome } = decision;
  const isDoubtful = outcome === "no_rule" || outcome === "shadow_denied";
  const shown = notice(!allowed ? "bad" : isDoubtful ? "warn" : "good",
    h("p", h("strong", allowed ? "Allowed. " : "Denied. "), decisionWords(decision)),
    more && h("p.hint", more));
  // The region around it is read out already.
  shown.removeAttribute("role");
  return shown;
}

/** @param {Decision} decision */
function decisionWords(decision) {
  const { allowed, outcome, rule, band, limit, remaining, retry_after_ms: retry, violated } = decision;
  const place = isNamed(band) ? `${rule}/${band}` : rule;
  const by = listed(violated.map((/** @type {string} */ each) => each.replace(/\/b\d+$/, ""))) || place;
  if (outcome === "no_rule") return "No rule applies to it.";
  if (outcome === "forbidden") return `The rule ${rule} forbids it.`;
  if (outcome === "exempt") return `The rule ${rule} exempts it from every limit.`;
  if (allowed) {
    const delay = decision.delay_ms > 0 ? `It has to wait for ${duration(decision.delay_ms)}. ` : "";
    return (outcome === "shadow_denied" ? `${by} would deny it, but is in shadow mode. ` : delay)
      + (limit === null ? "Only shadow rules apply to it."
        : `${number(remaining)} of ${number(limit)} left in ${place} afterwards.`);
  }
  if (by.endsWith("/missing_key")) return `The request lacks a part of the key: ${by}.`;
  if (retry === null) return `It costs more than ${by} ever allows, so it never passes.`;
  return `By ${by}. It would pass in ${wait(retry)}.`;
}

/** @param {Explained[]} rules */
export const explainedRules = (rules) => h("ol.id-rules", rules.map(explainedRule));

/** @param {Explained} explained */
function explainedRule(explained) {
  const { rule, matched, applies, mode, action, bands } = explained;
  const isShadow = mode === "shadow";
  const denies = action === "deny" || bands.some((/** @type {Explained} */ band) => band.denies);
  const state = !matched ? badge("does not match")
    : !applies ? badge("matches, does not apply")
    : !denies ? badge(action === "allow" ? "exempts" : "passes", "good")
    : isShadow ? badge("would deny", "warn") : badge("denies", "bad");
  return h(applies ? "li" : "li.quiet",
    h("div.row", h("strong.mono", rule), state, isShadow && badge("shadow", "info")),
    h("ul.hint", reasonsOf(explained).map((reason) => h("li", reason))),
    h("ul", bands.map(explainedBand)));
}

/** @param {Explained} explained */
function reasonsOf({ failed, list, identity, missing, applies, mode, group, rollout, lease }) {
  const isHere = mode === "enforce" ? ", including this one" : ", but not this one";
  return [
    failed === "enabled" ? "It is disabled."
      : failed === "key" ? "The request lacks a part of its key, and on_missing_key is skip."
      : failed && `Its match fails at ${failed}${list ? ` (list ${list})` : ""}.`,
    identity && (identity === "(everyone)" ? "Counts everyone together." : `Counts ${identity}.`),
    missing.length > 0 && `The request has no ${missing.join(", no ")}.`,
    group && `Rule ${group.place} of the group ${group.name}`
      + (group.instead === null ? "." : `; ${group.instead} applies instead.`),
    rollout && `Enforced for ${rollout} of identities${applies ? isHere : ""}.`,
    lease && `Leases up to ${lease.share} for ${lease.for}.`,
  ].filter(Boolean);
}

/** @param {Record<string, any>} band */
function explainedBand({ band, limit, on_lease: leased, before, after, denies }) {
  const reset = after.reset_after_ms > 0 ? `, all available in ${wait(after.reset_after_ms)}` : "";
  const lease = leased === undefined ? "" : `, ${number(leased)} on lease`;
  return h("li",
    isNamed(band) && h("span.mono", `${band} `),
    h("strong", number(before.remaining), h("span", { "aria-hidden": "true" }, " → "),
      hidden("left before, after it "), number(after.remaining)),
    ` of ${count(limit, "unit")} left${reset}${lease} `,
    denies && badge("denies", "bad"));
}
