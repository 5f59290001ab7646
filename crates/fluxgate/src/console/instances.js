// The instances that share the rules and the store.

import { plainly } from "./api.js";
import { now } from "./clock.js";
import { badge, card, pageHead, showProblem, table } from "./components.js";
import { h, replace, setText } from "./dom.js";
import { FLEET_PATH, isLate, nameOf } from "./fleet.js";
import { ago, count, duration, number, rate, sum, time } from "./format.js";
import { watch } from "./polling.js";

/** @import { Fleet, Gone, Instance } from "./fleet.js" */

const EVERY_MS = 3000;
const COLUMNS = [
  "Instance", "Version and rules", "Running for", "Last sign of life", "In use now", "Redis", "Decisions", "Denied",
];
const BREAKER = /** @type {const} */ ({
  closed: ["good", "answers"], half_open: ["warn", "is tried again"], open: ["bad", "does not answer"],
});

/** @param {import("./main.js").Context} context */
export function view({ signal, live, fleet }) {
  const body = h("div", h("p.hint", "Loading the instances."));
  const text = h("span");
  const problem = h("div");

  /** @param {Fleet} latest */
  function show({ instances, failure, gone }) {
    setText(text, failure ? `Other instances are unknown, because Redis does not answer: ${plainly(failure)}.`
      : live.latest?.store.kind === "memory" && instances.length < 2
      ? "The store is in memory, so no other instance shares it."
      : `${count(instances.length, "instance uses", "instances share")} the store.`);
    const own = instances.find((each) => each.is_self)?.revision;
    const made = table("Instances", COLUMNS, instances.map((each) => row(each, own)), 6);
    const scroll = body.firstElementChild?.scrollLeft ?? 0;
    const hadFocus = body.contains(document.activeElement);
    replace(body, made, summary(instances, own), goneList(gone));
    made.scrollLeft = scroll;
    if (hadFocus) made.focus({ preventScroll: true });
  }

  fleet.subscribe(signal, show);
  // More often than on other views.
  watch(signal, FLEET_PATH, EVERY_MS, () => {}, (error) => showProblem(problem, error));
  return {
    element: h("div.stack", pageHead("Instances", [text]), problem, card("All instances", body),
      h("p.hint", "Rules are the first digits of a hash of the active rules: where they are the same, the rules are "
        + "the same. Slots are held by running requests. Units on lease were taken from Redis in advance.")),
  };
}

/** @param {Instance} instance @param {string | undefined} own the hash of the rules of this instance */
function row(instance, own) {
  const { id, hostname, address, version, revision, started_ms: started, seen_ms: seen, store } = instance;
  const known = (/** @type {number | null | undefined} */ value, /** @type {string} */ unit) =>
    (value === null || value === undefined ? "–" : `${number(value)} ${value === 1 ? unit.replace(/s$/, "") : unit}`);
  const [level, words] = BREAKER[/** @type {keyof typeof BREAKER} */ (store?.breaker)] ?? ["quiet", "not known"];
  return [
    [
      h("div.row", hostname || address || id, instance.is_self && badge("this instance", "info")),
      h("div.hint.mono", hostname && address ? `${address} · ${id}` : id),
    ],
    [h("div", version), h("div.row", h("code", revision.slice(0, 8)), revision !== own && badge("different rules", "warn"))],
    h("span", { title: `Since ${time(started)}` }, duration(now() - started)),
    h("div.row", ago(seen), isLate(instance) && badge("late", "bad")),
    [h("div", `${known(instance.waiting, "requests")} waiting`), h("div", `${known(instance.slots, "slots")} held`),
      store?.kind !== "memory" && h("div", `${known(instance.leased_units, "units")} on lease`)],
    store?.kind === "memory" ? "in memory" : badge(words, level),
    rate(instance.decisions_per_second),
    rate(instance.denied_per_second),
  ];
}

/** @param {Instance[]} instances @param {string | undefined} own */
function summary(instances, own) {
  const differ = instances.filter(({ revision }) => revision !== own).length;
  const late = instances.filter(isLate).length;
  const total = (/** @type {"decisions_per_second" | "denied_per_second"} */ field) =>
    rate(sum(instances.filter((each) => !isLate(each)).map((each) => each[field])));
  return h("div.card-foot.hint",
    h("p", `Together ${total("decisions_per_second")} decided, ${total("denied_per_second")} denied: `
      + "averages of about 5 seconds."),
    differ > 0 && h("p", `${count(differ, "instance has", "instances have")} different rules from `
      + "this one. Changes in Redis spread within seconds."),
    late > 0 && h("p", `${count(late, "instance has", "instances have")} not been seen for 12 `
      + "seconds: stopped, or cut off from Redis. Its counters are in Redis; what it had on lease is lost."));
}

/** @param {Gone[]} gone */
function goneList(gone) {
  return gone.length > 0 && h("div.card-foot", h("h3", "No longer there"), h("ul", gone.map((each) =>
    h("li", `${nameOf(each)}, version ${each.version}: last sign of life at ${time(each.seen_ms)}.`))));
}
