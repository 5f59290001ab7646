// Lists of identities of the fleet: who is denied most, who is at a limit, who runs out, who uses most.

import { get, post } from "../api.js";
import { now } from "../clock.js";
import { button, card, empty, field, gauge, poll, ruleChoice, segmentedField, table, timeTag } from "../components.js";
import { h, replace, setText } from "../dom.js";
import { count, identityLink, inTime, number, placeOf } from "../format.js";
import { slotWords, unitOf } from "./bands.js";
import { OUTCOMES } from "./denial_log.js";
import { isHidden, readIdentity } from "./parts.js";

/** @import { Top, Usage } from "../api.js" */
/** @import { Context } from "../main.js" */
/** @import { Entry } from "./parts.js" */
/** @import { Denial } from "./subjects.js" */
/** @typedef {"denied" | "share" | "soon" | "hour" | "slots"} Order */

const ORDERS = /** @type {const} */ ([["denied", "Most denied"], ["share", "At the limit"],
  ["soon", "Running out"], ["hour", "Heaviest"], ["slots", "Holding slots"]]);
const RANGES = /** @type {const} */ ([["15", "15 minutes"], ["60", "1 hour"], ["1440", "24 hours"]]);
const EVERY_MS = 5000;
/** Rows are taller on phones. */
const rowsShown = () => (matchMedia("(max-width: 760px)").matches ? 12 : 25);
/** @type {Record<Order, [string, string]>} */
const WORDS = {
  denied: ["No identity was denied", "Those that were denied most within the time above, of all instances."],
  share: ["No identity has used anything", "Those that have used the highest share of a limit, of all instances."],
  soon: ["No identity runs out", "When nothing is left if they go on as within the last hour, with what is refilled."],
  hour: ["No identity has used anything", "Those that used most within the last hour, of all instances."],
  slots: ["No slot is taken", "Who holds slots of a concurrency limit now."],
};
const BOUND = " Of the 1,000 heaviest.";

/** @param {Context} context @param {Entry[]} entries */
export function browse({ session, signal, params }, entries) {
  // What is used is part of the record.
  const offered = session.history ? ORDERS : [ORDERS[0]];
  let order = /** @type {Order} */ (offered.find(([name]) => name === params.get("show"))?.[0] ?? "denied");
  let range = "60";
  let search = "";
  let offset = 0;
  let shown = "";
  /** The names of identities that lists show as pseudonyms, by handle. @type {Map<string, string>} */
  const names = new Map();
  /** When the slots of an identity end, by handle. @type {Map<string, string>} */
  const ends = new Map();
  const body = h("div", h("p.quiet", "Loading…"));
  const text = h("p.hint", { role: "status" });
  const rule = ruleChoice(entries, restart, params.get("of"));
  const ranges = segmentedField("Within the last", RANGES, range, (value) => {
    range = value;
    restart();
  });
  const previous = button("Previous", () => turn(-rowsShown()));
  const next = button("Next", () => turn(rowsShown()));
  const foot = h("div.actions.id-list-foot", { hidden: true }, previous, next);

  const list = poll(signal, EVERY_MS, async (current) => {
    const asked = path();
    const answer = await get(asked, current);
    const rows = answer.denials ?? answer.usage ?? answer.entries;
    await readStates(rows, current);
    // Another list may have been chosen in the meantime.
    if (asked.split("&from=")[0] === path().split("&from=")[0]) show(rows, answer.total ?? rows.length, answer.complete ?? true);
  });

  function path() {
    const [set, id] = rule.value.split("/");
    const query = new URLSearchParams({ n: String(rowsShown()), ...(set ? { rule_set: set, rule: id } : {}) });
    if (!session.history) return `/v1/top?by=denied&window=60s&${query}`;
    query.set("offset", String(offset));
    if (search !== "") query.set("search", search);
    if (order !== "denied") return `/v1/usage?by=${order}&${query}`;
    return `/v1/denials?group=identity&${query}&from=${Math.round(now() - Math.min(Number(range) * 60_000, session.history ?? Infinity))}`;
  }

  /** Finds when slots end, and the names of those that a list shows as pseudonyms. @param {{identity: string | null, handle: string | null}[]} rows @param {AbortSignal} current */
  async function readStates(rows, current) {
    const asked = rows.flatMap(({ identity, handle }) => handle && (order === "slots" || !names.has(handle)
      && [...readIdentity(identity ?? "").values()].some(isHidden)) ? [handle] : []);
    if (asked.length === 0) return;
    const { states } = await post("/v1/state/batch", { states: asked.map((handle) => ({ handle })) }, current);
    asked.forEach((handle, index) => {
      const { identity = "", slots_end_after_ms: slots = [] } = states[index];
      names.set(handle, identity);
      ends.set(handle, slotWords(slots));
    });
  }

  /** @param {number} step */
  function turn(step) {
    offset = Math.max(0, offset + step);
    list.run();
  }

  function restart() {
    offset = 0;
    const link = new URLSearchParams({ ...(order === "denied" ? {} : { show: order }), ...(rule.value ? { of: rule.value } : {}) });
    history.replaceState(null, "", link.size > 0 ? `#/identities?${link}` : "#/identities");
    ranges.hidden = order !== "denied" || !session.history;
    list.run();
  }

  /** @param {any[]} rows @param {number} total @param {boolean} isComplete */
  function show(rows, total, isComplete) {
    const [none, what] = WORDS[order];
    const place = total === 0 ? "" : `${number(offset + 1)} to ${number(offset + rows.length)} of ${number(total)}. `;
    setText(text, place + (session.history ? what : "Within the last minute: history is false in the config.")
      + (order === "denied" || order === "slots" ? "" : BOUND) + (isComplete ? "" : " Only the newest 100,000 rows are counted."));
    previous.disabled = offset === 0;
    next.disabled = offset + rows.length >= total;
    foot.hidden = previous.disabled && next.disabled;
    const key = JSON.stringify([order, rows, ...ends]);
    if (key === shown) return;
    shown = key;
    const focused = body.contains(document.activeElement) ? document.activeElement?.getAttribute("href") : null;
    replace(body, rows.length === 0
      ? empty(none, search === "" ? "Type into the search to open any identity, also one that is not listed."
        : `No listed identity contains “${search}”. “Look up” opens it all the same.`)
      : order === "denied" ? deniedTable(rows) : usageTable(rows));
    for (const each of body.querySelectorAll("a")) if (each.getAttribute("href") === focused) each.focus();
  }

  /** @param {{rule_set: string | null, rule: string | null, identity: string | null, handle: string | null}} row */
  const linkTo = (row) => row.identity === null || !row.rule_set || row.identity === "anonymous" && !row.handle
    ? h("span.mono", row.identity ?? "(no identity)")
    : h("a.mono", { href: identityLink(row) }, names.get(row.handle ?? "") || row.identity);

  /** @param {(Denial & Top)[]} rows */
  const deniedTable = (rows) => table("Identities that were denied most",
    ["Identity", "Rule", "Last", "What happened", "Denials"], rows.map((row) => [
      linkTo(row), placeOf(row),
      row.last_ms ? timeTag(row.last_ms) : "within a minute", OUTCOMES[row.outcome] ?? "denied", count(row.count, "denial"),
    ]), 4);

  /** @param {Usage[]} rows */
  const usageTable = (rows) => table("Identities by what they use",
    ["Identity", "Rule", "Used", order === "slots" ? "Expire" : "Runs out", "Within the last hour", "Left"], rows.map((row) => {
      const found = entries.find(({ set, rule: { id } }) => set === row.rule_set && id === row.rule);
      const unit = found ? unitOf(found.rule) : "unit";
      const bar = gauge(`Used by ${row.identity}`);
      bar.update(row.limit - row.remaining, row.limit);
      const left = unit === "slot" ? "free" : "left";
      return [
        linkTo(row), placeOf(row),
        h("div.id-used", bar, h("span.hint", `${number(row.limit - row.remaining)} of ${count(row.limit, unit)}`)),
        order === "slots" ? ends.get(row.handle ?? "") ?? "" : row.remaining === 0 ? "at the limit now" : row.exhausted_in_ms === null ? "no" : inTime(row.exhausted_in_ms),
        count(row.per_hour, unit), `${number(row.remaining)} ${left}`,
      ];
    }), 4);

  const orders = segmentedField("Show", offered, order, (value) => {
    order = /** @type {Order} */ (value);
    restart();
  });
  ranges.hidden = order !== "denied" || !session.history;
  return {
    element: card("All identities", h("div.row.id-filters", orders, ranges, field("Rule", rule)),
    list.problem, text, body, foot),
    /** @param {string} value */
    filter(value) {
      if (value === search) return;
      search = value;
      offset = 0;
      list.run();
    },
  };
}
