// An editor for YAML: a textarea exactly over coloured lines, and its problems.

import { post } from "../api.js";
import { h, replace, set, setText } from "../dom.js";
import { count } from "../format.js";
import { colours } from "./code.js";
import { indentOf } from "./document.js";

/** @import { Fault } from "../api.js" */
/** @typedef {Fault & {kind: "fault" | "warning"}} Mark */

const PAUSE_MS = 300;
const MOST_SHOWN = 100;

/** @param {string} label @param {string} describedBy ids @param {() => void} onInput */
export function editor(label, describedBy, onInput) {
  const gutter = h("div.editor-gutter", { "aria-hidden": "true" });
  const pre = h("pre.editor-colours", { "aria-hidden": "true" });
  const input = h("textarea.editor-input", {
    "aria-label": label, "aria-describedby": describedBy, spellcheck: "false", wrap: "off",
    autocapitalize: "off", autocomplete: "off", autocorrect: "off",
    oninput: changed, onkeydown: press, onkeyup: reveal, onblur: () => (leaves = false),
  });
  const element = h("div.editor", h("div.editor-inner", gutter, h("div.editor-code", pre, input)));
  /** @type {{node: HTMLElement, text: string}[]} */
  const lines = [];
  let leaves = false;

  function changed() {
    draw();
    reveal();
    onInput();
  }

  /** Draws the lines that differ from those drawn last, so that long texts stay fluid. */
  function draw() {
    const texts = input.value.split("\n");
    const most = Math.min(lines.length, texts.length);
    let start = 0;
    while (start < most && lines[start].text === texts[start]) start++;
    let end = 0;
    while (end < most - start && lines.at(-1 - end)?.text === texts.at(-1 - end)) end++;
    const added = texts.slice(start, texts.length - end).map((text) =>
      ({ text, node: h("div.editor-line", colours(text)) }));
    const removed = lines.splice(start, lines.length - end - start, ...added);
    for (const { node } of removed) node.remove();
    const after = lines[start + added.length]?.node ?? null;
    for (const { node } of added) pre.insertBefore(node, after);
    while (gutter.childElementCount > lines.length) gutter.lastElementChild?.remove();
    for (let row = gutter.childElementCount; row < lines.length; row++) gutter.append(h("div", row + 1));
  }

  /** @param {KeyboardEvent} event */
  function press(event) {
    if (event.isComposing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Tab" && !leaves) {
      event.preventDefault();
      indent(event.shiftKey);
    } else if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      const line = input.value.slice(lineStart(), input.selectionStart);
      insert(`\n${" ".repeat(indentOf(`${line}x`))}`);
    }
    if (event.key !== "Shift") leaves = event.key === "Escape";
  }

  const lineStart = () => input.value.lastIndexOf("\n", input.selectionStart - 1) + 1;

  /** Indents the selected lines, or inserts two spaces if nothing is selected. @param {boolean} back */
  function indent(back) {
    const { value, selectionStart, selectionEnd } = input;
    if (!back && selectionStart === selectionEnd) return insert("  ");
    const start = lineStart();
    const end = `${value}\n`.indexOf("\n", Math.max(selectionStart, selectionEnd - 1));
    const moved = value.slice(start, end).replace(back ? /^ {1,2}/gm : /^(?=.)/gm, back ? "" : "  ");
    input.setSelectionRange(start, end);
    insert(moved);
    const caret = Math.max(start, selectionStart + moved.length - (end - start));
    if (selectionStart === selectionEnd) input.setSelectionRange(caret, caret);
    else input.setSelectionRange(start, start + moved.length);
  }

  /** @param {string} text */
  function insert(text) {
    // Deprecated, but the only way that keeps what the browser can undo.
    document.execCommand(text === "" ? "delete" : "insertText", false, text);
  }

  /** Scrolls to the caret: the textarea itself never scrolls, the element around it does. */
  function reveal() {
    const before = input.value.slice(0, input.selectionEnd).split("\n");
    const { offsetTop: top, offsetHeight: height } = lines[before.length - 1].node;
    const lowest = top + 2 * height - element.clientHeight;
    element.scrollTop = Math.min(top - height, Math.max(lowest, element.scrollTop));
    if (before.at(-1) === "") element.scrollLeft = 0;
  }

  return {
    element,
    input,
    get text() {
      return input.value;
    },
    /** Sets the text as if it had been loaded: `onInput` is not called. */
    set text(text) {
      input.value = text;
      draw();
    },
    /** @param {Mark[]} marks */
    mark(marks) {
      for (const { node } of lines) delete node.dataset.mark;
      // Faults are listed first, and a line shows the first.
      for (const { line, kind, message } of marks.toReversed()) {
        const { node } = lines[Math.min(line, lines.length) - 1];
        set(node, { "data-mark": kind, "data-message": message });
      }
      set(input, { "aria-invalid": String(marks.some(({ kind }) => kind === "fault")) });
    },
    /** @param {number} line @param {number} column */
    moveTo(line, column) {
      const texts = input.value.split("\n");
      const before = texts.slice(0, line - 1).reduce((sum, text) => sum + text.length + 1, 0);
      const offset = before + offsetOf(texts[line - 1] ?? "", column);
      input.focus({ preventScroll: true });
      input.setSelectionRange(offset, offset);
      element.scrollIntoView({ block: "nearest" });
      reveal();
    },
  };
}

/** A column counts characters, not units of UTF-16. @param {string} text @param {number} column from 1 */
const offsetOf = (text, column) => [...text].slice(0, column - 1).join("").length;

/**
 * @param {() => string} rules @param {(fault: Fault) => Fault} unwrap
 * @param {(marks: Mark[]) => void} onMarks @param {(line: number, column: number) => void} moveTo
 */
export function problems(rules, unwrap, onMarks, moveTo) {
  const status = h("p.editor-status", { id: "editor-status", role: "status" });
  const list = h("ul.problems");
  let timer = 0;

  /** @param {string} text @param {string} state @param {Mark[]} marks */
  function show(text, state, marks) {
    status.dataset.state = state;
    setText(status, text);
    replace(list, marks.slice(0, MOST_SHOWN).map(({ kind, line, column, message }) =>
      h("li.row", { "data-mark": kind },
        h("span.problem-kind", kind === "fault" ? "Fault" : "Warning"),
        h("button.link", { type: "button", onclick: () => moveTo(line, column) }, `Line ${line}:${column}`),
        h("span", message))));
    onMarks(marks);
  }

  /** @param {Fault[]} faults @param {Fault[]} warnings */
  function showFaults(faults, warnings) {
    const marks = Object.entries({ fault: faults, warning: warnings }).flatMap(([kind, all]) =>
      all.map((fault) => ({ ...unwrap(fault), kind: /** @type {Mark["kind"]} */ (kind) })));
    const words = [faults.length > 0 && count(faults.length, "fault"),
      warnings.length > 0 && count(warnings.length, "warning")].filter(Boolean).join(", ");
    show(words || "No faults", marks[0]?.kind ?? "good", marks);
  }

  async function ask() {
    const asked = rules();
    try {
      const { faults, warnings } = await post("/v1/validate", { rules: asked });
      if (rules() === asked) showFaults(faults, warnings);
    } catch (error) {
      show(`Not checked. ${/** @type {Error} */ (error).message}`, "warning", []);
    }
  }

  return {
    element: h("div.stack-small", status, list),
    showFaults,
    isFaulty: () => status.dataset.state === "fault",
    check(pause = PAUSE_MS) {
      clearTimeout(timer);
      timer = setTimeout(ask, pause);
    },
  };
}
