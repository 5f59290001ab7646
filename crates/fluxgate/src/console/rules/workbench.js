// The editor page: text, faults, difference, trial and, where rules can be written, applying.

import { get, Problem } from "../api.js";
import { button, confirmDialog, field, notice, problemNotice } from "../components.js";
import { h, replace } from "../dom.js";
import { conflict, writtenNotice } from "./outcome.js";
import { diffBlock } from "./code.js";
import { unwrap, wrap } from "./document.js";
import { ALL, draftOf, drop, keep, NEW } from "./drafts.js";
import { Editor } from "./editor.js";
import { Problems } from "./problems.js";
import { readText, writeText } from "./store.js";
import { Trial } from "./trial.js";

/** @typedef {import("../main.js").Context} Context */
/** @typedef {import("./drafts.js").Draft} Draft */

const DIFF_PAUSE_MS = 120;
/** Stands for the name of a new set until there is one. */
const NO_NAME = "new";
const TEMPLATE = `# What a rule can say: docs/rules.md
rules:
  - id: per-user
    scope: per_user
    bands: [10/s, 100/m]
`;

/**
 * Returns the title of the page for a draft.
 * @param {string} name
 */
export function titleOf(name) {
  if (name === NEW) return "New rule set";
  return name === ALL ? "Rules as text" : `Rule set ${name}`;
}

/**
 * @param {Context} context
 * @param {string} name of a stored set, or `ALL`, or `NEW`
 * @param {string[]} sets names of the active sets
 * @returns {Promise<HTMLElement>}
 */
export async function workbench(context, name, sets) {
  const active = await activeText(name, context.signal);
  const known = draftOf(name);
  /** @type {Draft} */
  const draft = known ?? { text: name === NEW ? TEMPLATE : active.text, base: active.text, etag: active.etag };
  const bench = new Workbench(context, name, sets, draft);
  if (known && (known.etag !== active.etag || known.base !== active.text)) bench.movedOn(active);
  return bench.element;
}

/**
 * @param {string} name
 * @param {AbortSignal} signal
 */
async function activeText(name, signal) {
  if (name === NEW) return { text: "", etag: null };
  if (name !== ALL) return readText(name, signal);
  const { text } = await get("/v1/rules_text", signal);
  return { text: /** @type {string} */ (text), etag: null };
}

class Workbench {
  #context;
  #name;
  #draft;
  #editor;
  #problems;
  #trial;
  #canApply;
  #messages = h("div", { class: "stack-small" });
  #changes = h("div", {});
  #summary = h("span", { class: "quiet" });
  #setName = h("input", { type: "text", maxlength: 200, autocomplete: "off", spellcheck: "false" });
  #apply = button("Apply …", () => this.#askToApply(), { kind: "primary" });
  #discard = button("Discard changes", () => this.#askToDiscard());
  #diffTimer = 0;

  /**
   * @param {Context} context
   * @param {string} name
   * @param {string[]} sets
   * @param {Draft} draft
   */
  constructor(context, name, sets, draft) {
    const { session, signal } = context;
    this.#context = context;
    this.#name = name;
    this.#draft = draft;
    const label = name === ALL || name === NEW ? "Rules in YAML" : `Rules of ${name} in YAML`;
    this.#editor = new Editor(label, "editor-hint editor-status", (text) => this.#typed(text));
    this.#problems = new Problems({
      rules: () => this.#document(),
      unwrap: name === ALL ? (position) => position : unwrap,
      signal,
      onMarks: (marks) => {
        this.#editor.mark(marks);
        this.#updateActions();
      },
      moveTo: (line, column) => this.#editor.moveTo(line, column),
    });
    this.#trial = new Trial({
      rules: () => this.#document(),
      unwrap: name === ALL ? (position) => position : unwrap,
      set: () => (name === ALL ? null : this.#set || NO_NAME),
      sets,
      records: session.records,
      signal,
    });
    this.#setName.addEventListener("input", () => this.#typed(this.#editor.text));
    this.#canApply = session.writable && session.role === "admin" && name !== ALL;
    this.element = h("div", { class: "stack" },
      this.#messages,
      h("section", { class: "card stack-small", "aria-label": "Text" },
        name === NEW && field("Name of the rule set", this.#setName, "Clients and filters name it in their requests."),
        this.#editor.element,
        h("p", { id: "editor-hint", class: "hint" },
          "Tab indents by two spaces. To leave the text with the keyboard, press Escape, then Tab."),
        this.#problems.element,
        h("div", { class: "actions" }, this.#canApply && this.#apply, this.#discard,
          button("Copy", () => this.#copy()), button("Download", () => this.#download()), this.#summary)),
      h("div", { class: "bench" },
        h("section", { class: "card" }, h("h2", {}, "Changes against the active rules"), this.#changes),
        this.#trial.element));
    this.#editor.text = draft.text;
    this.#setName.value = draft.set ?? "";
    this.#problems.check(0);
    this.#updateDiff();
    signal.addEventListener("abort", () => clearTimeout(this.#diffTimer));
  }

  /**
   * Says that the active text is no longer the one that the draft began with.
   * @param {import("./store.js").Stored} active
   */
  movedOn(active) {
    if (this.#name !== ALL) return this.#showConflict(active);
    this.#draft.base = active.text;
    this.#draft.etag = active.etag;
    this.#keep();
    this.#updateDiff();
    this.#say(notice("info", "The active rules have changed since you began. The difference below is to the new ones; your text is as you left it."));
  }

  get #set() {
    return this.#name === NEW ? this.#setName.value.trim() : this.#name;
  }

  #document() {
    const { text } = this.#editor;
    return this.#name === ALL ? text : wrap(this.#set || NO_NAME, text);
  }

  get #isChanged() {
    return this.#draft.text !== this.#draft.base;
  }

  /** @param {string} text */
  #typed(text) {
    this.#draft.text = text;
    this.#draft.set = this.#set;
    this.#keep();
    this.#problems.check();
    this.#trial.textChanged();
    this.#updateActions();
    clearTimeout(this.#diffTimer);
    this.#diffTimer = setTimeout(() => this.#updateDiff(), DIFF_PAUSE_MS);
  }

  #keep() {
    keep(this.#name, this.#draft, this.#name === NEW ? TEMPLATE : undefined);
  }

  #updateDiff() {
    const diff = diffBlock(this.#draft.base, this.#draft.text, "Changed lines");
    replace(this.#changes, diff.element);
    this.#summary.textContent = diff.words;
    this.#updateActions();
    return diff;
  }

  #updateActions() {
    this.#apply.disabled = !this.#isChanged || this.#problems.state === "faulty" || this.#set === "";
    this.#apply.title = this.#problems.state === "faulty" ? "The text has faults." : "";
    this.#discard.disabled = !this.#isChanged;
  }

  /** @param {string} text */
  #load(text) {
    this.#editor.text = text;
    this.#typed(text);
    this.#updateDiff();
  }

  /** @param {...Node} nodes */
  #say(...nodes) {
    replace(this.#messages, nodes);
  }

  async #askToDiscard() {
    const text = "Your text is replaced by the active rules.";
    if (!(await confirmDialog("Discard your changes?", text, "Discard"))) return;
    this.#say();
    this.#load(this.#name === NEW ? TEMPLATE : this.#draft.base);
    drop(this.#name);
  }

  async #askToApply() {
    const tried = this.#trial.words ?? "You have not tried this text on requests.";
    const text = h("span", {}, `${this.#updateDiff().words} ${tried} `,
      "When you apply it, it is active in all instances.");
    if (await confirmDialog(`Apply to ${this.#set}?`, text, "Apply")) await this.#write(this.#draft.etag);
  }

  /** @param {string | null} etag */
  async #write(etag) {
    const set = this.#set;
    const { text } = this.#editor;
    this.#apply.disabled = true;
    try {
      const answer = await writeText(set, text, etag);
      drop(this.#name);
      if (this.#name === NEW) {
        this.#context.notify(answer.delayed ?? `The rule set ${set} is active.`, answer.delayed ? "bad" : "good");
        return this.#context.navigate(`#/rules?${new URLSearchParams({ set })}`);
      }
      await this.#written(set, text, answer);
    } catch (error) {
      if (error instanceof Problem && error.status === 412) return this.#lost(set);
      if (error instanceof Problem && error.faults?.length > 0) this.#problems.show(error.faults, []);
      this.#say(problemNotice(error));
    } finally {
      this.#updateActions();
    }
  }

  /**
   * @param {string} set
   * @param {string} text that was written
   * @param {import("./store.js").Written} answer
   */
  async #written(set, text, answer) {
    this.#say(writtenNotice(answer));
    Object.assign(this.#draft, { base: text, etag: answer.etag });
    this.#load(this.#editor.text);
    // The service may write the same rules in another way.
    const stored = await readText(set, this.#context.signal);
    Object.assign(this.#draft, { base: stored.text, etag: stored.etag });
    // What has been typed meanwhile stays.
    this.#load(this.#editor.text === text ? stored.text : this.#editor.text);
  }

  /** Somebody else was faster. @param {string} set */
  async #lost(set) {
    try {
      this.#showConflict(await readText(set, this.#context.signal));
    } catch (error) {
      this.#say(problemNotice(error));
    }
  }

  /** @param {import("./store.js").Stored} theirs */
  #showConflict(theirs) {
    // The version stays the old one until somebody decides, so that Apply does not overwrite theirs.
    this.#draft.base = theirs.text;
    this.#keep();
    this.#updateDiff();
    const panel = conflict(theirs, () => this.#editor.text, {
      canWrite: this.#canApply,
      overwrite: () => this.#write(theirs.etag),
      discard: () => {
        this.#say();
        drop(this.#name);
        if (theirs.etag === null) return this.#context.navigate("#/rules");
        if (this.#name === NEW) return this.#context.navigate(`#/rules?${new URLSearchParams({ view: "edit", set: this.#set })}`);
        Object.assign(this.#draft, { base: theirs.text, etag: theirs.etag });
        this.#load(theirs.text);
        this.#editor.input.focus();
      },
    });
    this.#say(panel);
    panel.focus();
  }

  async #copy() {
    try {
      await navigator.clipboard.writeText(this.#editor.text);
    } catch {
      // There is no clipboard over plain HTTP from another host, or it is not permitted.
      this.#editor.input.focus();
      this.#editor.input.select();
      if (!document.execCommand("copy")) return this.#context.notify("The text is selected; copy it.");
    }
    this.#context.notify("The text is on the clipboard.");
  }

  #download() {
    const url = URL.createObjectURL(new Blob([this.#editor.text], { type: "application/yaml" }));
    const file = this.#name === ALL ? "rules" : this.#set.replace(/[^\w.-]+/g, "_") || "rules";
    h("a", { href: url, download: `${file}.yaml` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  }
}
