// The Rules view: the active rules in words, the editor, and the history of a set.

import { get } from "./api.js";
import { problemNotice } from "./components.js";
import { h, replace } from "./dom.js";
import { ALL, draftOf, NEW } from "./rules/drafts.js";
import { history } from "./rules/history.js";
import { keyOf, ruleList } from "./rules/list.js";
import { titleOf, workbench } from "./rules/workbench.js";

/** @typedef {import("./main.js").Context} Context */
/** @typedef {import("./rules/list.js").RuleSet} RuleSet */

/** @type {Record<string, string>} */
const SOURCES = {
  file: "Rules come from the config file. Change them there: the service takes a new version as soon as the file is saved.",
  directory: "Rules come from a directory of files. Change them there: the service takes a new version as soon as a file is saved.",
  redis: "Rules are stored in Redis, and all instances share them.",
  demo: "These are the built-in rules of the demo.",
};

/** @param {Context} context */
export function view(context) {
  const { session, params } = context;
  const page = params.get("view");
  const set = params.get("set");
  if (page === "edit" || page === "new") {
    return subpage(context, titleOf(nameOf(context)), async () =>
      workbench(context, nameOf(context), (await readSets(context)).map(({ name }) => name)));
  }
  if (page === "history" && set && session.writable) {
    return subpage(context, `History of ${set}`, () => history(context, set));
  }
  return listPage(context);
}

/** Returns the name of the draft that the address asks for. @param {Context} context */
function nameOf({ session, params }) {
  if (!session.writable) return ALL;
  return params.get("view") === "new" ? NEW : (params.get("set") ?? NEW);
}

/** @param {Context} context */
function listPage(context) {
  const { session, params, live, signal } = context;
  const place = h("div", {}, h("p", { class: "quiet" }, "Loading …"));
  let update = (/** @type {import("./live.js").LiveEvent} */ _event) => {};

  /** @param {string | null} focus the rule to move to */
  async function load(focus) {
    try {
      const list = ruleList(context, await readSets(context), () => load(focused()));
      replace(place, list.element);
      update = list.update;
      if (live.latest) update(live.latest);
      if (focus) moveTo(place, focus);
    } catch (error) {
      if (!signal.aborted) replace(place, problemNotice(error));
    }
  }
  const focused = () => document.activeElement?.closest("[data-rule]")?.getAttribute("data-rule") ?? null;

  const stop = live.subscribe((event) => update(event));
  const set = params.get("set");
  load(set && keyOf(set, params.get("rule") ?? ""));
  const canWrite = session.writable && session.role === "admin";
  const element = h("div", { class: "stack" },
    h("div", { class: "page-head" },
      h("div", {}, h("h1", {}, "Rules"),
        h("p", { class: "quiet" }, SOURCES[session.source], !session.writable && " You can edit and try a copy here.")),
      h("div", { class: "actions" },
        canWrite && h("a", { class: "button primary", href: "#/rules?view=new" }, "New rule set"),
        !session.writable && h("a", { class: "button primary", href: "#/rules?view=edit" },
          draftOf(ALL) ? "Continue editing" : "Edit and try"))),
    place);
  return { element, dispose: stop };
}

/**
 * A page below the list, whose content is loaded.
 * @param {Context} context
 * @param {string} title
 * @param {() => Promise<HTMLElement>} load
 */
function subpage({ session, params, signal }, title, load) {
  const place = h("div", {}, h("p", { class: "quiet" }, "Loading …"));
  load().then((content) => replace(place, content), (error) => {
    if (!signal.aborted) replace(place, problemNotice(error));
  });
  const isEditor = params.get("view") !== "history";
  const query = new URLSearchParams({ set: params.get("set") ?? "" });
  const element = h("div", { class: "stack" },
    h("div", { class: "page-head" },
      h("div", {},
        h("a", { href: "#/rules" }, "← All rules"),
        h("h1", {}, title),
        isEditor && !session.writable && h("p", { class: "quiet" }, SOURCES[session.source],
          " Here you can change a copy, check it and try it, and then copy or download it.")),
      session.writable && params.get("view") !== "new" && h("div", { class: "actions" },
        h("a", { class: "button plain", href: `#/rules?view=${isEditor ? "history" : "edit"}&${query}` },
          isEditor ? "History" : "Open the editor"))),
    place);
  return { element };
}

/**
 * @param {Context} context
 * @returns {Promise<RuleSet[]>}
 */
async function readSets({ signal }) {
  return (await get("/v1/rule_sets", signal)).rule_sets;
}

/**
 * Moves to a rule, or to its set.
 * @param {HTMLElement} place
 * @param {string} key
 */
function moveTo(place, key) {
  const [set] = JSON.parse(key);
  const rule = place.querySelector(`[data-rule=${CSS.escape(key)}]`);
  const target = rule ?? place.querySelector(`[data-set=${CSS.escape(set)}]`);
  if (!(target instanceof HTMLElement)) return;
  target.scrollIntoView({ block: "start" });
  if (rule) target.focus({ preventScroll: true });
}
