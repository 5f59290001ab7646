// The text of rules: one stored set as a rule file, and a single rule out of a text. Pure.

import { indentOf } from "./yaml.js";

/** @typedef {{line: number, column: number, message: string}} Position a fault or a warning */

const INDENT = 4;
const HEAD_LINES = 2;

/**
 * Returns the text of one set as a rule file.
 * @param {string} set
 * @param {string} text `rules: …`
 */
export function wrap(set, text) {
  const lines = text.split("\n").map((line) => (line === "" ? line : " ".repeat(INDENT) + line));
  // A set may begin a YAML document, but a document cannot begin inside another.
  if (/^\s+---\s*$/.test(lines[0])) lines[0] = "";
  // JSON text is YAML text, so the name needs no other quoting.
  return `rule_sets:\n  ${JSON.stringify(set)}:\n${lines.join("\n")}\n`;
}

/**
 * Returns where a position in a wrapped text is in the set.
 * @param {Position} position
 * @returns {Position}
 */
export function unwrap({ line, column, message }) {
  if (line <= HEAD_LINES) return { line: 1, column: 1, message };
  return { line: line - HEAD_LINES, column: Math.max(1, column - INDENT), message };
}

/**
 * Returns the text of one rule, as written, or null if it is not found.
 * @param {string} text of one set, or of a rule file
 * @param {string | null} set the set in a rule file; null if the text is that of one set
 * @param {string} id
 */
export function ruleText(text, set, id) {
  let lines = text.split("\n");
  if (set !== null) lines = under(under(lines, "rule_sets"), set);
  const rules = under(lines, "rules");
  const first = rules.find((line) => line.trimStart().startsWith("- "));
  if (first === undefined) return null;
  const indent = indentOf(first);
  for (let start = 0; start < rules.length; start++) {
    if (indentOf(rules[start]) !== indent || !rules[start].trimStart().startsWith("- ")) continue;
    let end = start + 1;
    while (end < rules.length && (rules[end].trim() === "" || indentOf(rules[end]) > indent)) end++;
    const item = rules.slice(start, end).map((line) => line.slice(indent));
    if (idOf(item) === id) return item.join("\n").trimEnd();
  }
  return null;
}

/**
 * Returns the lines below a key that are deeper than it, or a list at its depth.
 * @param {string[]} lines
 * @param {string} key
 */
function under(lines, key) {
  const depth = Math.min(...lines.filter(isContent).map(indentOf));
  const start = lines.findIndex((line) => indentOf(line) === depth && keyOf(line) === key);
  if (start < 0) return [];
  let end = start + 1;
  while (end < lines.length) {
    const line = lines[end];
    const inside = indentOf(line) > depth || (indentOf(line) === depth && /^\s*- /.test(line));
    if (isContent(line) && !inside) break;
    end++;
  }
  return lines.slice(start + 1, end);
}

/** @param {string} line */
function isContent(line) {
  return line.trim() !== "" && !line.trimStart().startsWith("#");
}

/**
 * Returns the key that a line begins with, or null.
 * @param {string} line
 */
function keyOf(line) {
  const [, double, single, plain] =
    /^\s*(?:("(?:[^"\\]|\\.)*")|'((?:[^']|'')*)'|([^\s"'#][^#]*?))\s*:(?:\s|$)/.exec(line) ?? [];
  try {
    if (double !== undefined) return /** @type {string} */ (JSON.parse(double));
  } catch {
    return null;
  }
  return single?.replaceAll("''", "'") ?? plain ?? null;
}

/**
 * Returns the id of an item of a list of rules.
 * @param {string[]} item without the indentation of the list
 */
function idOf(item) {
  for (const [index, line] of item.entries()) {
    // Deeper ones are ids of bands.
    const found = index === 0
      ? /^-\s+(?:\{\s*)?(?:.*,\s*)?["']?id["']?:\s*["']?([a-z0-9_-]+)/.exec(line)
      : /^ {2}["']?id["']?:\s*["']?([a-z0-9_-]+)/.exec(line);
    if (found) return found[1];
  }
  return null;
}
