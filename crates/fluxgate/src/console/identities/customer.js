// The page of one customer: what is left under every rule that counts it, what was seen together with
// it, what was denied, and what it sent.

import { badge, button, card, notice, poll } from "../components.js";
import { h, replace, setText } from "../dom.js";
import { capitalized, count, link, listed } from "../format.js";
import { leftWords, unitOf } from "./bands.js";
import { denialLog } from "./denial_log.js";
import { clearOf, describe, filtersOf, isHidden, missingOf, nounOf } from "./parts.js";
import { recentRequests } from "./requests.js";
import { ruleCard } from "./rule_card.js";
import {
  discover, isUsed, missingWords, readRecent, readStates, seenTogether, subjectOf, subjectsOf, usedShare,
} from "./subjects.js";

/** @import { Context } from "../main.js" */
/** @import { explainCard } from "./explain.js" */
/** @import { Entry, Values } from "./parts.js" */
/** @import { RuleCard } from "./rule_card.js" */
/** @import { Recent, Subject } from "./subjects.js" */
/** What a page is about. @typedef {{values: Values, found: Subject | null, rule: string | null}} Target */

const STATES_MS = 2000;
/** What else is known changes rarely, and is read from all rules. */
const DISCOVER_MS = 10_000;
/** Cards are taller on phones. */
const mostCards = () => (matchMedia("(max-width: 760px)").matches ? 4 : 8);
const MOST_SEEN = 8;

/** @param {Values} values An API key is a secret, also on a screen. */
const shownValues = (values) => new Map([...values].map(([part, value]) =>
  [part, part !== "api_key" || isHidden(value) ? value : value.length > 10 ? `${value.slice(0, 4)}…${value.slice(-2)}` : "…"]));

/**
 * @param {Context} context @param {Entry[]} entries @param {Target} target
 * @param {ReturnType<typeof explainCard>} explain
 */
export function customer(context, entries, { values, found, rule: wanted }, explain) {
  const { session, signal } = context;
  const clear = clearOf(values);
  const isEveryone = values.size === 0 && (!found || found.rule.key.length === 0);
  const who = isEveryone ? "Everyone" : values.size > 0 ? describe(shownValues(values)) : found?.name ?? "";
  /** By what calls find it: the whole of a key that is shown by its ends is learned from its requests. */
  const finders = new Map(values);
  const first = found ? `${found.set}/${found.rule.id}` : wanted;
  const isWanted = (/** @type {Subject} */ { set, rule }) => `${set}/${rule.id}` === first;
  const counted = subjectsOf(entries, clear);
  const shared = counted.filter(({ rule }) => rule.key.length === 0);
  const subjects = isEveryone ? shared.filter((each) => first === null || isWanted(each))
    : [...(found ? [found] : []), ...counted.filter(({ rule }) => rule.key.length > 0)];
  if (!isEveryone) subjects.push(...shared);
  /** @type {Map<Subject, RuleCard>} */
  const cards = new Map();
  /** @type {Set<Subject>} */
  const opened = new Set();
  let showsAll = false;
  /** The cards that are shown; nothing before the first answer. */
  let order = /** @type {string | null} */ (null);
  let recent = /** @type {Recent | null} */ (null);
  let isDiscovered = false;
  let deniedLately = /** @type {string[]} */ ([]);
  let isRead = false;

  const status = h("p.hint", { role: "status" });
  const summary = h("div");
  const list = h("div.grid.id-cards", h("p.quiet", "Loading…"));
  const more = h("div.actions");
  const unused = details("id-unused");
  const sharedPlace = details("id-shared");
  const seen = h("div.stack-small", h("p.quiet", "Loading…"));
  const log = denialLog(context, entries);
  const requests = recentRequests(session, explain.explainEvent);

  /** @type {() => void} */
  let done = () => {};
  const known = new Promise((resolve) => (done = () => resolve(null)));
  const states = poll(signal, STATES_MS, async (current) => {
    try {
      if (subjects.length > 0) await readStates(subjects, current);
      dropTwins();
    } finally {
      done();
    }
    arrange();
  });
  const others = poll(signal, DISCOVER_MS, async (current) => {
    if (isEveryone) return;
    await known;
    const { found: listed, denied, problems } = await discover(finders, found?.handle ?? null, session, current);
    isDiscovered = true;
    deniedLately = denied;
    addFound(listed);
    arrange();
    if (problems.length > 0) throw problems[0];
  });
  const sent = poll(signal, DISCOVER_MS, async (current) => {
    if (isEveryone) return;
    await known;
    if (session.records && (filtersOf(finders).length > 0 || found?.handle)) {
      const answer = await readRecent(finders, found?.handle ?? null, current);
      recent = answer.recent;
      learnKey();
      addFound(answer.found);
    }
    isRead = true;
    requests.show(recent, who);
    showSeen();
    arrange();
  });

  /** @param {import("./subjects.js").Found[]} listed */
  function addFound(listed) {
    const before = subjects.length;
    for (const each of listed) {
      const same = subjects.find(({ handle }) => handle === each.handle);
      if (same) {
        // It was seen in a request before it was found.
        if (each.isOwn && !same.isOwn && cards.delete(same)) order = null;
        same.isOwn ||= each.isOwn;
        continue;
      }
      // As long as its state could not be read, it is not known whether it is another one.
      const isPending = subjects.some(({ set, rule, handle, states: bands }) =>
        set === each.rule_set && rule.id === each.rule && handle === null && bands === null);
      const added = isPending ? undefined : subjectOf(entries, each);
      if (added) subjects.push(added);
    }
    if (subjects.length > before) states.run();
  }

  /** The same identity may be known by its values and by a handle. */
  function dropTwins() {
    /** @type {Map<string, Subject>} */
    const known = new Map();
    for (const each of [...subjects]) {
      const twin = each.handle === null ? undefined : known.get(each.handle);
      if (each.handle !== null && !twin) known.set(each.handle, each);
      if (twin) subjects.splice(subjects.lastIndexOf(each), 1);
    }
  }

  /** Recorded requests show whole pseudonyms of keys, by which all calls find them. */
  function learnKey() {
    if (!found || filtersOf(finders).length > 0 || !finders.has("api_key")) return;
    const keys = new Set((recent?.events ?? []).map((event) => event.api_key));
    const [key] = keys;
    if (keys.size === 1 && key) finders.set("api_key", key);
  }

  /** @param {Subject} subject */
  function isShared({ rule }) {
    return !isEveryone && rule.key.length === 0;
  }

  /** @param {Subject} subject */
  function isFull({ states: bands, rule }) {
    return rule.mode !== "shadow" && (bands ?? []).some(({ remaining }) => remaining === 0);
  }

  function arrange() {
    const isShown = (/** @type {Subject} */ each) =>
      each.problem !== "" || isWanted(each) || opened.has(each) || (isShared(each) ? isFull(each) : isUsed(each));
    const place = (/** @type {Subject} */ each) => (isWanted(each) ? 0 : isFull(each) ? 1 : each.isOwn ? 2 : 3);
    const used = subjects.filter((each) => (isEveryone || isShown(each)) && (each.states !== null || each.problem !== ""))
      .sort((a, b) => place(a) - place(b) || usedShare(b) - usedShare(a));
    const visible = showsAll ? used : used.slice(0, mostCards());
    for (const each of visible) {
      const known = cards.get(each);
      if (known) known.update();
      else {
        // It stays on the page after a reset.
        opened.add(each);
        cards.set(each, ruleCard(context, each, { isShared: isShared(each) }));
      }
    }
    showCards(visible);
    replaceIfNew(more, String(used.length - visible.length), () => used.length > visible.length
      && button(`Show ${count(used.length - visible.length, "more rule")}`, () => {
        showsAll = true;
        arrange();
      }));
    const rest = subjects.filter((each) => !used.includes(each) && each.states !== null);
    fillDetails(unused, "with nothing used", rest.filter((each) => !isShared(each)));
    fillDetails(sharedPlace, "that everyone shares", rest.filter(isShared));
    showSummary();
  }

  /** @param {Subject[]} visible */
  function showCards(visible) {
    const names = visible.map(({ set, rule, handle, identity }) => JSON.stringify([set, rule.id, handle ?? identity]));
    const isSame = names.toSorted().join() === order?.split("\n").toSorted().join();
    // Cards do not change places under the pointer or the focus.
    if (isSame && (order === names.join("\n") || list.matches(":hover, :focus-within"))) return;
    order = names.join("\n");
    replace(list, visible.map((each) => /** @type {RuleCard} */ (cards.get(each)).element));
  }

  function showSummary() {
    const known = subjects.filter((each) => each.states !== null && !isShared(each) && each.rule.key.length > 0);
    const full = subjects.filter((each) => isFull(each) && (each.isOwn || isShared(each)));
    setText(status, known.length === 0 ? ""
      : `Something is used under ${known.filter(isUsed).length} of ${count(known.length, "rule")}.`);
    const isUnknown = !isEveryone && isDiscovered && isRead && !known.some(isUsed) && !recent?.events.length;
    const limiting = full.map(({ set, rule }) => `${set}/${rule.id}`);
    // A request may cost more than what is left.
    const denying = deniedLately.filter((name) => !limiting.includes(name));
    const text = limiting.length + denying.length > 0
      ? [limiting.length > 0 && `Limited now by ${listed(limiting)}: nothing is left there.`,
        denying.length > 0 && `Denied within the last minute by ${listed(denying)}.`].filter(Boolean).join(" ")
      : isUnknown ? `Nothing is known of ${who}: it has used nothing that is still counted, and none of its requests is recorded.`
      : "";
    replaceIfNew(summary, text, () => text !== "" && notice(limiting.length + denying.length > 0 ? "warn" : "quiet", text));
  }

  /** @param {ReturnType<typeof details>} place @param {string} what @param {Subject[]} rest */
  function fillDetails(place, what, rest) {
    place.element.hidden = rest.length === 0;
    setText(place.title, `${count(rest.length, "rule")} ${what}`);
    place.show(() => scrolled(place.title.textContent ?? "", rest.map((each) => h("li.row.spread",
        h("span", h("span.quiet", `${each.set} / `), h("a", { href: link("rules", { set: each.set, rule: each.rule.id }) }, each.rule.id),
          !each.isOwn && h("span.hint", ` ${each.name}`)),
        h("span.row", h("span.hint", (each.states ?? []).map((state) =>
          `${leftWords(state, unitOf(each.rule))} in ${state.band}`).join(", ")),
        button("Show", () => {
          opened.add(each);
          arrange();
        }, { of: `${each.set}/${each.rule.id}` }))))), JSON.stringify(rest.map(({ set, rule, name, states: bands }) => [set, rule.id, name, bands])));
  }

  function showSeen() {
    const together = seenTogether(recent, entries, finders);
    log.showIdentities(logIdentities(together));
    const from = recent === null ? "" : `From ${count(recent.events.length, "recorded request")}.${missingWords(recent)}`;
    replaceIfNew(seen, JSON.stringify([together, from]), () => recent === null || !recent.records
      ? h("p.quiet", "Not known: requests are not recorded. Set admin: { record: true } in the config.")
      : together.length === 0 ? h("p.quiet", `No other user, key or address. ${from}`)
      : [h("ul.id-seen", together.slice(0, MOST_SEEN).map((each) => h("li.row", h("span.quiet", capitalized(nounOf(each.part))),
        seenLink(each, recent?.identities ?? false), h("span.hint", count(each.count, "request"))))),
      h("p.hint", together.length > MOST_SEEN && `${count(together.length - MOST_SEEN, "more value is", "more values are")} not shown. `, from)]);
  }

  /** @param {{part: string, value: string}[]} together @returns {[string, string][]} */
  function logIdentities(together) {
    const own = [...finders].flatMap((pair) => filtersOf(new Map([pair])).map((text) =>
      /** @type {[string, string]} */ ([text, describe(shownValues(new Map([pair])))])));
    if (own.length === 0 && found?.handle) own.push([found.handle, found.name]);
    const seenToo = recent?.identities ? together : together.filter(({ part }) => part === "api_key");
    return [...own, ...seenToo.slice(0, MOST_SEEN).map(({ part, value }) =>
      /** @type {[string, string]} */ ([`${part}=${value}`, `${part} = ${value} (seen together)`]))];
  }

  const incomplete = isEveryone ? [] : entries.filter(({ set, rule }) => missingOf(rule, clear).length > 0
    && !(found && found.set === set && found.rule.id === rule.id));
  if (!isEveryone) log.showIdentities(logIdentities([]));
  return h("div.stack",
    h("div.row.spread", h("h2.id-who", who), status),
    summary, states.problem, others.problem, sent.problem, list, more, unused.element, sharedPlace.element,
    incomplete.length > 0 && h("details.card", h("summary", `${count(incomplete.length, "rule")} that need more values`),
      scrolled("Rules that need more values", incomplete.map(({ set, rule }) => h("li.row",
        h("span", h("span.quiet", `${set} / `), rule.id),
        missingOf(rule, clear).map((part) => badge(values.has(part) ? `${part} is hidden here` : `needs ${part}`)))))),
    session.role === "viewer" && h("p.hint",
      `Refunds and resets need the role operator. You have the role ${session.role}.`),
    !isEveryone && card("Seen together", seen),
    !isEveryone && h("div.id-lists", log.element, requests.element));
}

/** @param {{part: string, value: string}} seen @param {boolean} isNamed */
function seenLink({ part, value }, isNamed) {
  // What is shown in place of an address looks like one, and finds nothing.
  if (part === "ip" && !isNamed) return h("span.mono", `${value} (pseudonym)`);
  return h("a.mono", { href: link("identities", { [part]: value }) }, value);
}

/** @param {string} label @param {HTMLElement[]} items */
const scrolled = (label, items) =>
  h("div.scroll-box", { tabindex: 0, role: "group", "aria-label": label }, h("ul.id-rest", items));

/** @param {string} name */
function details(name) {
  const title = h("summary");
  const body = h("div");
  const element = h(`details.card.${name}`, { hidden: true, ontoggle: render }, title, body);
  let content = /** @type {(() => Node) | null} */ (null);
  let key = "";
  let shown = "";
  function render() {
    if (!element.open || !content || key === shown || body.matches(":focus-within")) return;
    shown = key;
    replace(body, content());
  }
  return {
    element, title,
    /** @param {() => Node} next @param {string} nextKey what it depends on */
    show(next, nextKey) {
      content = next;
      key = nextKey;
      render();
    },
  };
}

/** Replaces what is shown only if it is another, so that the focus stays and nothing is read out twice.
 * @param {HTMLElement} place @param {string} key @param {() => import("../dom.js").Part} content */
function replaceIfNew(place, key, content) {
  if (place.dataset.shown === key) return;
  place.dataset.shown = key;
  replace(place, content());
}
