// Who runs out of a limit soon, if it goes on like that.

import { h, setText } from "../dom.js";
import { card, showProblem } from "../components.js";
import { compact, duration, identityLink, inTime, isNamed, link, number, share } from "../format.js";
import { watch } from "../polling.js";
import { rowList } from "./row_list.js";

/** @import { Usage } from "../api.js" */

const SHOWN = 8;
/** Those that are used up already come first, and are not shown. */
const PATH = "/v1/usage?by=soon&n=100&offset=0";
const EVERY_MS = 10_000;

/** @param {import("../main.js").Context} context */
export function runningOutCard({ signal, live }) {
  const list = rowList(SHOWN);
  const text = h("p.hint", "Loading…");
  const problem = h("div");
  const { run } = watch(signal, PATH, EVERY_MS, (/** @type {{usage: Usage[], total: number}} */ { usage, total }) => {
    const soon = usage.filter(({ remaining }) => remaining > 0);
    list.show(soon.map(rowOf));
    const full = usage.length - soon.length;
    const rest = total - full - Math.min(SHOWN, soon.length);
    setText(text, soon.length === 0 && rest === 0 ? "At the rate of the last hour, no identity runs out before its limit starts anew. "
      : `At the rate of the last hour, of all instances.${rest > 0 ? ` ${number(rest)} more: ` : " "}`);
    if (rest > 0) text.append(h("a", { href: link("identities", { show: "soon" }) }, "all that run out"), ". ");
    if (full > 0) text.append("Used up already: ", h("a", { href: link("identities", { show: "share" }) }, `${number(full)} at the limit`), ".");
  }, (error) => showProblem(problem, error));
  live.onRules(signal, () => run());
  return card("Runs out soon", { "aria-label": "Runs out soon" }, problem, list.element, text);
}

/** @param {Usage} row */
function rowOf(row) {
  const { rule_set: set, rule, band, identity, limit, remaining, used_share: used } = row;
  const { reset_after_ms: reset, per_hour: perHour, exhausted_in_ms: left } = row;
  const name = identity ?? "Everyone together";
  return {
    key: JSON.stringify([set, rule, band, identity, row.handle]),
    name,
    href: identity && identity !== "(everyone)" ? identityLink(row) : link("identities", { rule: `${set}/${rule}` }),
    value: inTime(left ?? 0),
    rule: `${set} / ${rule}`,
    ruleHref: link("rules", { set, rule }),
    detail: `: ${number(remaining)} of ${number(limit)} left${isNamed(band) ? ` in limit “${band}”` : ""}, ${compact(perHour)} units used within the last hour`
      + (reset > 0 ? `, all available again in ${duration(reset)}` : ""),
    part: used,
    bar: `Used by ${name} of ${set} / ${rule}: ${share(used)}`,
  };
}
