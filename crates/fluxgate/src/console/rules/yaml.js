// The YAML of rules with the place of every value, so that a form changes one value and leaves the rest
// of the text, comments included, as it is. What it does not know (anchors, tags, long texts) is an
// error: then only the text can be edited. Pure.

/**
 * `start` and `end` are offsets in the text. `at` is the column of a block, or -1 for `[…]` and `{…}`.
 * @typedef {{kind: "scalar", start: number, end: number, value: string | null}} Scalar
 * @typedef {{kind: "list", start: number, end: number, at: number, items: Node[]}} List
 * @typedef {{key: string, start: number, end: number, value: Node}} Entry
 * @typedef {{kind: "map", start: number, end: number, at: number, entries: Entry[]}} Map
 * @typedef {Scalar | List | Map} Node
 * @typedef {{start: number, end: number, text: string}} Splice
 */

const QUOTED = /"(?:[^"\\\n]|\\.)*"|'(?:[^'\n]|'')*'/y;
const KEY = /((?:"(?:[^"\\\n]|\\.)*"|'(?:[^'\n]|'')*'|[^\s#'"[\]{},&*!|>%@`-][^\n#]*?|-[^\s\n#][^\n#]*?))\s*:(?=\s|$)/my;
const UNKNOWN = /[&*!|>%@`]/;

/** @param {string} text @returns {Node} */
export function parse(text) {
  /** The first character of each line that is not blank or a comment. @type {{at: number, start: number}[]} */
  const lines = [];
  for (const match of text.matchAll(/^([ ]*)(?=[^\s#])/gm)) {
    if (!/^---\s*$/.test(lineOf(match.index))) lines.push({ at: match[1].length, start: match.index + match[1].length });
  }
  let next = 0;

  /** @param {number} offset */
  function lineOf(offset) {
    const end = text.indexOf("\n", offset);
    return text.slice(offset, end < 0 ? undefined : end);
  }

  /** @param {number} offset @returns {never} */
  function fail(offset) {
    throw new SyntaxError(`line ${text.slice(0, offset).split("\n").length}`);
  }

  /** @param {number} least the least column @param {number} from where an empty value would be @returns {Node} */
  function block(least, from) {
    const line = lines[next];
    if (!line || line.at < least) return { kind: "scalar", start: from, end: from, value: null };
    if (/^-(\s|$)/.test(text.slice(line.start, line.start + 2))) return blockList(line.at);
    KEY.lastIndex = line.start;
    if (KEY.test(text)) return blockMap(line.at);
    next++;
    return inline(line.start);
  }

  /** @param {number} at @returns {List} */
  function blockList(at) {
    /** @type {List} */
    const list = { kind: "list", at, start: lines[next].start, end: 0, items: [] };
    while (lines[next]?.at === at && /^-(\s|$)/.test(text.slice(lines[next].start, lines[next].start + 2))) {
      const { start } = lines[next];
      const inside = /^-[ ]*/.exec(lineOf(start))?.[0].length ?? 1;
      const rest = lineOf(start).slice(inside);
      if (rest === "" || rest.startsWith("#")) {
        next++;
        list.items.push(block(at + 1, start + 1));
      } else {
        lines[next] = { at: at + inside, start: start + inside };
        list.items.push(block(at + inside, start + inside));
      }
    }
    if (lines[next]?.at > at) fail(lines[next].start);
    list.end = list.items.at(-1)?.end ?? list.start;
    return list;
  }

  /** @param {number} at @returns {Map} */
  function blockMap(at) {
    /** @type {Map} */
    const map = { kind: "map", at, start: lines[next].start, end: 0, entries: [] };
    while (lines[next]?.at === at) {
      const { start } = lines[next];
      if (/^-(\s|$)/.test(text.slice(start, start + 2))) break;
      KEY.lastIndex = start;
      const found = KEY.exec(text) ?? fail(start);
      const colon = KEY.lastIndex;
      const space = /^[ \t]*/.exec(lineOf(colon))?.[0].length ?? 0;
      const rest = lineOf(colon).slice(space);
      next++;
      let value;
      if (rest === "" || rest.startsWith("#")) {
        // A list may stand in the column of its key.
        const isList = lines[next]?.at === at && /^-(\s|$)/.test(text.slice(lines[next].start, lines[next].start + 2));
        value = block(isList ? at : at + 1, colon);
      } else value = inline(colon + space);
      map.entries.push({ key: unquote(found[1]), start, end: value.end, value });
    }
    if (lines[next]?.at > at) fail(lines[next].start);
    map.end = map.entries.at(-1)?.end ?? map.start;
    return map;
  }

  /** Reads a value that begins in a line. @param {number} start @returns {Node} */
  function inline(start) {
    const node = "[{".includes(text[start]) ? flow(start) : scalar(start, /(?=[ \t]+#|[ \t]*$)/m);
    // What follows belongs to it in a way that is not known here.
    if (!/^[ \t]*(#|$)/.test(lineOf(node.end))) fail(node.end);
    // The lines that it covers have been read.
    while (lines[next]?.start < node.end) next++;
    return node;
  }

  /** @param {number} start @returns {Node} */
  function flow(start) {
    let offset = start;
    const skip = () => {
      const space = /(?:\s|(?<=\s)#[^\n]*)*/y;
      space.lastIndex = offset;
      offset += space.exec(text)?.[0].length ?? 0;
    };
    const open = text[start];
    if (open !== "[" && open !== "{") return scalar(start, /(?=\s*(?:[,[\]{}]|:[\s,[\]{}]|\n|\s#))/);
    const close = open === "[" ? "]" : "}";
    /** @type {Node[]} */
    const items = [];
    /** @type {Entry[]} */
    const entries = [];
    offset++;
    for (skip(); text[offset] !== close; skip()) {
      const item = flow(offset);
      offset = item.end;
      skip();
      if (open === "[") items.push(item);
      else {
        if (item.kind !== "scalar") fail(item.start);
        let value = /** @type {Node} */ ({ kind: "scalar", start: item.end, end: item.end, value: null });
        if (text[offset] === ":") {
          offset++;
          skip();
          if (text[offset] !== "," && text[offset] !== close) value = flow(offset);
          offset = value.end;
          skip();
        }
        entries.push({ key: item.value ?? "", start: item.start, end: value.end, value });
      }
      if (text[offset] === ",") offset++;
      else if (text[offset] !== close) fail(offset);
    }
    const place = { start, end: offset + 1, at: -1 };
    return open === "[" ? { kind: "list", ...place, items } : { kind: "map", ...place, entries };
  }

  /** @param {number} start @param {RegExp} end of a value without quotes @returns {Scalar} */
  function scalar(start, end) {
    QUOTED.lastIndex = start;
    const quoted = QUOTED.exec(text)?.[0];
    const plain = new RegExp(end, "gm");
    plain.lastIndex = start + 1;
    const length = quoted?.length ?? (plain.exec(text)?.index ?? text.length) - start;
    const raw = text.slice(start, start + length);
    if (raw === "" || !quoted && /:(\s|$)/.test(raw)) fail(start);
    if (!quoted && (UNKNOWN.test(raw[0]) || /^["'\]},]/.test(raw))) fail(start);
    const value = quoted ? unquote(raw) : /^(null|~)$/.test(raw) ? null : raw;
    return { kind: "scalar", start, end: start + length, value };
  }

  const root = block(0, 0);
  if (next < lines.length) fail(lines[next].start);
  return root;
}

/** @param {string} text */
function unquote(text) {
  if (text.startsWith("'")) return text.slice(1, -1).replaceAll("''", "'");
  return text.startsWith('"') ? String(JSON.parse(text)) : text;
}

/** Returns a text as YAML, with quotes where it needs them. @param {string} value */
export const quoted = (value) =>
  /^[A-Za-z_/*][\w./*%@+-]*$/.test(value) && !/^(true|false|null|yes|no|on|off|y|n)$/i.test(value)
    ? value : JSON.stringify(value);

/** @param {string[]} values */
export const listText = (values) => `[${values.map(quoted).join(", ")}]`;

/** @param {Node | undefined} node @param {string} key @returns {Node | undefined} */
export const valueIn = (node, key) =>
  (node?.kind === "map" ? node.entries.find((entry) => entry.key === key)?.value : undefined);

/** @param {Node | undefined} node */
export const textOf = (node) => (node?.kind === "scalar" ? node.value : null);

/** Returns the texts of a list, or the only one; `null` if it is something else. @param {Node | undefined} node */
export function textsOf(node) {
  if (!node) return [];
  const texts = node.kind === "list" ? node.items.map(textOf) : [textOf(node)];
  return texts.every((text) => text !== null) ? /** @type {string[]} */ (texts) : null;
}

/** @param {string} text @param {Splice} splice */
export const spliced = (text, { start, end, text: inserted }) => text.slice(0, start) + inserted + text.slice(end);

/**
 * Sets an entry of a map, or removes it.
 * @param {string} text @param {Map} map @param {string} key @param {string | null} value as YAML @returns {Splice}
 */
export function setEntry(text, map, key, value) {
  const index = map.entries.findIndex((entry) => entry.key === key);
  const entry = map.entries[index];
  const written = `${quoted(key)}: ${value}`;
  if (entry && value !== null) return { start: entry.start, end: entry.end, text: written };
  const last = map.entries.at(-1);
  if (!entry) {
    if (value === null) return { start: map.start, end: map.start, text: "" };
    if (map.at >= 0) {
      const end = lineEnd(text, last?.end ?? map.start);
      return { start: end, end, text: `\n${" ".repeat(map.at)}${written}` };
    }
    return last ? { start: last.end, end: last.end, text: `, ${written}` }
      : { start: map.start, end: map.end, text: `{ ${written} }` };
  }
  const after = map.entries[index + 1];
  const isAlone = text.slice(lineStart(text, entry.start), entry.start).trim() === "";
  if (map.at < 0 || !isAlone) {
    if (after) return { start: entry.start, end: after.start, text: "" };
    return { start: map.entries[index - 1]?.end ?? entry.start, end: entry.end, text: "" };
  }
  return linesOf(text, entry.start, entry.end);
}

/** Adds an item to a list. @param {string} text @param {List} list @param {string} item as YAML @returns {Splice} */
export function addItem(text, list, item) {
  const last = list.items.at(-1);
  if (list.at < 0) {
    return last ? { start: last.end, end: last.end, text: `, ${item.replace(/\n\s*/g, ", ")}` }
      : { start: list.start, end: list.end, text: `[${item}]` };
  }
  const end = lineEnd(text, last?.end ?? list.start);
  const indent = " ".repeat(list.at);
  return { start: end, end, text: `\n${indent}- ${item.replaceAll("\n", `\n${indent}  `)}` };
}

/** Removes an item of a list. @param {string} text @param {List} list @param {number} index @returns {Splice} */
export function removeItem(text, list, index) {
  const item = list.items[index];
  // The dash may stand in a line above.
  if (list.at >= 0) return linesOf(text, text.lastIndexOf("-", item.start - 1), item.end);
  const after = list.items[index + 1];
  if (after) return { start: item.start, end: after.start, text: "" };
  return { start: list.items[index - 1]?.end ?? item.start, end: item.end, text: "" };
}

/** Removes whole lines. @param {string} text @param {number} start @param {number} end @returns {Splice} */
function linesOf(text, start, end) {
  return { start: lineStart(text, start), end: Math.min(text.length, lineEnd(text, end) + 1), text: "" };
}

/** @param {string} text @param {number} offset */
const lineStart = (text, offset) => text.lastIndexOf("\n", offset - 1) + 1;

/** @param {string} text @param {number} offset */
function lineEnd(text, offset) {
  const end = text.indexOf("\n", offset);
  return end < 0 ? text.length : end;
}
