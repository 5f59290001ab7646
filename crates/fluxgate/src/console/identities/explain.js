// "Explain a request": how a request would be decided now, and why.

import { post } from "../api.js";
import { badge, card, field, hidden, notice, problemNotice, submitButton, textInput } from "../components.js";
import { h, replace } from "../dom.js";
import { count, duration, listed, number, wait } from "../format.js";

/** @import { Recorded } from "../api.js" */
/** @typedef {Record<string, any>} Decision of `POST /v1/explain`, docs/api.md */
/** @typedef {Record<string, any>} Explained a rule of its answer */

const LINES = "One per line, as name: value";

export function explainCard() {
  const set = h("select", { name: "rule_set" });
  const result = h("div.stack-small", { "aria-live": "polite" },
    h("p.quiet", "Describe a request and see how it would be decided. Nothing is charged."));
  /** @param {string} name */
  const lines = (name) => h("textarea.mono", { name, rows: 2, spellcheck: "false" });
  const form = h("form.id-explain-form", { onsubmit: explain },
    field("Rule set", set), field("Method", textInput({ name: "method", value: "GET" })),
    field("Path", textInput({ name: "path", value: "/" })),
    field("User", textInput({ name: "user" })), field("IP address", textInput({ name: "ip" })),
    field("API key", textInput({ name: "api_key" })),
    field("Cost", h("input", { name: "cost", type: "number", min: 0, placeholder: "set by the rules" })),
    field("Headers", lines("headers"), LINES),
    field("Attributes", lines("attributes"), LINES),
    h("div.actions", submitButton("Explain")));
  const element = card("Explain a request", h("div.halves", form, result));

  /** Returns what is typed in. @returns {Recorded} */
  const request = () =>
    Object.fromEntries([...new FormData(form)].filter(([, value]) => value !== ""));

  /** @param {Event} [event] */
  async function explain(event) {
    event?.preventDefault();
    const { cost, headers = "", attributes = "", ...body } = request();
    try {
      const { decision, rules } = await post("/v1/explain", {
        ...body, cost: cost && Number(cost), headers: readPairs(headers), attributes: readPairs(attributes),
      });
      replace(result, decisionNotice(decision), h("ol.id-rules", rules.map(explainedRule)));
    } catch (error) {
      replace(result, problemNotice(error));
    }
  }

  /** Fills in a request. What it does not have is empty. @param {Recorded} filled */
  function fill(filled) {
    /** @type {NodeListOf<HTMLInputElement>} */
    const inputs = form.querySelectorAll("[name]");
    for (const input of inputs) {
      const value = filled[input.name] ?? "";
      input.value = typeof value === "object" ? writePairs(value) : value;
    }
  }

  return {
    element,
    /** @param {string[]} names of the active rule sets */
    showSets(names) {
      replace(set, names.map((name) => h("option", { value: name }, name)));
    },
    /** @param {Recorded} identity */
    fillIdentity(identity) {
      const { rule_set, method, path } = request();
      fill({ rule_set, method, path, ...identity });
    },
    /** @param {Recorded} event */
    explainEvent(event) {
      fill(event);
      element.scrollIntoView({ block: "nearest" });
      form.querySelector("button")?.focus({ preventScroll: true });
      explain();
    },
  };
}

/** @param {string} text */
function readPairs(text) {
  return Object.fromEntries(text.split("\n").filter((line) => line.trim() !== "")
    .map((line) => line.split(/:(.*)/s))
    .map(([name, value = ""]) => [name.trim(), value.trim()]));
}

/** @param {Record<string, unknown>} pairs */
const writePairs = (pairs) =>
  Object.entries(pairs).map(([name, value]) => `${name}: ${value}`).join("\n");

/** @param {Decision} decision */
function decisionNotice(decision) {
  const { allowed, outcome } = decision;
  const isDoubtful = outcome === "no_rule" || outcome === "shadow_denied";
  const shown = notice(!allowed ? "bad" : isDoubtful ? "warn" : "good",
    h("strong", allowed ? "Allowed. " : "Denied. "), decisionWords(decision));
  // The region around it is read out already.
  shown.removeAttribute("role");
  return shown;
}

/** @param {Decision} decision */
function decisionWords(decision) {
  const { allowed, outcome, rule, band, limit, remaining, retry_after_ms: retry, violated } = decision;
  const place = band === null ? rule : `${rule}/${band}`;
  const by = listed(violated) || place;
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
    h("span.mono", band), " ",
    h("strong", number(before.remaining), h("span", { "aria-hidden": "true" }, " → "),
      hidden("left before, after it "), number(after.remaining)),
    ` of ${count(limit, "unit")} left${reset}${lease} `,
    denies && badge("denies", "bad"));
}
