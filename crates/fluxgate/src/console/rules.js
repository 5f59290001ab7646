// The Rules view: the active rules in words, the editor, and the history of a set.

import { get } from "./api.js";
import {
  ageTag, badge, button, card, disclosure, empty, pageHead, reloading, showProblem, timeTag,
} from "./components.js";
import { h, replace } from "./dom.js";
import { link } from "./format.js";
import { refresh, watch } from "./polling.js";
import { codeBlock, diffBlock } from "./rules/code.js";
import { effectsOf } from "./rules/last_change.js";
import { ruleList } from "./rules/list.js";
import { pressureFeed } from "./rules/pressure.js";
import { ALL, drafts, NEW, pathOf, readText } from "./rules/store.js";
import { workbench } from "./rules/workbench.js";

/** @import { RuleSet } from "./api.js" */
/** @import { Context } from "./main.js" */

/** A change made elsewhere is also seen by the revision of the live events. */
const EVERY_MS = 10_000;

const SAVED = "Change them there: the service reads them again when";
const SOURCES = {
  file: `Rules come from the config file. ${SAVED} the file is saved.`,
  dir: `Rules come from a directory of files. ${SAVED} a file is saved.`,
  http: `Rules come from an HTTP server. ${SAVED} the file there changes.`,
  mongodb: `Rules come from MongoDB. ${SAVED} a document there changes.`,
  redis: "Rules are stored in Redis, and all instances share them.",
  demo: "These are the built-in rules of the demo.",
};

/** @param {Context} context */
export function view(context) {
  const { session, params } = context;
  const page = params.get("view");
  const set = params.get("set");
  if (page === "edit" || page === "new") {
    const name = !session.writable ? ALL : page === "new" || !set ? NEW : set;
    const title = name === NEW ? "New rule set" : name === ALL ? "Rules as text" : `Rule set ${name}`;
    const text = session.writable ? [] : [SOURCES[session.source],
      " Here you can edit a draft, check it, try it, and copy or download it."];
    const open = async () => workbench(context, name, (await readSets()).map((each) => each.name));
    const past = name !== ALL && name !== NEW
      && h("a.button", { href: link("rules", { view: "history", set: name }) }, "History");
    return subpage(title, text, past, reloading(context, open, { followsRules: false }).element);
  }
  if (page === "history" && set && session.writable) {
    const edit = h("a.button", { href: link("rules", { view: "edit", set }) }, "Open the editor");
    return subpage(`History of ${set}`, [], edit, reloading(context, () => history(context, set)).element);
  }
  return listPage(context);
}

/** @param {string} title @param {string[]} text @param {Node | false} action @param {Node} body */
function subpage(title, text, action, body) {
  const head = pageHead(title, text, action);
  head.querySelector("h1")?.before(h("a", { href: "#/rules" }, "← All rules"));
  return { element: h("div.stack", head, body) };
}

/** @param {Context} context */
function listPage(context) {
  const { session, live, signal } = context;
  const problem = h("div");
  const trouble = h("div");
  const place = h("div", h("p.quiet", "Loading…"));
  let shown = "";
  const reload = async () => show(await readSets());
  const feed = pressureFeed(context, () => list.updatePressure(), (error) => showProblem(trouble, error));
  const list = ruleList(context, feed, reload);
  /** @param {RuleSet[]} sets */
  function show(sets) {
    const next = JSON.stringify(sets);
    if (next === shown) return;
    if (shown === "") replace(place, list.element);
    shown = next;
    list.show(sets);
  }

  watch(signal, "/v1/rule_sets", EVERY_MS, ({ rule_sets: sets }) => show(sets), (error) => {
    showProblem(problem, error);
    if (error && shown === "") replace(place);
  });
  live.onRules(signal, () => refresh("/v1/rule_sets"));
  /** @param {string} view @param {string} text */
  const action = (view, text) => h("a.button.primary", { href: `#/rules?view=${view}` }, text);
  return { element: h("div.stack",
    pageHead("Rules",
      [SOURCES[session.source], !session.writable && " You can edit and try a draft here."],
      session.writable && session.role === "admin" && action("new", "New rule set"),
      !session.writable && action("edit", drafts.has(ALL) ? "Continue editing" : "Edit and try")),
    problem, trouble, place) };
}

/** @returns {Promise<RuleSet[]>} */
const readSets = async () => (await get("/v1/rule_sets")).rule_sets;

/** @typedef {{at_ms: number, who: string, what: string, etag: string, text: string | null}} Change */

/** @param {Context} context @param {string} set */
async function history(context, set) {
  /** @type {{changes: Change[]}} */
  const { changes } = await get(`${pathOf(set)}/history`);
  if (changes.length === 0) {
    return h("div.card", empty("No history yet",
      "Changes of this rule set from now on are listed here."));
  }

  /** @param {string} text */
  async function restore(text) {
    try {
      const stored = await readText(set);
      drafts.set(set, { text, base: stored.text, etag: stored.etag });
      location.hash = link("rules", { view: "edit", set });
    } catch (error) {
      context.notify(String(error), "bad");
    }
  }

  const wanted = Number(context.params.get("at") ?? changes[0].at_ms);
  const away = (/** @type {Change} */ { at_ms: at }) => Math.abs(at - wanted);
  const opened = changes.reduce((best, each) => (away(each) < away(best) ? each : best));

  /** @param {Change} change @param {number} index */
  function item(change, index) {
    const { at_ms: at, who, what, text } = change;
    const place = h("div.stack-small");
    const before = changes[index + 1];
    // The oldest has nothing to compare with.
    const diff = before && diffBlock(before.text ?? "", text ?? "", "Changed lines");
    const canRestore = context.session.role === "admin" && text !== null && index > 0;
    const see = disclosure(diff ? "See the change" : "See the text", place, () => diff
      ? [diff.element, context.session.history
        && reloading(context, () => effectsOf(set, before.text ?? "", text ?? "", at), { followsRules: false }).element]
      : codeBlock(text ?? "", "Text after the change"));
    if (change === opened && diff) see.click();
    return h("li.change",
      h("div.row",
        h("h3", timeTag(at)),
        ageTag(at), index === 0 && badge("active", "good")),
      h("p", h("strong", who), ` · ${what.replace("put", "wrote")}`, diff && ` · ${diff.words}`),
      h("div.actions", see,
        canRestore && button("Open in the editor", () => restore(text))),
      place);
  }
  return card("Changes, newest first", h("ol", changes.map(item)));
}
