// "Try it": what the edited rules would do to recorded requests.

import { post, Problem } from "../api.js";
import { badge, button, field, notice, problemNotice, segmented, table } from "../components.js";
import { h, replace } from "../dom.js";
import { capitalized, count, duration, identityLink, number, share, time } from "../format.js";
import { eventsOfSet, MOST_EVENTS, parseLog } from "./events.js";

/** @import { Fault, Recorded } from "../api.js" */
/** @typedef {{rule_set: string, rule: string, requests?: number, denied: number}} RuleTotals */
/** @typedef {{total: Record<string, number>, rules: RuleTotals[]}} Summary */
/** Of a log file. @typedef {{summary: Summary, decisions: {delay_us: number}[], changes: any, warnings: string[]}} Simulated */
/**
 * Of recent traffic: `recorded` is what was really decided, and `active` what the active rules decide
 * if they are tried in the same way as the text, whose `summary` it is.
 * @typedef {{
 *   summary: Summary, active: Summary, changes: any, warnings: string[],
 *   recorded: Summary & {
 *     from_ms: number | null, to_ms: number | null, rules_changed_ms: number | null,
 *     left_out: {other_sets: number, slots: number, store_failed: number},
 *     instances: {known: number, answered: number, recording: number}, failure: string | null,
 *   },
 *   start: {from_state: boolean, counters: number, charged: number, as_recorded: number},
 * }} RecordedTrial
 */
/** A column of the results. @typedef {[string, Summary | null]} Column */

/** Enough for 10,000 lines of the usual length. */
const MOST_BYTES = 16 << 20;
const TOTALS = {
  requests: "Requests", allowed: "Allowed", denied: "Denied", shadow_denied: "Shadow-denied", delayed: "Delayed",
};
/** If the active rules, tried, deny more or less than was really denied by this share, the trial says so. */
const PRECISE = 0.05;

/**
 * @param {() => string} rules the rule file to try @param {(fault: Fault) => Fault} unwrap
 * @param {() => string | null} set the only set in it, if it is the text of one
 * @param {string | undefined} fallback the set of requests that name none @param {boolean} records
 */
export function trial(rules, unwrap, set, fallback, records) {
  let isFile = false;
  /** The text and what came of it, in words. @type {{rules: string, words: string} | null} */
  let tried = null;
  const file = h("input", { type: "file" });
  const status = h("p.visually-hidden", { role: "status" });
  const answer = h("div.stack-small");
  const stale = notice("warn", "The text has changed since. Try it again.");
  stale.hidden = true;
  const run = button("Try it", tryIt, { kind: "primary" });
  const upload = h("div.stack-small", { hidden: true },
    field("Log file", file, "Lines of JSON as for fluxgate simulate, or an access log in the combined "
      + `format; the first ${number(MOST_EVENTS)} requests. They are sent to this service, which `
      + "does not keep them."));
  const recent = records ? remark(`The latest requests that all instances have decided, at most ${number(MOST_EVENTS)}. `
    + "The limits start as used up as they were when the first of them came.") : notRecorded();
  const choice = segmented("Requests to try", [["recent", "Recent traffic"], ["file", "A log file"]],
    "recent", (chosen) => {
      isFile = chosen === "file";
      upload.hidden = !isFile;
      recent.hidden = isFile;
    });
  const element = h("section.card.stack-small",
    h("h2", "Try it"),
    h("p", "Replays requests through the active rules and through this text, and compares the "
      + "decisions: with each other and with what was really decided. Nothing changes."),
    h("div", choice), recent, upload, h("div.actions", run), stale, status, answer);

  function textChanged() {
    stale.hidden = tried === null || tried.rules === rules();
  }

  async function tryIt() {
    const text = rules();
    run.disabled = true;
    stale.hidden = true;
    tried = null;
    status.textContent = "Trying…";
    replace(answer, h("p.quiet", "Trying…"));
    try {
      const { words, parts, warnings } = await (isFile ? tryFile(text) : tryRecent(text));
      if (words !== null) {
        tried = { rules: text, words };
        status.textContent = words;
      } else status.textContent = "";
      replace(answer, warnings.map(warning), parts);
      textChanged();
    } catch (error) {
      if (error instanceof Problem) error.faults = error.faults.map(unwrap);
      replace(answer, problemNotice(error));
    } finally {
      run.disabled = false;
    }
  }

  /** @param {string} text */
  async function tryRecent(text) {
    /** @type {RecordedTrial} */
    const trial = await post("/v1/simulate", { rules: text, recent: true, from_state: true, rule_set: set() ?? undefined });
    const { recorded, active, summary, changes, warnings } = trial;
    if (recorded.total.requests === 0) {
      const left = recorded.left_out.other_sets;
      return { words: null, warnings: [], parts: [notice("info", left > 0
        ? `${count(left, "request")} of other rule sets recorded, and none of this one.`
        : "No request has been recorded yet. Send some, or try a log file.")] };
    }
    const { words, parts } = result([["Recorded", recorded], ["Active rules", active], ["This text", summary]], changes);
    return { words, warnings, parts: [...recordRemarks(trial), ...parts] };
  }

  /** @param {string} text */
  async function tryFile(text) {
    /** @type {Node[]} */
    const remarks = [];
    const events = await uploaded(remarks);
    if (events.length === 0) return { words: null, warnings: [], parts: remarks };
    const body = { events, lenient: true, rule_set: fallback };
    // In turn: the second is of no use if the rules have faults.
    /** @type {Simulated} */
    const after = await post("/v1/simulate", { ...body, rules: text });
    // There may be no active rules to compare with, as for a new set.
    const before = await post("/v1/simulate", body).catch(() => null);
    const columns = /** @type {Column[]} */ ([["Active rules", before && withDelayed(before)], ["This text", withDelayed(after)]]);
    const { words, parts } = result(columns, after.changes ?? {});
    return { words, warnings: after.warnings, parts: [...remarks, remark("Every limit starts unused: a file does not say what was before."), ...parts] };
  }

  /** @param {Recorded[]} events @param {Node[]} remarks */
  function own(events, remarks) {
    const only = set();
    if (only === null) return events;
    const kept = eventsOfSet(events, only);
    const others = events.length - kept.length;
    if (others > 0) remarks.push(remark(`${count(others, "request")} of other rule sets left out.`));
    return kept;
  }

  /** @param {Node[]} remarks */
  async function uploaded(remarks) {
    const [chosen] = file.files ?? [];
    const { events, bad, cut } = parseLog((await chosen?.slice(0, MOST_BYTES).text()) ?? "");
    if (!chosen) remarks.push(notice("info", "Choose a log file first."));
    else if (events.length === 0) {
      remarks.push(notice("info", "No line of the file has a known format."));
    }
    if (cut || chosen?.size > MOST_BYTES) {
      remarks.push(remark(`Only the first ${count(events.length, "request")} of the file.`));
    }
    if (bad > 0) remarks.push(remark(`${count(bad, "line")} skipped: unknown format.`));
    return own(events, remarks);
  }

  return {
    element,
    textChanged,
    words: () => (tried?.rules === rules() ? tried.words : null),
  };
}

function notRecorded() {
  return notice("info", "Requests are not recorded. Set ", h("code", "admin: { record: true }"),
    " in the config and restart, or try a log file.");
}

/** @param {string} text */
const remark = (text) => h("p.hint", text);

/** @param {string} text */
const warning = (text) => notice("warn", `${capitalized(text)}.`);

/** @param {Simulated} simulated @returns {Summary} */
const withDelayed = ({ summary: { total, rules }, decisions }) =>
  ({ rules, total: { ...total, delayed: decisions.filter(({ delay_us: delay }) => delay > 0).length } });

/** Says which requests were tried, and how far the trial can be believed. @param {RecordedTrial} trial @returns {Node[]} */
function recordRemarks({ recorded, active }) {
  const { total, from_ms: from, to_ms: to, left_out: left, instances, failure, rules_changed_ms: changed } = recorded;
  const of = `${count(total.requests, "request")} of ${count(instances.recording, "instance")}`;
  const span = from !== null && to !== null ? `, from ${time(from)} on, within ${duration(Math.max(1000, to - from))}` : "";
  const error = Math.abs(active.total.denied - total.denied) / total.requests;
  const silent = instances.known - instances.answered;
  const deaf = instances.answered - instances.recording;
  const outs = [
    left.slots > 0 && `${count(left.slots, "request")} left out that a rule with slots denied: when slots are released is not recorded.`,
    left.store_failed > 0 && `${count(left.store_failed, "request")} left out that were decided while Redis failed.`,
    left.other_sets > 0 && `${count(left.other_sets, "request")} of other rule sets left out.`,
  ];
  const warnings = [
    failure && `Redis does not answer, so only the requests of this instance are tried: ${failure}`,
    !failure && silent > 0 && `${count(silent, "instance")} did not answer, so the requests there are missing.`,
    deaf > 0 && `${count(deaf, "instance does", "instances do")} not record requests (admin: { record: true }), so those are missing.`,
    changed !== null && `The rules changed at ${time(changed)}: what was recorded before was decided by other rules.`,
    error > PRECISE && `The trial is not precise here: tried in the same way, the active rules deny ${share(active.total.denied / total.requests)} `
      + `of the requests, and ${share(total.denied / total.requests)} really were denied.${changed === null ? " Limits were probably used by requests that are not recorded." : ""}`,
  ];
  return [
    remark(`${of}${span}. The column Active rules shows how far the trial can be believed: it should be like Recorded.`),
    ...outs.filter((text) => typeof text === "string").map(remark),
    ...warnings.filter((text) => typeof text === "string").map((text) => notice("warn", text)),
  ];
}

/**
 * @param {Column[]} columns the text is the last, and the active rules are the one before
 * @param {Record<string, any>} changes
 */
function result(columns, { newly_denied: denied = 0, newly_allowed: allowed = 0, identities = [] }) {
  const requests = columns.at(-1)?.[1]?.total.requests ?? 0;
  const total = count(requests, "request");
  const names = columns.map(([name]) => name);
  /** @param {Summary | null} summary @param {string} name */
  const cell = (summary, name) => {
    const value = summary?.total[name];
    if (value === undefined) return "–";
    return name === "requests" || value === 0 ? number(value) : `${number(value)} (${share(value / requests)})`;
  };
  return {
    words: `${total} tried: ${number(denied)} newly denied, ${number(allowed)} newly allowed.`,
    parts: [
      h("p.verdict",
        badge(`${number(denied)} newly denied`, denied > 0 ? "bad" : "quiet"), " ",
        badge(`${number(allowed)} newly allowed`, allowed > 0 ? "good" : "quiet"), ` of ${total}`),
      table("Totals before and after", ["Outcome", ...names],
        Object.entries(TOTALS).map(([name, label]) => [label, ...columns.map(([, summary]) => cell(summary, name))]), 1),
      rulesTable(columns),
      identities.length > 0 && table("Identities with the most changes",
        ["Identity", "Rule", "Newly denied", "Newly allowed"],
        identities.map((/** @type {Record<string, any>} */ each) => [
          each.handle ? h("a.mono", { href: identityLink(/** @type {any} */ (each)) }, each.identity) : h("span.mono", each.identity),
          `${each.rule_set}/${each.rule}`, each.newly_denied, each.newly_allowed,
        ]), 2),
    ],
  };
}

/** @param {Column[]} columns */
function rulesTable(columns) {
  const nameOf = (/** @type {RuleTotals} */ { rule_set: set, rule }) => `${set}/${rule}`;
  const names = new Set(columns.flatMap(([, summary]) => (summary?.rules ?? [])
    .filter(({ requests = 1 }) => requests > 0).map(nameOf)));
  /** @param {Column} column @param {string} name */
  const denied = ([label, summary], name) => {
    const rule = summary?.rules.find((each) => nameOf(each) === name);
    if (!rule) return label === "Recorded" ? "0" : "no rule";
    return rule.requests === undefined ? number(rule.denied) : `${number(rule.denied)} of ${number(rule.requests)}`;
  };
  return names.size > 0 && table("Denied by rule", ["Rule", ...columns.map(([name]) => name)],
    [...names].map((name) => [name, ...columns.map((column) => denied(column, name))]), 1);
}
