// The editor page: text, faults, difference, trial and applying.

import { get, Problem } from "../api.js";
import {
  button, card, copyText, disclosure, field, notice, problemNotice, reasonDialog, textInput,
} from "../components.js";
import { h, replace } from "../dom.js";
import { link } from "../format.js";
import { diffBlock } from "./code.js";
import { unwrap, wrap } from "./document.js";
import { editor, problems } from "./editor.js";
import { ruleForm } from "./form.js";
import { ALL, drafts, NEW, readText, writeText } from "./store.js";
import { trial } from "./trial.js";
import { changeWords } from "./words.js";

/** @import { Fault } from "../api.js" */
/** @import { Context } from "../main.js" */
/** @import { Draft, Stored, Written } from "./store.js" */

const DIFF_PAUSE_MS = 120;
/** The name of a new set that has none yet. */
const NO_NAME = "new";
const TEMPLATE = `# All fields: docs/rules.md
rules:
  - id: per-user
    scope: per_user
    bands: [10/s, 100/m]
`;

/**
 * @param {Context} context @param {string} name of a stored set, or `ALL`, or `NEW`
 * @param {string[]} sets names of the active sets
 */
export async function workbench(context, name, sets) {
  const { session, notify, params, live, signal } = context;
  /** @type {Stored} */
  const active = name === NEW ? { text: "", etag: null }
    : name === ALL ? { ...(await get("/v1/rules_text")), etag: null }
    : await readText(name);
  const first = name === NEW ? TEMPLATE : active.text;
  const known = drafts.get(name);
  /** @type {Draft} */
  const draft = known ?? { text: first, base: active.text, etag: active.etag };

  const canApply = session.writable && session.role === "admin" && name !== ALL;
  const messages = h("div.stack-small");
  const changes = h("div");
  const summary = h("span.quiet");
  const setName = textInput({ maxlength: 200, value: draft.set, oninput: typed });
  const apply = button("Apply…", askToApply, { kind: "primary" });
  const discard = button("Discard changes", askToDiscard);
  const text = editor(name === ALL || name === NEW ? "Rules in YAML" : `Rules of ${name} in YAML`,
    "editor-hint editor-status", typed);
  const rules = () => (name === ALL ? text.text : wrap(set() || NO_NAME, text.text));
  const toText = name === ALL ? (/** @type {Fault} */ fault) => fault : unwrap;
  const checks = problems(rules, toText, (marks) => {
    text.mark(marks);
    updateActions();
  }, text.moveTo);
  const only = () => (name === ALL ? null : set() || NO_NAME);
  const attempt = trial(rules, toText, only, sets[0], session.records);

  const form = ruleForm({ read: () => text.text, write(next) {
    text.text = next;
    typed();
  } }, name === ALL, params.get("set"), params.get("rule"));

  let diffTimer = 0;
  let isWriting = false;
  /** The version of theirs in the conflict that is shown. @type {string | null | undefined} */
  let shownConflict;
  const set = () => name === NEW ? setName.value.trim() : name;

  function typed() {
    Object.assign(draft, { text: text.text, set: set() });
    keep();
    checks.check();
    attempt.textChanged();
    updateActions();
    clearTimeout(diffTimer);
    diffTimer = setTimeout(() => {
      updateDiff();
      form.draw();
    }, DIFF_PAUSE_MS);
  }

  /** Keeps a draft that differs from what the editor shows at first. */
  function keep() {
    if (draft.text === (name === NEW ? TEMPLATE : draft.base)) drafts.delete(name);
    else drafts.set(name, draft);
  }

  function updateDiff() {
    const diff = diffBlock(draft.base, draft.text, "Changed lines");
    replace(changes, diff.element);
    summary.textContent = diff.words;
    updateActions();
    return diff.words;
  }

  function updateActions() {
    const isChanged = draft.text !== draft.base;
    apply.disabled = !isChanged || checks.isFaulty() || set() === "";
    discard.disabled = !isChanged;
  }

  /** @param {string} next @param {Stored} stored */
  function load(next, stored) {
    Object.assign(draft, { base: stored.text, etag: stored.etag });
    text.text = next;
    typed();
  }

  async function askToDiscard() {
    const asked = "Your edits will be lost.";
    if (!(await reasonDialog("Discard your changes?", asked, "Discard", { asksWhy: false }))) return;
    replace(messages);
    load(name === NEW ? TEMPLATE : draft.base, { text: draft.base, etag: draft.etag });
  }

  async function askToApply() {
    const tried = attempt.words() ?? "You have not tried this text on requests.";
    const asked = `${updateDiff()} ${tried} Applying it changes all instances.`;
    const given = await reasonDialog(`Apply to ${set()}?`, asked, "Apply");
    if (given) await write(draft.etag, given.reason);
  }

  /** @param {string | null} etag @param {string} [reason] */
  async function write(etag, reason) {
    const sent = text.text;
    apply.disabled = true;
    isWriting = true;
    try {
      const answer = await writeText(set(), sent, etag, reason);
      drafts.delete(name);
      if (name === NEW) {
        notify(answer.delayed ?? `The rule set ${set()} is active.`, answer.delayed ? "bad" : "good");
        return void (location.hash = link("rules", { set: set() }));
      }
      replace(messages, writtenNotice(answer, set()));
      // The service may format the rules differently. Edits made in the meantime are kept.
      const stored = await readText(name);
      load(text.text === sent ? stored.text : text.text, stored);
    } catch (error) {
      const { status, faults } = error instanceof Problem ? error : { status: 0, faults: [] };
      if (status === 412) return showConflict(await readText(set()));
      if (faults.length > 0) checks.showFaults(faults, []);
      replace(messages, problemNotice(error));
    } finally {
      isWriting = false;
      updateActions();
    }
  }

  /** Takes over a change made elsewhere, unless there are edits that it would overwrite. */
  async function follow() {
    if (isWriting || name === NEW) return;
    const { base, etag } = draft;
    const theirs = name === ALL ? { ...(await get("/v1/rules_text", signal)), etag: null } : await readText(name);
    const isKnown = name === ALL ? theirs.text === draft.base : theirs.etag === draft.etag;
    if (isWriting || isKnown || signal.aborted) return;
    // What was loaded in the meantime may be newer.
    if (draft.base !== base || draft.etag !== etag) return follow();
    if (draft.text === draft.base && theirs.text !== "") {
      load(theirs.text, theirs);
      return notify("The rules were changed elsewhere. This is their new text.");
    }
    if (name !== ALL) {
      // The user may be reading it, or about to click.
      const isShown = messages.querySelector(".conflict") !== null && shownConflict === theirs.etag;
      return isShown ? undefined : showConflict(theirs, false);
    }
    draft.base = theirs.text;
    updateDiff();
    notify("The active rules have changed. Your text stays as it is.");
  }

  /** @param {Stored} theirs @param {boolean} [takesFocus] */
  function showConflict(theirs, takesFocus = true) {
    // Keeps the old version until the user chooses, so that Apply does not overwrite their change.
    draft.base = theirs.text;
    keep();
    updateDiff();
    shownConflict = theirs.etag;
    const difference = h("div");
    const panel = h("section.card.conflict.stack-small", { tabindex: -1, role: "alert" },
      h("h2", `This rule set was ${theirs.etag === null ? "deleted" : "changed"} elsewhere`),
      h("p", "Your text is based on an older version. It is not applied, and nothing is lost."),
      h("div.actions",
        disclosure("See the difference", difference, () =>
          diffBlock(theirs.text, text.text, "From their text to yours").element),
        canApply && button("Overwrite theirs with mine", () => write(theirs.etag), { kind: "danger" }),
        button("Discard mine", () => {
          replace(messages);
          drafts.delete(name);
          if (theirs.etag === null) location.hash = "#/rules";
          else if (name === NEW) location.hash = link("rules", { view: "edit", set: set() });
          else {
            load(theirs.text, theirs);
            text.input.focus();
          }
        })),
      difference);
    replace(messages, panel);
    if (takesFocus) panel.focus();
  }

  const copy = () => copyText(text.text, notify, "Text copied.");

  function download() {
    const url = URL.createObjectURL(new Blob([text.text], { type: "application/yaml" }));
    const file = name === ALL ? "rules" : set().replace(/[^\w.-]+/g, "_") || "rules";
    h("a", { href: url, download: `${file}.yaml` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  }

  // The rules of a file may have changed since the draft began.
  if (name === ALL) draft.base = active.text;
  text.text = draft.text;
  checks.check(0);
  updateDiff();
  form.draw();
  live.onRules(signal, () => follow().catch((error) => notify(String(error), "bad")));
  if (name !== ALL && name !== NEW && !known && active.etag === null) {
    replace(messages, notice("warn", `There is no rule set ${name}. Applying a text creates it.`));
  }
  if (name !== ALL && known && (known.etag !== active.etag || known.base !== active.text)) {
    showConflict(active);
  }
  return h("div.stack",
    messages,
    h("div.edit-grid", form.element, h("div.stack", h("section.card.stack-small", { "aria-label": "Text" },
      name === NEW && field("Name of the rule set", setName,
        "Clients and filters refer to it by this name."),
      text.element,
      h("p.hint", { id: "editor-hint" },
        "Tab indents by two spaces. To leave the text with the keyboard, press Escape, then Tab."),
      checks.element,
      h("div.actions", canApply && apply, discard, button("Copy", copy), button("Download", download),
        summary)),
    h("div.grid.bench", card("Changes to the active rules", changes), attempt.element))));
}

/** @param {Written} answer @param {string} set */
function writtenNotice({ changes, warnings, delayed }, set) {
  const head = delayed
    ?? `Applied. ${changes.length === 0 ? "No effective change." : "The new rules are active."}`;
  return notice(delayed ? "warn" : "good",
    h("p", h("strong", head)),
    h("ul", changes.map((change) => h("li", changeWords(/** @type {any} */ (change))))),
    warnings.length > 0 && h("p", "Warnings:"),
    h("ul", warnings.map(({ message }) => h("li", message))),
    h("a", { href: link("rules", { view: "history", set }) }, "See what it does"));
}
