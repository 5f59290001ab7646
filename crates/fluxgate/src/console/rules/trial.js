// "Try it": what the edited rules would do to recorded requests, before anything changes.

import { get, post, Problem } from "../api.js";
import { badge, button, field, notice, problemNotice, segmented, table } from "../components.js";
import { h, replace } from "../dom.js";
import { count, number } from "../format.js";
import { eventsOfSet, MOST_EVENTS, parseLog } from "./events.js";

/** @typedef {import("./events.js").Event} Event */
/** @typedef {{requests: number, allowed: number, denied: number, shadow_denied: number, delayed: number}} Totals */
/** @typedef {{rule_set: string, rule: string, requests: number, allowed: number, denied: number}} RuleTotals */
/** @typedef {{total: Totals, rules: RuleTotals[]}} Summary */
/** @typedef {{newly_denied: number, newly_allowed: number, identities: {rule_set: string, rule: string, identity: string, newly_denied: number, newly_allowed: number}[]}} Changes */

/** No log of 10,000 lines is longer; the rest of a file need not be read. */
const MOST_BYTES = 16 << 20;
const MOST_IDENTITIES = 50;

/**
 * @typedef {{rules: () => string, unwrap: (position: import("./document.js").Position) =>
 *   import("./document.js").Position, set: () => string | null, sets: string[], records: boolean,
 *   signal: AbortSignal}} Options `rules` is the rule file to try, and `set` the only set in it,
 *   if it is the text of one; `sets` are those to choose from
 */

export class Trial {
  #options;
  #source = "recent";
  #file = h("input", { type: "file", accept: ".log,.ndjson,.jsonl,.json,.txt" });
  #set;
  #status = h("p", { role: "status", class: "visually-hidden" });
  #answer = h("div", { class: "stack-small" });
  #stale = notice("warn", "The text has changed since. Try it again.");
  #run = button("Try it", () => this.#try(), { kind: "primary" });
  /** The text and what came of it, in words. @type {{rules: string, words: string} | null} */
  #tried = null;

  /** @param {Options} options */
  constructor(options) {
    this.#options = options;
    this.#set = h("select", {}, options.sets.map((set) => h("option", { value: set }, set)));
    const upload = h("div", { class: "stack-small", hidden: true },
      field("Log file", this.#file,
        `Lines of JSON as for fluxgate simulate, or an access log in the combined format; the first ${number(MOST_EVENTS)} requests. The file is read in this browser.`),
      options.sets.length > 1 && field("Rule set", this.#set, "For requests that name none."));
    const recent = options.records
      ? h("p", { class: "hint" }, "The latest requests that this instance has decided.")
      : notRecorded();
    this.#stale.hidden = true;
    const choice = segmented("Requests to try", [["recent", "Recent traffic"], ["file", "A log file"]],
      "recent", (source) => {
        this.#source = source;
        upload.hidden = source !== "file";
        recent.hidden = source !== "recent";
      });
    this.element = h("section", { class: "card stack-small" },
      h("h2", {}, "Try it"),
      h("p", {}, "Replays requests through the active rules and through this text, and compares the decisions. Nothing changes."),
      h("div", {}, choice), recent, upload,
      h("div", { class: "actions" }, this.#run),
      this.#stale, this.#status, this.#answer);
  }

  /** Says that the text has changed. */
  textChanged() {
    this.#stale.hidden = this.#tried === null || this.#tried.rules === this.#options.rules();
  }

  /** Returns what the trial of the present text showed, if there was one. */
  get words() {
    return this.#tried?.rules === this.#options.rules() ? this.#tried.words : null;
  }

  async #try() {
    const { signal } = this.#options;
    const rules = this.#options.rules();
    this.#run.disabled = true;
    this.#stale.hidden = true;
    this.#status.textContent = "Trying …";
    replace(this.#answer, h("p", { class: "quiet" }, "Trying …"));
    try {
      const { events, remarks } = await this.#events();
      if (events.length === 0) return replace(this.#answer, remarks);
      const lenient = this.#source === "file";
      // In turn: the second is of no use if the rules have faults.
      const after = await post("/v1/simulate", { rules, events, lenient }, signal);
      // There may be no active rules to compare with, as for a new set.
      const before = await post("/v1/simulate", { events, lenient }, signal).catch(() => null);
      const shown = result(before?.summary, after.summary, after.changes);
      this.#tried = { rules, words: shown.words };
      this.#status.textContent = shown.words;
      replace(this.#answer, remarks, shown.element);
      this.textChanged();
    } catch (error) {
      if (signal.aborted) return;
      this.#tried = null;
      replace(this.#answer, problemNotice(error instanceof Problem && error.faults
        ? new Problem(error.status, error.message, error.faults.map(this.#options.unwrap))
        : error));
    } finally {
      this.#run.disabled = false;
    }
  }

  /** @returns {Promise<{events: Event[], remarks: Node[]}>} */
  async #events() {
    const { events, remarks } = this.#source === "recent" ? await this.#recent() : await this.#uploaded();
    const set = this.#options.set();
    if (set === null) {
      const chosen = this.#set.value;
      /** @param {Event} event */
      const named = (event) => ("settle" in event ? event : { ...event, rule_set: event.rule_set ?? chosen });
      return { events: chosen ? events.map(named) : events, remarks };
    }
    const own = eventsOfSet(events, set);
    const others = events.length - own.length;
    if (others > 0) remarks.push(remark(`${count(others, "request")} of other rule sets left out.`));
    if (own.length === 0 && events.length > 0) remarks.push(remark(`No request is for the rule set ${set}.`));
    return { events: own, remarks };
  }

  /** @returns {Promise<{events: Event[], remarks: Node[]}>} */
  async #recent() {
    const { records, events } = await get(`/v1/recent?n=${MOST_EVENTS}`, this.#options.signal);
    if (!records) return { events: [], remarks: this.#options.records ? [notRecorded()] : [] };
    if (events.length > 0) return { events, remarks: [] };
    return { events, remarks: [notice("info", "No request has been recorded yet. Send some, or try a log file.")] };
  }

  /** @returns {Promise<{events: Event[], remarks: Node[]}>} */
  async #uploaded() {
    const file = this.#file.files?.[0];
    if (!file) return { events: [], remarks: [notice("info", "Choose a log file first.")] };
    const log = parseLog(await file.slice(0, MOST_BYTES).text());
    const remarks = [];
    if (log.cut || file.size > MOST_BYTES) {
      remarks.push(remark(`Only the first ${count(log.events.length, "request")} of the file.`));
    }
    if (log.bad > 0) remarks.push(remark(`${count(log.bad, "line")} not understood and left out.`));
    if (log.events.length === 0) remarks.push(notice("info", "The file has no request in a format that is known."));
    return { events: log.events, remarks };
  }
}

function notRecorded() {
  return notice("info", "Requests are not recorded. Set ", h("code", {}, "admin: { record: true }"),
    " in the config and restart, or try a log file.");
}

/** @param {string} text */
function remark(text) {
  return h("p", { class: "hint" }, text);
}

/**
 * @param {Summary | undefined} before
 * @param {Summary} after
 * @param {Changes | null} changes
 */
function result(before, after, changes) {
  const { newly_denied: denied = 0, newly_allowed: allowed = 0, identities = [] } = changes ?? {};
  const words = `${count(after.total.requests, "request")} tried: ${number(denied)} newly denied, ${number(allowed)} newly allowed.`;
  const totals = table(
    ["Outcome", { text: "Active rules", numeric: true }, { text: "This text", numeric: true }],
    /** @type {const} */ ([["Requests", "requests"], ["Allowed", "allowed"], ["Denied", "denied"],
      ["Denied in shadow", "shadow_denied"], ["Delayed", "delayed"]]).map(([label, name]) =>
      [label, before ? number(before.total[name] ?? 0) : "–", number(after.total[name] ?? 0)]),
    { caption: "Totals before and after" },
  );
  return {
    words,
    element: h("div", { class: "stack-small" },
      h("p", { class: "verdict" },
        badge(`${number(denied)} newly denied`, denied > 0 ? "bad" : "quiet"), " ",
        badge(`${number(allowed)} newly allowed`, allowed > 0 ? "good" : "quiet"), " ",
        h("span", {}, `of ${count(after.total.requests, "request")}`)),
      totals,
      rulesTable(before?.rules ?? [], after.rules),
      identities.length > 0 && identityTable(identities)),
  };
}

/**
 * @param {RuleTotals[]} before
 * @param {RuleTotals[]} after
 */
function rulesTable(before, after) {
  /** @type {Map<string, [RuleTotals | undefined, RuleTotals | undefined]>} */
  const all = new Map();
  for (const rule of after) all.set(`${rule.rule_set}/${rule.rule}`, [undefined, rule]);
  for (const rule of before) {
    const name = `${rule.rule_set}/${rule.rule}`;
    if (rule.requests > 0 || all.has(name)) all.set(name, [rule, all.get(name)?.[1]]);
  }
  if (all.size === 0) return null;
  /** @param {RuleTotals | undefined} rule */
  const denied = (rule) => (rule ? `${number(rule.denied)} of ${number(rule.requests)}` : "no rule");
  return table(
    ["Rule", { text: "Denied now", numeric: true }, { text: "With this text", numeric: true }],
    [...all].map(([name, [old, now]]) => [name, denied(old), denied(now)]),
    { caption: "Denied by rule" },
  );
}

/** @param {Changes["identities"]} identities */
function identityTable(identities) {
  const shown = identities.slice(0, MOST_IDENTITIES);
  const rest = identities.length - shown.length;
  return h("div", {}, table(
    ["Identity", "Rule", { text: "Newly denied", numeric: true }, { text: "Newly allowed", numeric: true }],
    shown.map((entry) => [h("span", { class: "mono" }, entry.identity), `${entry.rule_set}/${entry.rule}`,
      number(entry.newly_denied), number(entry.newly_allowed)]),
    { caption: "Identities whose decisions change" },
  ), rest > 0 && h("p", { class: "hint" }, `And ${count(rest, "identity", "identities")} more.`));
}
