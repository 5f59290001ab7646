// YAML as elements: coloured lines, and differences.

import { h } from "../dom.js";
import { count } from "../format.js";
import { countChanges, diffLines, hunksOf } from "./diff.js";

/** A difference is drawn as one types, so a long one is cut. */
const MOST_SHOWN = 500;
const SIGNS = { same: " ", added: "+", removed: "-" };
const TAGS = /** @type {const} */ ({ same: "div", added: "ins", removed: "del" });

// What it does not know is plain text. The bound keeps the search for a key short.
const TOKENS = new RegExp([
  /(?<comment>(?<=^|\s)#.*)/,
  /(?<key>(?:"[^"]{0,80}"|'[^']{0,80}'|[\w.-][^\s:#,[\]{}]{0,80})(?=\s*:(?:\s|$)))/,
  /(?<string>"(?:[^"\\]|\\.)*"|'(?:[^']|'')*')/,
  /(?<number>(?<![\w./-])[-+]?\d[\d_.]*(?:%|(?:\/\d*)?(?:ms|s|m|h|d))?(?![\w./-]))/,
  /(?<word>(?<![\w./-])(?:true|false|null)(?![\w./-]))/,
].map(({ source }) => source).join("|"), "g");

/** @param {string} line */
export function colours(line) {
  /** @type {(string | Node)[]} */
  const nodes = [];
  let end = 0;
  for (const match of line.matchAll(TOKENS)) {
    const [kind] = Object.entries(match.groups ?? {}).find(([, text]) => text !== undefined) ?? [];
    nodes.push(line.slice(end, match.index), h(`span.y-${kind}`, match[0]));
    end = match.index + match[0].length;
  }
  return [...nodes, line.slice(end)];
}

/** @param {string} text @param {string} label */
export function codeBlock(text, label) {
  return h("pre.code", { tabindex: 0, role: "region", "aria-label": label },
    text.split("\n").flatMap((line) => [...colours(line), "\n"]));
}

/** @param {string} before @param {string} after @param {string} label */
export function diffBlock(before, after, label) {
  const lines = diffLines(before, after);
  const words = Object.entries(countChanges(lines)).filter(([, size]) => size > 0)
    .map(([kind, size]) => `${count(size, "line")} ${kind}`).join(", ");
  if (!words) return { element: h("p.quiet", "No changes."), words: "No changes." };
  const rows = hunksOf(lines).flatMap((hunk) => {
    let { before: old, after: now } = hunk;
    return [h("div.diff-at", `Line ${now}`), ...hunk.lines.map(({ kind, text }) => {
      const number = kind === "removed" ? old : now;
      if (kind !== "added") old++;
      if (kind !== "removed") now++;
      return h(`${TAGS[kind]}.diff-line`, h("span.diff-number", { "aria-hidden": "true" }, number),
        h("span.diff-sign", SIGNS[kind]), h("span", text));
    })];
  });
  const rest = rows.length > MOST_SHOWN && h("div.diff-at", "The rest is not shown.");
  return { words: `${words}.`, element: h("div.diff", { tabindex: 0, role: "region", "aria-label": label },
    rows.slice(0, MOST_SHOWN), rest) };
}
