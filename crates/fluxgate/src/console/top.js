// The identities with the most denials or requests.

import { get, Problem } from "./api.js";
import { problemNotice, segmented } from "./components.js";
import { h, replace } from "./dom.js";
import { duration, number } from "./format.js";

const SHOWN = 8;
const POLL_MS = 5000;

/** @typedef {{rule_set: string, rule: string, identity: string, count: number, error: number}} Entry */

/** @param {import("./main.js").Context} context */
export function topIdentities({ signal, session }) {
  /** @type {"denied" | "requests"} */
  let by = "denied";
  /** @type {Entry[]} */
  let order = [];
  const list = h("ol", { class: "ranking" });
  const rows = Array.from({ length: SHOWN }, () => identityRow());
  list.append(...rows.map(({ element }) => element));
  const text = h("p", { class: "hint" });
  const problem = h("div");

  async function poll(always = false) {
    if (document.hidden && !always) return;
    const asked = by;
    try {
      const answer = await get(`/v1/top?by=${asked}&window=60s&n=${SHOWN}`, signal);
      if (asked === by) show(answer);
      replace(problem);
    } catch (error) {
      // The header says if the service does not answer.
      const silent = signal.aborted || (error instanceof Problem && error.status === 0);
      if (!silent) replace(problem, problemNotice(error));
    }
  }

  /** @param {{entries: Entry[], total: number, window_ms: number}} answer */
  function show({ entries, total, window_ms: window }) {
    if (list.matches(":hover, :focus-within")) {
      // Rows do not change places under the pointer or the focus.
      const place = (/** @type {Entry} */ entry) => {
        const index = order.findIndex((old) => keyOf(old) === keyOf(entry));
        return index < 0 ? SHOWN : index;
      };
      entries = entries.toSorted((a, b) => place(a) - place(b));
    }
    order = entries.slice(0, SHOWN);
    const most = Math.max(...order.map(({ count }) => count), 1);
    rows.forEach((row, index) => row.show(order[index], most));
    const what = by === "denied" ? "denials" : "requests";
    const last = window === 60_000 ? "minute" : duration(window);
    const ranges = order.some(({ error }) => error > 0) ? " The true count is within the range." : "";
    text.textContent = entries.length === 0
      ? `No ${what} in the last ${last}.`
      : `${number(total)} ${what} in the last ${last}.${ranges}`;
  }

  const choices = /** @type {const} */ ([["denied", "Denied"], ["requests", "Requests"]]);
  const element = h("section", { class: "card" },
    h("div", { class: "card-head" }, h("h2", {}, "Top identities"),
      segmented("Count", choices, by, (value) => {
        by = value;
        poll(true);
      })));
  if (!session.identities) {
    element.append(h("p", { class: "hint" }, "This service does not show identities."));
    return { element };
  }
  element.append(problem, list, text);
  const timer = setInterval(poll, POLL_MS);
  signal.addEventListener("abort", () => clearInterval(timer));
  poll(true);
  return { element };
}

/** @param {Entry} entry */
function keyOf({ rule_set: set, rule, identity }) {
  return JSON.stringify([set, rule, identity]);
}

function identityRow() {
  const link = h("a", { class: "ranking-name mono" });
  const value = h("span", { class: "ranking-value" });
  const bar = h("div", { class: "ranking-bar" });
  const rule = h("span", { class: "hint ranking-detail" });
  const element = h("li", { class: "ranking-row", hidden: true }, link, value,
    h("div", { class: "ranking-track", "aria-hidden": "true" }, bar), rule);
  return {
    element,
    /** @param {Entry | undefined} entry @param {number} most */
    show(entry, most) {
      element.hidden = !entry;
      if (!entry) return;
      const path = `${entry.rule_set}/${entry.rule}`;
      link.textContent = link.title = entry.identity;
      link.href = `#/identities?${new URLSearchParams({ identity: entry.identity, rule: path })}`;
      rule.textContent = `${entry.rule_set} / ${entry.rule}`;
      const least = Math.max(0, entry.count - entry.error);
      value.textContent = entry.error > 0 ? `${number(least)}–${number(entry.count)}` : number(entry.count);
      bar.style.setProperty("--part", (entry.count / most).toFixed(4));
    },
  };
}
