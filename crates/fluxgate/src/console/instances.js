// The instances that share the rules and the store.

import { get } from "./api.js";
import { badge, card, pageHead, poll, table } from "./components.js";
import { h, replace, setText } from "./dom.js";
import { ago, count, duration } from "./format.js";

const LATE_MS = 10_000;
const COLUMNS = ["Instance", "Version", "Rules", "Uptime", "Last seen", "Decisions/s", "Denied/s"];

/** @typedef {{
 *   id: string, version: string, revision: string, started_ms: number, seen_ms: number,
 *   decisions_per_second: number, denied_per_second: number, is_self: boolean, hostname: string,
 * }} Instance */

/** @param {import("./main.js").Context} context */
export function view({ signal, live }) {
  const body = h("div", h("p.hint", "Loading the instances."));
  const text = h("span");

  /** @param {{instances: Instance[], failure: string | null}} answer */
  function show({ instances, failure }) {
    setText(text, failure ? `Other instances are unknown: ${failure}.`
      : live.latest?.store.kind === "memory" && instances.length < 2
      ? "The store is in memory, so no other instance shares it."
      : `${count(instances.length, "instance uses", "instances share")} the store.`);
    const own = instances.find((each) => each.is_self)?.revision;
    const rows = instances.map((each) => row(each, own));
    const made = table("Instances", COLUMNS, rows, 5);
    const scroll = body.firstElementChild?.scrollLeft ?? 0;
    const hadFocus = body.contains(document.activeElement);
    replace(body, made, summary(instances, own));
    made.scrollLeft = scroll;
    if (hadFocus) made.focus({ preventScroll: true });
  }

  const { problem } = poll(signal, 3000, async () =>
    show(await get("/v1/instances", signal)));
  return {
    element: h("div.stack", pageHead("Instances", [text]), problem, card("All instances", body)),
  };
}

/** @param {Instance} instance */
const isLate = ({ seen_ms: seen }) => Date.now() - seen > LATE_MS;

/** @param {Instance} instance @param {string | undefined} own the revision of this instance */
function row(instance, own) {
  const { id, hostname, version, revision, started_ms: started, seen_ms: seen } = instance;
  return [
    [
      h("div.tight", hostname || id, instance.is_self && badge("this instance", "info")),
      hostname && h("div.hint.mono", id),
    ],
    version,
    h("div.tight", h("code", revision.slice(0, 8)), revision !== own && badge("different rules", "warn")),
    duration(Date.now() - started),
    h("div.tight", ago(seen), isLate(instance) && badge("late", "bad")),
    instance.decisions_per_second,
    instance.denied_per_second,
  ];
}

/** @param {Instance[]} instances @param {string | undefined} own */
function summary(instances, own) {
  const differ = instances.filter(({ revision }) => revision !== own).length;
  const late = instances.filter(isLate).length;
  return h("div.card-foot.hint",
    differ > 0 && h("p", `${count(differ, "instance has", "instances have")} different rules from `
      + "this one. Changes in Redis spread within seconds."),
    late > 0 && h("p", `${count(late, "instance has", "instances have")} not been seen for 10 `
      + "seconds: stopped, or cut off from Redis."));
}
