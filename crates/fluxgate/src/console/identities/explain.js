// "Explain a request": how a request would be decided now, and why.

import { post } from "../api.js";
import { badge, card, field, notice, problemNotice } from "../components.js";
import { h, replace } from "../dom.js";
import { count, number } from "../format.js";
import { decisionWords, wait } from "./words.js";

/** @typedef {import("./parts.js").Values} Values */
/** @typedef {import("./recent.js").Recorded} Recorded */

/**
 * @typedef {object} Decision
 * @property {boolean} allowed
 * @property {string} outcome
 * @property {string | null} rule
 * @property {string | null} band
 * @property {number | null} limit
 * @property {number | null} remaining
 * @property {number | null} retry_after_ms
 * @property {number} delay_ms
 * @property {string[]} violated
 */

/** @typedef {{remaining: number, reset_after_ms: number}} Level */
/** @typedef {{
 *   band: string, limit: number, on_lease?: number, before: Level, after: Level, denies: boolean,
 * }} ExplainedBand */

/**
 * @typedef {object} Explained
 * @property {string} rule
 * @property {boolean} matched
 * @property {string | null} failed
 * @property {string | null} identity
 * @property {string[]} missing
 * @property {boolean} applies
 * @property {string} mode
 * @property {{name: string, place: number, instead: string | null} | null} group
 * @property {string | null} rollout
 * @property {{share: string, for: string}} [lease]
 * @property {ExplainedBand[]} bands
 */

const METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"];

/** @param {AbortSignal} signal */
export function explainCard(signal) {
  const set = h("select", {});
  const user = text();
  const ip = text();
  const key = text();
  const method = text({ list: "id-methods", value: "GET" });
  const path = text({ value: "/" });
  const headers = h("textarea", { rows: 2, class: "mono", spellcheck: "false", placeholder: "X-Plan: free" });
  const attributes = h("textarea", { rows: 2, class: "mono", spellcheck: "false", placeholder: "tenant: t1" });
  const cost = h("input", { type: "number", min: 0, step: 1, placeholder: "as the rules say" });
  const result = h("div", { class: "id-explanation", "aria-live": "polite" },
    h("p", { class: "quiet" }, "Describe a request and see how it would be decided. Nothing is charged."));
  const form = h("form", { class: "id-explain-form", onsubmit: explain },
    h("datalist", { id: "id-methods" }, METHODS.map((name) => h("option", { value: name }))),
    field("Rule set", set), field("Method", method), wide(field("Path", path)),
    field("User", user), field("IP address", ip), field("API key", key), field("Cost", cost),
    wide(field("Headers", headers, "One per line, as name: value")),
    wide(field("Attributes", attributes, "One per line, as name: value")),
    wide(h("div", { class: "actions" }, h("button", { type: "submit", class: "button primary" }, "Explain"))));
  const element = card("Explain a request", h("div", { class: "id-explain" }, form, result));

  /** @param {Event} [event] */
  async function explain(event) {
    event?.preventDefault();
    /** @type {Record<string, unknown>} */
    const body = { rule_set: set.value };
    const plain = { user, ip, api_key: key, method, path };
    for (const [name, input] of Object.entries(plain)) {
      if (input.value !== "") body[name] = input.value;
    }
    if (cost.value !== "") body.cost = Number(cost.value);
    const pairs = { headers: readPairs(headers.value), attributes: readPairs(attributes.value) };
    for (const [name, value] of Object.entries(pairs)) {
      if (Object.keys(value).length > 0) body[name] = value;
    }
    try {
      const { decision, rules } = await post("/v1/explain", body, signal);
      replace(result, decisionNotice(decision), h("ol", { class: "id-rules" }, rules.map(explainedRule)));
    } catch (error) {
      if (!signal.aborted) replace(result, problemNotice(error));
    }
  }

  return {
    element,
    /** @param {string[]} names of the active rule sets */
    showSets(names) {
      const chosen = set.value;
      replace(set, names.map((name) => h("option", { value: name, selected: name === chosen }, name)));
    },
    /** @param {Values} values */
    fill(values) {
      user.value = values.get("user") ?? "";
      ip.value = values.get("ip") ?? "";
      key.value = values.get("api_key") ?? "";
      method.value = values.get("method") ?? method.value;
      path.value = values.get("path") ?? path.value;
      headers.value = writePairs(named(values, "header:"));
      attributes.value = writePairs(named(values, "attr:"));
    },
    /**
     * Fills in what the identity asked for last, unless a path is given already.
     * @param {Recorded | undefined} event
     */
    suggest(event) {
      if (!event || path.value !== "/") return;
      path.value = event.path ?? "/";
      method.value = event.method ?? "";
      if (event.rule_set) set.value = event.rule_set;
    },
    /** @param {Recorded} event */
    explainEvent(event) {
      if (event.rule_set) set.value = event.rule_set;
      user.value = event.user ?? "";
      ip.value = event.ip ?? "";
      key.value = event.api_key ?? "";
      method.value = event.method ?? "";
      path.value = event.path ?? "";
      headers.value = writePairs(event.headers ?? {});
      attributes.value = writePairs(event.attributes ?? {});
      cost.value = event.cost === undefined ? "" : String(event.cost);
      element.scrollIntoView({ block: "nearest" });
      form.querySelector("button")?.focus({ preventScroll: true });
      explain();
    },
  };
}

/** @param {Record<string, unknown>} [attributes] */
function text(attributes = {}) {
  const plain = { autocomplete: "off", autocapitalize: "none", spellcheck: "false" };
  return h("input", { type: "text", ...plain, ...attributes });
}

/** @param {HTMLElement} element */
function wide(element) {
  element.classList.add("id-wide");
  return element;
}

/** @param {string} lines */
function readPairs(lines) {
  const pairs = lines.split("\n").map((line) => line.split(/:(.*)/s));
  return Object.fromEntries(pairs
    .map(([name, value]) => [name.trim(), (value ?? "").trim()])
    .filter(([name]) => name !== ""));
}

/** @param {Record<string, unknown>} pairs */
function writePairs(pairs) {
  return Object.entries(pairs).map(([name, value]) => `${name}: ${value}`).join("\n");
}

/**
 * @param {Values} values
 * @param {string} start
 */
function named(values, start) {
  const own = [...values].filter(([part]) => part.startsWith(start));
  return Object.fromEntries(own.map(([part, value]) => [part.slice(start.length), value]));
}

/** @param {Decision} decision */
function decisionNotice(decision) {
  const { title, text, kind } = decisionWords(decision);
  const shown = notice(kind, h("strong", {}, `${title}. `), text);
  // The region around it is read out already.
  shown.removeAttribute("role");
  return shown;
}

/** @param {Explained} explained */
function explainedRule(explained) {
  const { rule, matched, applies, mode, bands } = explained;
  const denies = bands.some((band) => band.denies);
  const state = !matched ? badge("does not match", "quiet")
    : !applies ? badge("matches, does not apply", "quiet")
    : denies ? badge(mode === "shadow" ? "would deny" : "denies", mode === "shadow" ? "warn" : "bad")
    : badge("passes", "good");
  return h("li", { class: applies ? "" : "id-aside" },
    h("div", { class: "row" }, h("strong", { class: "mono" }, rule), state,
      mode === "shadow" && badge("shadow", "info")),
    h("ul", { class: "id-reasons" }, reasonsOf(explained).map((reason) => h("li", {}, reason))),
    bands.length > 0 && h("ul", { class: "id-changes" }, bands.map(explainedBand)));
}

/** @param {Explained} explained */
function reasonsOf({ failed, identity, missing, applies, mode, group, rollout, lease }) {
  const reasons = [];
  if (failed === "enabled") reasons.push("It is disabled.");
  else if (failed === "key") reasons.push("The request lacks a part of its key, and on_missing_key is skip.");
  else if (failed !== null) reasons.push(`Its match fails at ${failed}.`);
  if (identity === "(everyone)") reasons.push("Counts everyone together.");
  else if (identity !== null) reasons.push(`Counts ${identity}.`);
  if (missing.length > 0) reasons.push(`The request has no ${missing.join(", no ")}.`);
  if (group) {
    const instead = group.instead === null ? "" : `; ${group.instead} applies instead`;
    reasons.push(`Place ${group.place} in the group ${group.name}${instead}.`);
  }
  if (rollout !== null) {
    const here = applies ? (mode === "enforce" ? " This one is." : " This one is not.") : "";
    reasons.push(`Enforced for ${rollout} of identities.${here}`);
  }
  if (lease) reasons.push(`Leases up to ${lease.share} for ${lease.for}.`);
  return reasons;
}

/** @param {ExplainedBand} band */
function explainedBand({ band, limit, on_lease, before, after, denies }) {
  const reset = after.reset_after_ms > 0 ? `, full in ${wait(after.reset_after_ms)}` : "";
  const lease = on_lease === undefined ? "" : `, ${number(on_lease)} on lease`;
  return h("li", {},
    h("span", { class: "mono" }, band), " ",
    h("strong", {}, number(before.remaining), h("span", { "aria-hidden": "true" }, " → "),
      h("span", { class: "visually-hidden" }, " left before, after it "), number(after.remaining)),
    ` of ${count(limit, "unit")} left${reset}${lease} `,
    denies && badge("denies", "bad"));
}
