// An editor for YAML: a textarea exactly over coloured lines. Only lines that change are drawn
// again, so that long texts stay fluid.

import { h, replace } from "../dom.js";
import { spans } from "./code.js";
import { highlight, indentOf } from "./yaml.js";

/** @typedef {import("./yaml.js").Token} Token */
/** @typedef {{kind: "fault" | "warning", line: number, column: number, message: string}} Mark */

/**
 * @typedef {{node: HTMLElement, text: string, before: string, after: string}} Line with the
 *   state of the highlighter before and after it
 */

export class Editor {
  #lines = /** @type {Line[]} */ ([]);
  #marked = /** @type {Set<HTMLElement>} */ (new Set());
  #gutter = h("div", { class: "editor-gutter", "aria-hidden": "true" });
  #colours = h("pre", { class: "editor-colours", "aria-hidden": "true" });
  #onInput;
  #leaves = false;

  /**
   * @param {string} label
   * @param {string} describedBy ids of elements
   * @param {(text: string) => void} onInput
   */
  constructor(label, describedBy, onInput) {
    this.#onInput = onInput;
    this.input = h("textarea", {
      class: "editor-input",
      "aria-label": label,
      "aria-describedby": describedBy,
      spellcheck: "false",
      autocapitalize: "off",
      autocomplete: "off",
      autocorrect: "off",
      wrap: "off",
      oninput: () => this.#changed(),
      onkeydown: (/** @type {KeyboardEvent} */ event) => this.#key(event),
      onkeyup: () => this.#reveal(),
      onblur: () => (this.#leaves = false),
    });
    const code = h("div", { class: "editor-code" }, this.#colours, this.input);
    this.element = h("div", { class: "editor" },
      h("div", { class: "editor-inner" }, this.#gutter, code));
  }

  get text() {
    return this.input.value;
  }

  /** Sets the text as if it had been loaded: `onInput` is not called. */
  set text(text) {
    this.input.value = text;
    this.#draw();
  }

  /**
   * Shows faults and warnings at their places, instead of those before.
   * @param {Mark[]} marks
   */
  mark(marks) {
    const old = this.#marked;
    this.#marked = new Set();
    for (const line of this.#lines) if (old.has(line.node)) this.#paint(line, []);
    /** @type {Map<number, Mark[]>} */
    const byLine = new Map();
    for (const mark of marks) {
      const index = Math.min(mark.line, this.#lines.length) - 1;
      byLine.set(index, [...(byLine.get(index) ?? []), mark]);
    }
    for (const [index, here] of byLine) {
      this.#paint(this.#lines[index], here);
      this.#marked.add(this.#lines[index].node);
    }
    this.#markGutter();
    this.input.setAttribute("aria-invalid", String(marks.some(({ kind }) => kind === "fault")));
  }

  /**
   * Moves the caret, and the view with it.
   * @param {number} line
   * @param {number} column in characters, from 1
   */
  moveTo(line, column) {
    const before = this.#lines.slice(0, line - 1).reduce((sum, { text }) => sum + text.length + 1, 0);
    const offset = before + offsetOf(this.#lines[line - 1]?.text ?? "", column);
    this.input.focus({ preventScroll: true });
    this.input.setSelectionRange(offset, offset);
    this.element.scrollIntoView({ block: "nearest" });
    this.#reveal();
  }

  #changed() {
    this.#draw();
    this.#reveal();
    this.#onInput(this.input.value);
  }

  /** Draws the lines that differ from those drawn last. */
  #draw() {
    const texts = this.input.value.split("\n");
    const old = this.#lines;
    const most = Math.min(old.length, texts.length);
    let start = 0;
    while (start < most && old[start].text === texts[start]) start++;
    let end = 0;
    while (end < most - start && old[old.length - 1 - end].text === texts[texts.length - 1 - end]) end++;
    const removed = old.slice(start, old.length - end);
    // A line that is typed in keeps its element, which is the least work for the browser.
    const added = texts.slice(start, texts.length - end).map((text, index) =>
      ({ node: removed[index]?.node ?? h("div", { class: "editor-line" }), text, before: "", after: "" }));
    for (const { node } of removed) this.#marked.delete(node);
    for (const { node } of removed.slice(added.length)) node.remove();
    const fresh = document.createDocumentFragment();
    fresh.append(...added.slice(removed.length).map(({ node }) => node));
    this.#colours.insertBefore(fresh, old[old.length - end]?.node ?? null);
    this.#lines = [...old.slice(0, start), ...added, ...old.slice(old.length - end)];
    // What a line means can change with the lines before it, as after an opened quote.
    for (let index = start; index < this.#lines.length; index++) {
      const before = this.#lines[index - 1]?.after ?? "";
      if (index >= start + added.length && this.#lines[index].before === before) break;
      this.#lines[index].before = before;
      this.#paint(this.#lines[index], []);
    }
    if (texts.length !== old.length) this.#countGutter(texts.length);
    this.#markGutter();
  }

  /**
   * @param {Line} line
   * @param {Mark[]} marks
   */
  #paint(line, marks) {
    const { tokens, state } = highlight(line.text, line.before);
    line.after = state;
    replace(line.node, marks.length > 0 ? squiggled(line.text, tokens, marks[0]) : spans(tokens));
    const [first] = marks;
    if (first) {
      const more = marks.length > 1 ? ` (and ${marks.length - 1} more)` : "";
      line.node.dataset.message = first.message + more;
      line.node.dataset.mark = worst(marks);
    } else {
      delete line.node.dataset.message;
      delete line.node.dataset.mark;
    }
  }

  /** @param {number} count */
  #countGutter(count) {
    const rows = [...this.#gutter.children];
    for (const row of rows.slice(count)) row.remove();
    for (let row = rows.length; row < count; row++) this.#gutter.append(h("div", {}, row + 1));
  }

  #markGutter() {
    for (const row of this.#gutter.querySelectorAll("[data-mark]")) row.removeAttribute("data-mark");
    if (this.#marked.size === 0) return;
    this.#lines.forEach(({ node }, index) => {
      if (!this.#marked.has(node) || !node.dataset.mark) return;
      this.#gutter.children[index].setAttribute("data-mark", node.dataset.mark);
    });
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (event.isComposing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") {
      this.#leaves = true;
      return;
    }
    if (event.key === "Tab" && !this.#leaves) {
      event.preventDefault();
      this.#indent(event.shiftKey);
    } else if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      const { value, selectionStart } = this.input;
      const start = value.lastIndexOf("\n", selectionStart - 1) + 1;
      const line = value.slice(start, selectionStart);
      this.#insert(`\n${" ".repeat(indentOf(line.replace(/\S.*/, "x")))}`);
    }
    if (event.key !== "Shift") this.#leaves = false;
  }

  /**
   * Indents the selected lines, or inserts two spaces if nothing is selected.
   * @param {boolean} back
   */
  #indent(back) {
    const { value, selectionStart, selectionEnd } = this.input;
    if (!back && selectionStart === selectionEnd) return this.#insert("  ");
    const start = value.lastIndexOf("\n", selectionStart - 1) + 1;
    const last = selectionEnd > selectionStart && value[selectionEnd - 1] === "\n" ? selectionEnd - 1 : selectionEnd;
    const found = value.indexOf("\n", last);
    const end = found < 0 ? value.length : found;
    const lines = value.slice(start, end).split("\n");
    const moved = lines.map((line) => (back ? line.replace(/^ {1,2}/, "") : line && `  ${line}`)).join("\n");
    if (moved === value.slice(start, end)) return;
    const caret = selectionStart === selectionEnd;
    this.input.setSelectionRange(start, end);
    this.#insert(moved);
    if (caret) {
      const offset = Math.max(start, selectionStart + moved.length - (end - start));
      this.input.setSelectionRange(offset, offset);
    } else this.input.setSelectionRange(start, start + moved.length);
  }

  /** @param {string} text */
  #insert(text) {
    // Deprecated, but the only way that keeps what the browser can undo.
    if (document.execCommand(text === "" ? "delete" : "insertText", false, text)) return;
    this.input.setRangeText(text, this.input.selectionStart, this.input.selectionEnd, "end");
    this.#changed();
  }

  /** Scrolls to the caret: the textarea itself never scrolls, the element around it does. */
  #reveal() {
    const { value, selectionEnd } = this.input;
    const before = value.slice(0, selectionEnd);
    const line = before.split("\n").length - 1;
    const node = this.#lines[line]?.node;
    if (!node) return;
    const box = this.element;
    const height = node.offsetHeight;
    const top = node.offsetTop;
    if (top < box.scrollTop + height) box.scrollTop = top - height;
    else if (top + 2 * height > box.scrollTop + box.clientHeight) {
      box.scrollTop = top + 2 * height - box.clientHeight;
    }
    const column = selectionEnd - before.lastIndexOf("\n") - 1;
    if (column === 0) box.scrollLeft = 0;
  }
}

/**
 * Returns the offset of a column, which counts characters and not units of UTF-16.
 * @param {string} text
 * @param {number} column
 */
function offsetOf(text, column) {
  return [...text].slice(0, column - 1).join("").length;
}

/** @param {Mark[]} marks */
function worst(marks) {
  return marks.some(({ kind }) => kind === "fault") ? "fault" : "warning";
}

/**
 * Returns the elements of a line, underlined from a mark to the end of its token.
 * @param {string} text
 * @param {Token[]} tokens
 * @param {Mark} mark
 * @returns {Node[]}
 */
function squiggled(text, tokens, mark) {
  const at = Math.min(offsetOf(text, mark.column), Math.max(0, text.trimEnd().length - 1));
  /** @type {Node[]} */
  const nodes = [];
  let start = 0;
  for (const token of tokens) {
    const end = start + token.text.length;
    if (at < start || at >= end) nodes.push(...spans([token]));
    else {
      const cut = at - start;
      nodes.push(...spans([{ ...token, text: token.text.slice(0, cut) }]));
      nodes.push(h("span", { class: `squiggle ${mark.kind}` }, spans([{ ...token, text: token.text.slice(cut) }])));
    }
    start = end;
  }
  return nodes;
}
