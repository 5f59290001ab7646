// Who was denied, by what and when: the rows of one customer, by minute, with filters and export.

import { get } from "../api.js";
import { now } from "../clock.js";
import { button, card, field, options, poll, ruleChoice, segmentedField, table, timeTag } from "../components.js";
import { h, replace, setText } from "../dom.js";
import { count, number, placeOf, sum } from "../format.js";
import { downloadLink } from "./download.js";
import { explainHandle } from "./explain.js";

/** @import { Context } from "../main.js" */
/** @import { Entry } from "./parts.js" */
/** @import { Denial } from "./subjects.js" */
/** @typedef {{denials: Denial[], cursor: string | null, dropped: number}} Page */

const HOUR = 3_600_000;
const RANGES = /** @type {const} */ ([["1", "1 hour"], ["24", "24 hours"], ["168", "7 days"]]);
const SHOWN = 20;
const EVERY_MS = 10_000;
export const OUTCOMES = /** @type {Record<string, string>} */ ({
  denied: "denied", never: "denied: costs more than the limit", forbidden: "forbidden",
  shadow_denied: "passed; a shadow rule would deny", failed_closed: "denied: Redis did not answer",
  fallback: "denied locally: Redis did not answer",
});

/** @param {Context} context @param {Entry[]} entries */
export function denialLog({ session, signal, notify }, entries) {
  const OFF = "What happened is not recorded: history is false in the config.";
  /** What identities are found by, with a name for people. @type {[string, string][]} */
  let wanted = [];
  let range = /** @type {string} */ ("24");
  /** The cursors of the pages up to this one. @type {string[]} */
  let cursors = [];
  let shown = "";
  const body = h("div.stack-small");
  const text = h("p.hint", { role: "status" });
  const of = h("select", { onchange: () => restart() });
  const ofField = field("Identity", of);
  const rule = ruleChoice(entries, () => restart());
  const explained = h("div.stack-small", { "aria-live": "polite" });
  const newer = button("Newer", () => turn(() => cursors.pop()));
  const older = button("Older", () => turn(() => cursors.push(next ?? "")));
  const foot = h("div.actions.id-list-foot", { hidden: true }, newer, older);
  let next = /** @type {string | null} */ (null);

  /** @param {Record<string, string>} more */
  function path(more) {
    const [set, id] = rule.value.split("/");
    const from = String(Math.round(now() - Math.min(Number(range) * HOUR, session.history ?? Infinity)));
    const identity = of.value || (wanted[0]?.[0] ?? "");
    return `/v1/denials?${new URLSearchParams({ identity, from, ...(set ? { rule_set: set, rule: id } : {}), ...more })}`;
  }

  const links = ["csv", "ndjson"].map((format) =>
    downloadLink(format.toUpperCase(), `denials.${format}`, () => path({ format }), notify));
  const log = poll(signal, EVERY_MS, async (current) => {
    if (!session.history || wanted.length === 0) return;
    const cursor = cursors.at(-1);
    const asked = path({ n: String(SHOWN), ...(cursor ? { cursor } : {}) });
    /** @type {Page} */
    const page = await get(asked, current);
    next = page.cursor;
    show(page);
  });

  /** @param {() => void} step */
  function turn(step) {
    step();
    log.run();
  }

  function restart() {
    cursors = [];
    log.run();
  }

  /** @param {Page} page */
  function show({ denials, cursor, dropped }) {
    newer.disabled = cursors.length === 0;
    older.disabled = cursor === null;
    foot.hidden = newer.disabled && older.disabled;
    const name = RANGES.find(([value]) => value === range)?.[1];
    const total = sum(denials.map((row) => row.count));
    setText(text, denials.length === 0 ? `Not denied within the last ${name}.`
      : `${count(total, "denial")} on this page, in one row for each rule and minute, the newest first.`
        + (dropped > 0 ? ` ${count(dropped, "denial")} of these rules had no room in the record.` : ""));
    // The table stays as it is, with its focus, if there is nothing new.
    const rows = JSON.stringify(denials);
    if (rows === shown) return;
    shown = rows;
    if (denials.length === 0) return replace(body);
    const list = table("Denials, newest first",
      ["Last", "Rule", "Denials", "Outcome", "Request", "Decision now"], denials.map((row) => [
        timeTag(row.last_ms), placeOf(row),
        number(row.count), OUTCOMES[row.outcome] ?? row.outcome,
        h("span.mono.id-path", `${row.method ?? ""} ${row.path ?? "–"}`),
        row.handle && row.rule_set ? button("Explain", async () => {
          replace(explained, ...await explainHandle(row.rule_set ?? "", row.handle ?? ""));
        }, { of: `the denial by ${row.rule}` }) : "–",
      ]));
    list.classList.add("scroll-box");
    replace(body, list);
  }

  const element = card("Denials",
    ...(session.history ? [h("div.row.id-filters",
      segmentedField("Within the last", RANGES, range, (value) => {
        range = value;
        restart();
      }),
      ofField, field("Rule", rule), h("div.field", h("span.field-label", "Export"), h("span.row.tight", links))),
    log.problem, text, body, explained, foot] : [h("p.quiet", OFF)]));

  return {
    element,
    /** @param {[string, string][]} identities what they are found by, and a name for people */
    showIdentities(identities) {
      if (JSON.stringify(identities) === JSON.stringify(wanted)) return;
      const chosen = of.value;
      wanted = identities;
      replace(of, options(identities, chosen));
      ofField.hidden = identities.length < 2;
      log.run();
    },
  };
}
