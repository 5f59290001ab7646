// The instances that share the rules and the store.

import { get, Problem } from "./api.js";
import { badge, card, empty, problemNotice, table } from "./components.js";
import { h, replace } from "./dom.js";
import { ago, count, duration, number } from "./format.js";

const POLL_MS = 3000;
const LATE_MS = 10_000;

/** @typedef {{
 *   id: string, version: string, revision: string, started_ms: number, seen_ms: number,
 *   decisions_per_second: number, denied_per_second: number, is_self: boolean, hostname: string,
 * }} Instance */

/** @param {import("./main.js").Context} context */
export function view({ signal, live }) {
  const body = h("div", {}, h("p", { class: "hint" }, "Loading the instances."));
  const problem = h("div");
  const text = h("p", { class: "quiet" });

  async function poll(always = false) {
    if (document.hidden && !always) return;
    try {
      const { instances } = await get("/v1/instances", signal);
      show(instances);
      replace(problem);
    } catch (error) {
      const silent = signal.aborted || (error instanceof Problem && error.status === 0);
      if (!silent) replace(problem, problemNotice(error));
    }
  }

  /** @param {Instance[]} instances */
  function show(instances) {
    text.textContent = live.latest?.store.kind === "memory" && instances.length < 2
      ? "The store is in memory, so this instance is the only one. " +
        "Instances that share a Redis store are listed here."
      : `${count(instances.length, "instance uses", "instances share")} the store. ` +
        "The list is read every 3 seconds.";
    if (instances.length === 0) {
      replace(body, empty("No instances", "Each instance reports itself within a few seconds of its start."));
      return;
    }
    const usual = usualRevision(instances);
    const late = instances.filter(isLate).length;
    const scroll = body.querySelector(".table-scroll")?.scrollLeft ?? 0;
    const columns = [
      "Instance", "Version", "Rules", "Uptime", "Last seen",
      { text: "Decisions/s", numeric: true }, { text: "Denied/s", numeric: true },
    ];
    const made = table(columns, instances.map((instance) => row(instance, usual)), { caption: "Instances" });
    const differ = instances.filter(({ revision }) => revision !== usual).length;
    const hadFocus = body.contains(document.activeElement);
    replace(body, made, summary(differ, late));
    made.scrollLeft = scroll;
    if (hadFocus) made.focus({ preventScroll: true });
  }

  poll(true);
  const timer = setInterval(poll, POLL_MS);
  signal.addEventListener("abort", () => clearInterval(timer));
  return {
    element: h("div", { class: "stack" },
      h("div", {}, h("h1", {}, "Instances"), text), problem, card("All instances", body)),
  };
}

/** @param {Instance} instance */
function isLate({ seen_ms: seen }) {
  return Date.now() - seen > LATE_MS;
}

/**
 * Returns the revision that most instances have; this instance decides a tie.
 * @param {Instance[]} instances
 */
function usualRevision(instances) {
  /** @type {Map<string, number>} */
  const votes = new Map();
  for (const { revision, is_self: isSelf } of instances) {
    votes.set(revision, (votes.get(revision) ?? 0) + (isSelf ? 1.5 : 1));
  }
  return [...votes].reduce((best, vote) => (vote[1] > best[1] ? vote : best))[0];
}

/**
 * @param {Instance} instance
 * @param {string} usual
 */
function row(instance, usual) {
  const { id, hostname, version, revision, started_ms: started, seen_ms: seen } = instance;
  return [
    [
      h("div", { class: "row tight" }, hostname || id, instance.is_self && badge("this instance", "info")),
      hostname && h("div", { class: "hint mono" }, id),
    ],
    version,
    h("div", { class: "row tight" }, h("code", {}, revision.slice(0, 8)),
      revision !== usual && badge("other rules", "warn")),
    duration(Date.now() - started),
    h("div", { class: "row tight" }, ago(seen), isLate(instance) && badge("late", "bad")),
    number(instance.decisions_per_second, 1),
    number(instance.denied_per_second, 1),
  ];
}

/**
 * @param {number} differ
 * @param {number} late
 */
function summary(differ, late) {
  const parts = [];
  if (differ > 0) {
    parts.push(`${count(differ, "instance has", "instances have")} other rules than the rest. ` +
      "A change reaches all within seconds. If the difference stays, read the log of that instance.");
  }
  if (late > 0) {
    parts.push(`${count(late, "instance was", "instances were")} not seen for 10 seconds: ` +
      "stopped, or cut off from the store.");
  }
  return h("div", { class: "card-foot" }, parts.map((part) => h("p", { class: "hint" }, part)));
}
