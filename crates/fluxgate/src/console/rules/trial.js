// "Try it": what the edited rules would do to recorded requests.

import { get, post, Problem } from "../api.js";
import { badge, button, field, notice, problemNotice, segmented, table } from "../components.js";
import { h, replace } from "../dom.js";
import { capitalized, count, number } from "../format.js";
import { eventsOfSet, MOST_EVENTS, parseLog } from "./events.js";

/** @import { Fault, Recorded } from "../api.js" */
/** @typedef {{rule_set: string, rule: string, requests: number, denied: number}} RuleTotals */
/** @typedef {{total: Record<string, number>, rules: RuleTotals[]}} Summary */
/** @typedef {{summary: Summary, decisions: {delay_us: number}[]}} Simulated */

/** Enough for 10,000 lines of the usual length. */
const MOST_BYTES = 16 << 20;
const TOTALS = {
  requests: "Requests", allowed: "Allowed", denied: "Denied", shadow_denied: "Shadow-denied",
};

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
  const recent = records ? remark("The latest requests that this instance has decided.") : notRecorded();
  const choice = segmented("Requests to try", [["recent", "Recent traffic"], ["file", "A log file"]],
    "recent", (chosen) => {
      isFile = chosen === "file";
      upload.hidden = !isFile;
      recent.hidden = isFile;
    });
  const element = h("section.card.stack-small",
    h("h2", "Try it"),
    h("p", "Replays requests through the active rules and through this text, and compares the "
      + "decisions. Nothing changes."),
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
      /** @type {Node[]} */
      const remarks = [];
      const events = await (isFile ? uploaded(remarks) : recorded(remarks));
      if (events.length === 0) return replace(answer, remarks);
      const body = { events, lenient: isFile, rule_set: fallback };
      // In turn: the second is of no use if the rules have faults.
      const after = await post("/v1/simulate", { ...body, rules: text });
      // There may be no active rules to compare with, as for a new set.
      const before = await post("/v1/simulate", body).catch(() => null);
      const { words, parts } = result(before, after, after.changes ?? {});
      tried = { rules: text, words };
      status.textContent = words;
      replace(answer, remarks, after.warnings.map(warning), parts);
      textChanged();
    } catch (error) {
      if (error instanceof Problem) error.faults = error.faults.map(unwrap);
      replace(answer, problemNotice(error));
    } finally {
      run.disabled = false;
    }
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
  async function recorded(remarks) {
    const { records, events } = await get(`/v1/recent?n=${MOST_EVENTS}`);
    if (!records) remarks.push(notRecorded());
    else if (events.length === 0) {
      remarks.push(notice("info", "No request has been recorded yet. Send some, or try a log file."));
    }
    return own(events, remarks);
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

/** @param {Simulated | null} before @param {Simulated} after @param {Record<string, any>} changes */
function result(before, after, { newly_denied: denied = 0, newly_allowed: allowed = 0, identities = [] }) {
  const total = count(after.summary.total.requests, "request");
  const delayed = [before, after].map((each) =>
    each?.decisions.filter(({ delay_us: delay }) => delay > 0).length ?? "–");
  return {
    words: `${total} tried: ${number(denied)} newly denied, ${number(allowed)} newly allowed.`,
    parts: [
      h("p.verdict",
        badge(`${number(denied)} newly denied`, denied > 0 ? "bad" : "quiet"), " ",
        badge(`${number(allowed)} newly allowed`, allowed > 0 ? "good" : "quiet"), ` of ${total}`),
      table("Totals before and after", ["Outcome", "Active rules", "This text"],
        [...Object.entries(TOTALS).map(([name, label]) =>
          [label, before?.summary.total[name] ?? "–", after.summary.total[name]]),
        ["Delayed", ...delayed]], 1),
      rulesTable(before?.summary.rules ?? [], after.summary.rules),
      identities.length > 0 && table("Identities with the most changes",
        ["Identity", "Rule", "Newly denied", "Newly allowed"],
        identities.map((/** @type {Record<string, any>} */ each) => [
          h("span.mono", each.identity), `${each.rule_set}/${each.rule}`,
          each.newly_denied, each.newly_allowed,
        ]), 2),
    ],
  };
}

/** @param {RuleTotals[]} before @param {RuleTotals[]} after */
function rulesTable(before, after) {
  const nameOf = (/** @type {RuleTotals} */ { rule_set: set, rule }) => `${set}/${rule}`;
  const names = new Set([...after, ...before.filter(({ requests }) => requests > 0)].map(nameOf));
  /** @param {RuleTotals[]} totals @param {string} name */
  const denied = (totals, name) => {
    const rule = totals.find((each) => nameOf(each) === name);
    return rule ? `${number(rule.denied)} of ${number(rule.requests)}` : "no rule";
  };
  return names.size > 0 && table("Denied by rule", ["Rule", "Active rules", "This text"],
    [...names].map((name) => [name, denied(before, name), denied(after, name)]), 1);
}
