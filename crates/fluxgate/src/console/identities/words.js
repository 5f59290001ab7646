// Bands, algorithms and decisions in words.

import { count, duration, number } from "../format.js";

/** @typedef {import("./parts.js").Band} Band */
/** @typedef {import("./explain.js").Decision} Decision */

/** @param {string} algorithm */
export function algorithmName(algorithm) {
  return algorithm.replaceAll("_", " ");
}

/** @param {Band} band */
export function bandWords({ capacity, window_ms, hold_ms, calendar, time_zone, refill, period_ms }) {
  if (hold_ms !== undefined) return `${count(capacity, "request")} at the same time`;
  if (calendar) return `${number(capacity)} each ${calendar}${time_zone ? `, ${time_zone}` : ""}`;
  if (refill !== undefined && period_ms !== undefined && (refill !== capacity || period_ms !== window_ms)) {
    return `bursts of ${number(capacity)}, refills ${number(refill)} in ${duration(period_ms)}`;
  }
  return `${number(capacity)} in ${duration(window_ms ?? 0)}`;
}

/**
 * Returns a time to wait, in whole seconds and never too short.
 * @param {number} milliseconds
 */
export function wait(milliseconds) {
  return duration(Math.max(1, Math.ceil(milliseconds / 1000)) * 1000);
}

/**
 * @param {Decision} decision
 * @returns {{title: string, text: string, kind: "good" | "bad" | "warn"}}
 */
export function decisionWords(decision) {
  const { allowed, outcome, rule, band, limit, remaining, retry_after_ms, delay_ms, violated } = decision;
  const place = rule === null ? "" : band === null ? rule : `${rule}/${band}`;
  const left = limit === null ? "" : `${number(remaining ?? 0)} of ${number(limit)} left in ${place} afterwards.`;
  if (outcome === "no_rule") return { title: "Allowed", text: "No rule applies to it.", kind: "warn" };
  if (outcome === "shadow_denied") {
    const text = `In shadow mode only, ${list(violated)} would deny it. ${left}`;
    return { title: "Allowed", text, kind: "warn" };
  }
  if (allowed && limit === null) {
    return { title: "Allowed", text: "No rule that may deny applies to it.", kind: "good" };
  }
  if (allowed) {
    const text = delay_ms > 0 ? `It has to wait for ${duration(delay_ms)}. ${left}` : left;
    return { title: "Allowed", text, kind: "good" };
  }
  const missing = violated.find((name) => name.endsWith("/missing_key"));
  if (missing) {
    const text = `The request lacks a part of the key of ${missing.replace(/\/missing_key$/, "")}.`;
    return { title: "Denied", text, kind: "bad" };
  }
  const by = violated.length > 0 ? list(violated) : place;
  if (retry_after_ms === null) {
    return { title: "Denied", text: `It costs more than ${by} can ever give, so it never passes.`, kind: "bad" };
  }
  return { title: "Denied", text: `By ${by}. It would pass in ${wait(retry_after_ms)}.`, kind: "bad" };
}

/** @param {string[]} names */
function list(names) {
  return new Intl.ListFormat("en").format(names);
}
