// Colours for YAML, line by line. Pure. It need not understand everything: what it does not know
// is plain text.

/** @typedef {"" | "key" | "string" | "number" | "duration" | "word" | "comment" | "mark"} Kind */
/** @typedef {{kind: Kind, text: string}} Token */
/**
 * What a line inherits from those before it: nothing (""), an open quote, or a block of text
 * under a key in the given column ("|4").
 * @typedef {string} State
 */

const SPACE = /\s+/y;
const COMMENT = /#.*/y;
const DOUBLE = /"(?:[^"\\]|\\.)*("?)/y;
const SINGLE = /'(?:[^']|'')*('?)/y;
const REST_OF_DOUBLE = /(?:[^"\\]|\\.)*("?)/y;
const REST_OF_SINGLE = /(?:[^']|'')*('?)/y;
const BLOCK = /[|>][-+0-9]*(?=\s*(?:#.*)?$)/y;
const MARK = /[{}[\],]|[-?:](?=\s|$)|:(?=[,}\]])/y;
const REFERENCE = /[&*!][^\s,[\]{}]*/y;
const PLAIN = /(?:[^\s:#,[\]{}]|:(?![\s,}\]]|$)|(?<!\s)#|\s+(?![\s#:,[\]{}]|$))+/y;
const KEY_FOLLOWS = /\s*:(?=\s|$)/y;
const NUMBER = /^[-+]?\d[\d_]*(?:\.\d+)?%?$/;
const DURATION = /^\d+(?:\/\d*)?(?:ms|s|m|h|d)$/;
const WORD = /^(?:true|false|null|~)$/;

/**
 * Returns the tokens of one line, and what the next line inherits.
 * @param {string} line
 * @param {State} state
 * @returns {{tokens: Token[], state: State}}
 */
export function highlight(line, state) {
  if (line === "") return { tokens: [], state };
  if (state.startsWith("|")) {
    const inside = line.trim() === "" || indentOf(line) > Number(state.slice(1));
    if (inside) return { tokens: [{ kind: "string", text: line }], state };
    state = "";
  }
  /** @type {Token[]} */
  const tokens = [];
  let position = 0;
  let column = 0; // of the last key, which a block of text is deeper than
  /** @param {RegExp} pattern */
  function match(pattern) {
    pattern.lastIndex = position;
    return pattern.exec(line);
  }
  /** @param {Kind} kind @param {string} text */
  function push(kind, text) {
    tokens.push({ kind, text });
    position += text.length;
  }
  if (state) {
    const [text, end] = /** @type {RegExpExecArray} */ (
      match(state === '"' ? REST_OF_DOUBLE : REST_OF_SINGLE)
    );
    push("string", text);
    // A backslash at the end of a line is half an escape, which the pattern does not take.
    if (!end) return { tokens: [...tokens, { kind: "string", text: line.slice(position) }], state };
  }
  while (position < line.length) {
    const start = position;
    const before = line[position - 1];
    let found;
    if ((found = match(SPACE))) push("", found[0]);
    else if ((before === undefined || /\s/.test(before)) && (found = match(COMMENT))) {
      push("comment", found[0]);
    } else if ((found = match(DOUBLE) ?? match(SINGLE))) {
      const quote = line[position];
      position += found[0].length;
      const isKey = match(KEY_FOLLOWS) !== null;
      position = start;
      push(isKey ? "key" : "string", found[0]);
      if (isKey) column = start;
      if (!found[1]) {
        if (position < line.length) push("string", line.slice(position));
        return { tokens, state: quote };
      }
    } else if ((found = match(BLOCK))) {
      push("mark", found[0]);
      if (position < line.length) push("comment", line.slice(position));
      return { tokens, state: `|${column}` };
    } else if ((found = match(MARK))) {
      push("mark", found[0]);
      if (found[0] === "-") column = start;
    } else if ((found = match(REFERENCE))) push("word", found[0]);
    else if ((found = match(PLAIN))) {
      position += found[0].length;
      const isKey = match(KEY_FOLLOWS) !== null;
      position = start;
      push(isKey ? "key" : kindOf(found[0]), found[0]);
      if (isKey) column = start;
    } else push("", line[position]);
  }
  return { tokens, state: "" };
}

/**
 * Returns the number of spaces that a line begins with.
 * @param {string} line
 */
export function indentOf(line) {
  return line.length - line.trimStart().length;
}

/**
 * @param {string} text
 * @returns {Kind}
 */
function kindOf(text) {
  if (NUMBER.test(text)) return "number";
  if (DURATION.test(text)) return "duration";
  return WORD.test(text) ? "word" : "string";
}
