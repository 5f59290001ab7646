// YAML as elements: coloured lines, and differences.

import { h } from "../dom.js";
import { countChanges, diffLines, hunksOf } from "./diff.js";
import { highlight } from "./yaml.js";

/** @typedef {import("./yaml.js").Token} Token */

/** A difference is drawn as one types, so a long one is cut. */
const MOST_SHOWN = 500;
const SIGNS = { same: " ", added: "+", removed: "-" };

/**
 * Returns the elements of the tokens of one line.
 * @param {Token[]} tokens
 * @returns {Node[]}
 */
export function spans(tokens) {
  return tokens.map(({ kind, text }) =>
    kind === "" || kind === "mark" ? document.createTextNode(text) : h("span", { class: `y-${kind}` }, text));
}

/**
 * Returns coloured YAML to read.
 * @param {string} text
 * @param {string} label
 */
export function codeBlock(text, label) {
  let state = "";
  const lines = text.split("\n").flatMap((line) => {
    const coloured = highlight(line, state);
    state = coloured.state;
    return [...spans(coloured.tokens), "\n"];
  });
  return h("pre", { class: "code", tabindex: 0, role: "region", "aria-label": label }, lines);
}

/**
 * Returns the difference of two texts, with what it amounts to in words.
 * @param {string} before
 * @param {string} after
 * @param {string} label
 */
export function diffBlock(before, after, label) {
  const lines = diffLines(before, after);
  const { added, removed } = countChanges(lines);
  const words = changeWords(added, removed);
  if (added + removed === 0) return { element: h("p", { class: "quiet" }, words), words, changed: false };
  const element = h("div", { class: "diff", tabindex: 0, role: "region", "aria-label": label });
  for (const hunk of hunksOf(lines)) {
    if (element.childElementCount > MOST_SHOWN) {
      element.append(h("div", { class: "diff-at" }, "The rest is not shown."));
      break;
    }
    let { before: old, after: now } = hunk;
    element.append(h("div", { class: "diff-at" }, `Line ${now}`));
    for (const { kind, text } of hunk.lines) {
      const number = kind === "removed" ? old : now;
      if (kind !== "added") old++;
      if (kind !== "removed") now++;
      const tag = kind === "added" ? "ins" : kind === "removed" ? "del" : "div";
      element.append(h(tag, { class: "diff-line" },
        h("span", { class: "diff-number", "aria-hidden": "true" }, number),
        h("span", { class: "diff-sign" }, SIGNS[kind]),
        h("span", {}, text)));
    }
  }
  return { element, words, changed: true };
}

/**
 * @param {number} added
 * @param {number} removed
 */
function changeWords(added, removed) {
  if (added + removed === 0) return "No changes.";
  /** @param {number} count */
  const lines = (count) => `${count} ${count === 1 ? "line" : "lines"}`;
  if (removed === 0) return `${lines(added)} added.`;
  return added === 0 ? `${lines(removed)} removed.` : `${lines(added)} added, ${lines(removed)} removed.`;
}
