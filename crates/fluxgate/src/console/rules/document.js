// The text of rules: one stored set as a rule file, and a single rule out of a text. Pure.

/** @import { Fault } from "../api.js" */

const INDENT = 4;
const HEAD_LINES = 2;

/** @param {string} set @param {string} text */
export function wrap(set, text) {
  const lines = text.split("\n").map((line) => (line === "" ? line : " ".repeat(INDENT) + line));
  // JSON text is YAML text, so the name needs no other quoting.
  return `rule_sets:\n  ${JSON.stringify(set)}:\n${lines.join("\n")}\n`;
}

/** @param {Fault} fault @returns {Fault} */
export function unwrap({ line, column, message }) {
  if (line <= HEAD_LINES) return { line: 1, column: 1, message };
  return { line: line - HEAD_LINES, column: Math.max(1, column - INDENT), message };
}

/**
 * Returns the text of one rule, if it is found. The service writes the id first.
 * @param {string} text @param {string | null} set null if the text is that of one set
 * @param {string} id
 */
export function ruleText(text, set, id) {
  const lines = text.split("\n");
  const head = set === null ? 0 : lines.findIndex((line) =>
    [`  ${set}:`, `  ${JSON.stringify(set)}:`].includes(line));
  const start = lines.findIndex((line, index) =>
    index > head && [`- id: ${id}`, `- id: ${JSON.stringify(id)}`].includes(line.trimStart()));
  if (head < 0 || start < 0) return null;
  const indent = indentOf(lines[start]);
  const length = lines.slice(start + 1).findIndex((line) => indentOf(line) <= indent);
  const rule = lines.slice(start, length < 0 ? undefined : start + 1 + length);
  return rule.map((line) => line.slice(indent)).join("\n").trimEnd();
}

/** @param {string} line */
export const indentOf = (line) => line.length - line.trimStart().length;
