// The cards of the overview that rank identities and rules.

import { get, isLookedUp } from "./api.js";
import { gauge, poll, segmented } from "./components.js";
import { h, set, setText } from "./dom.js";
import { compact, count, link, number, share } from "./format.js";
import { totals } from "./live.js";

/** @import { LiveEvent, Top } from "./api.js" */
/** @typedef {{name: string, href: string, value: string, part: number, detail: string}} Row */

const SHOWN = 8;
/** The highest share of this time is shown, so that a rule does not jump with each second. */
const PEAK_MS = 10_000;
const KEEP_MS = 60_000;

/** @param {import("./main.js").Context} context */
export function topIdentities({ signal, session }) {
  const head = h("div.card-head", h("h2", "Top identities"));
  if (!session.identities) {
    return h("section.card", head, h("p.hint", "Identities are hidden (keys.hash_keys: all)."));
  }
  /** @type {"denied" | "requests"} */
  let by = "denied";
  const list = ranking({ "aria-hidden": "true", role: "none" });
  const text = h("p.hint");
  const { problem, run } = poll(signal, 5000, async () => {
    const asked = by;
    /** @type {{entries: Top[], total: number}} */
    const top = await get(`/v1/top?by=${asked}&window=60s&n=${SHOWN}`, signal);
    if (asked !== by) return;
    const { total } = top;
    const entries = top.entries.filter(isLookedUp);
    const most = Math.max(...entries.map((entry) => entry.count), 1);
    list.show(entries.map(({ rule_set: set, rule, identity, count: highest, error }) => ({
      name: identity,
      href: link("identities", { identity, rule: `${set}/${rule}` }),
      value: error > 0 ? `${number(Math.max(0, highest - error))}–${number(highest)}` : number(highest),
      part: highest / most,
      detail: `${set} / ${rule}`,
    })));
    const what = by === "denied" ? "denials" : "requests";
    const ranges = entries.some(({ error }) => error > 0) ? " The true count is within the range." : "";
    setText(text, `${entries.length === 0 ? "No identity has" : number(total)} ${what} in the last `
      + `minute, counted by rule.${ranges}`);
  });
  head.append(segmented("Count", [["denied", "Denied"], ["requests", "Requests"]], by, (value) => {
    by = value;
    run();
  }));
  return h("section.card", head, problem, list.element, text);
}

export function pressure() {
  /** @typedef {{set: string, rule: string, used: number, usedAt: number, seen: number}} Peak */
  /** @type {Map<string, Peak & ReturnType<typeof totals>>} */
  const entries = new Map();
  const list = ranking({});
  const text = h("p.hint");

  /** @param {LiveEvent} event */
  function update({ at_ms: now, rules }) {
    for (const entry of entries.values()) Object.assign(entry, totals({}, 0));
    for (const { rule_set: set, rule, outcomes, denied, used } of rules) {
      const key = JSON.stringify([set, rule]);
      const entry = entries.get(key) ?? { set, rule, used: 0, usedAt: 0 };
      const isPeak = used !== null && (used >= entry.used || now - entry.usedAt > PEAK_MS);
      const peak = isPeak ? { used, usedAt: now } : {};
      entries.set(key, { ...entry, ...totals(outcomes, denied), ...peak, seen: now });
    }
    for (const [key, { seen }] of entries) if (now - seen > KEEP_MS) entries.delete(key);
    const order = [...entries.values()].sort((a, b) => b.used - a.used || b.denied - a.denied);
    list.show(order.slice(0, SHOWN).map(({ set, rule, used, allowed, denied, shadow }) => ({
      name: `${set} / ${rule}`,
      href: link("rules", { set, rule }),
      value: share(used),
      part: used,
      detail: `${compact(allowed)}/s allowed, ${compact(denied)}/s denied`
        + (shadow > 0 ? `, ${compact(shadow)}/s shadow-denied` : ""),
    })));
    const rest = entries.size - SHOWN;
    setText(text, entries.size === 0
      ? "No rule has applied in the last minute."
      : "The recent peak of each rule."
        + (rest > 0 ? ` ${count(rest, "more rule is", "more rules are")} not shown.` : ""));
  }
  const head = h("div.card-head", h("h2", "Rules by used share"));
  return { element: h("section.card", head, list.element, text), update };
}

/** @param {Record<string, string>} attributes of the bars */
function ranking(attributes) {
  const rows = Array.from({ length: SHOWN }, () => {
    const name = h("a.ranking-name");
    const value = h("span.ranking-value");
    const bar = gauge("");
    set(bar, attributes);
    const detail = h("span.hint.ranking-detail");
    const element = h("li.ranking-row", { hidden: true }, name, value, bar, detail);
    /** @param {Row | undefined} row */
    function show(row) {
      element.hidden = !row;
      if (!row) return;
      setText(name, row.name);
      set(name, { href: row.href, title: row.name });
      set(bar, { "aria-label": `Used share of ${row.name}` });
      bar.update(row.part, 1);
      setText(value, row.value);
      setText(detail, row.detail);
    }
    return { element, show };
  });
  const element = h("ol.ranking", rows.map((row) => row.element));
  /** @type {string[]} */
  let order = [];
  /** @param {Row[]} next */
  function show(next) {
    // Rows do not change places under the pointer or the focus.
    if (element.matches(":hover, :focus-within")) {
      const place = (/** @type {Row} */ { href }) => (order.includes(href) ? order.indexOf(href) : SHOWN);
      next = next.toSorted((a, b) => place(a) - place(b));
    }
    order = next.map(({ href }) => href);
    rows.forEach((row, index) => row.show(next[index]));
  }
  return { element, show };
}
