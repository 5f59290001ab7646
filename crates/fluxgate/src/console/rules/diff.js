// The difference of two texts by lines (Myers, "An O(ND) Difference Algorithm"). Pure.

/** @typedef {"same" | "removed" | "added"} Change */
/** @typedef {{kind: Change, text: string}} Line */
/** @typedef {{lines: Line[], before: number, after: number}} Hunk its lines, and the numbers of the first in both texts */

/** Beyond this many edits the middle is shown as replaced: the search takes quadratic memory. */
const MOST_EDITS = 1000;

/**
 * Returns the lines of both texts in order.
 * @param {string} before
 * @param {string} after
 * @returns {Line[]}
 */
export function diffLines(before, after) {
  const a = linesOf(before);
  const b = linesOf(after);
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start++;
  let end = 0;
  const most = Math.min(a.length, b.length) - start;
  while (end < most && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
  return [
    ...marked("same", a.slice(0, start)),
    ...middle(a.slice(start, a.length - end), b.slice(start, b.length - end)),
    ...marked("same", a.slice(a.length - end)),
  ];
}

/**
 * Returns the numbers of added and removed lines.
 * @param {Line[]} lines
 */
export function countChanges(lines) {
  const added = lines.filter(({ kind }) => kind === "added").length;
  const removed = lines.filter(({ kind }) => kind === "removed").length;
  return { added, removed };
}

/**
 * Returns the parts that changed, each with up to `context` unchanged lines around it.
 * @param {Line[]} lines
 * @param {number} [context]
 * @returns {Hunk[]}
 */
export function hunksOf(lines, context = 3) {
  const shown = new Uint8Array(lines.length);
  lines.forEach(({ kind }, index) => {
    if (kind !== "same") shown.fill(1, Math.max(0, index - context), index + context + 1);
  });
  /** @type {Hunk[]} */
  const hunks = [];
  let before = 1;
  let after = 1;
  lines.forEach((line, index) => {
    if (shown[index]) {
      if (!shown[index - 1]) hunks.push({ lines: [], before, after });
      hunks[hunks.length - 1].lines.push(line);
    }
    if (line.kind !== "added") before++;
    if (line.kind !== "removed") after++;
  });
  return hunks;
}

/**
 * @param {string[]} a
 * @param {string[]} b
 * @returns {Line[]}
 */
function middle(a, b) {
  const trace = a.length > 0 && b.length > 0 ? search(a, b) : null;
  if (!trace) return [...marked("removed", a), ...marked("added", b)];
  /** @type {Line[]} */
  const lines = [];
  let x = a.length;
  let y = b.length;
  for (let edits = trace.length - 1; edits >= 0; edits--) {
    const reach = trace[edits];
    const k = x - y;
    const down = k === -edits || (k !== edits && at(reach, k - 1) < at(reach, k + 1));
    const fromK = down ? k + 1 : k - 1;
    const fromX = edits === 0 ? 0 : at(reach, fromK);
    const fromY = edits === 0 ? 0 : fromX - fromK;
    while (x > fromX && y > fromY) {
      lines.push({ kind: "same", text: a[--x] });
      y--;
    }
    if (edits === 0) break;
    if (down) lines.push({ kind: "added", text: b[--y] });
    else lines.push({ kind: "removed", text: a[--x] });
  }
  return lines.reverse();
}

/**
 * Returns, for each number of edits, how far each diagonal reached before it; null if there are
 * too many edits.
 * @param {string[]} a
 * @param {string[]} b
 */
function search(a, b) {
  const most = Math.min(a.length + b.length, MOST_EDITS);
  const trace = [];
  let reach = new Int32Array(3);
  for (let edits = 0; edits <= most; edits++) {
    trace.push(reach);
    const next = new Int32Array(2 * edits + 5);
    for (let k = -edits; k <= edits; k += 2) {
      const down = k === -edits || (k !== edits && at(reach, k - 1) < at(reach, k + 1));
      let x = edits === 0 ? 0 : down ? at(reach, k + 1) : at(reach, k - 1) + 1;
      while (x < a.length && x - k < b.length && a[x] === b[x - k]) x++;
      next[k + (next.length >> 1)] = x;
      if (x >= a.length && x - k >= b.length) return trace;
    }
    reach = next;
  }
  return null;
}

/**
 * @param {Int32Array} reach centred on diagonal 0
 * @param {number} k
 */
function at(reach, k) {
  return reach[k + (reach.length >> 1)];
}

/**
 * @param {Change} kind
 * @param {string[]} lines
 * @returns {Line[]}
 */
function marked(kind, lines) {
  return lines.map((text) => ({ kind, text }));
}

/** @param {string} text */
function linesOf(text) {
  if (text === "") return [];
  return (text.endsWith("\n") ? text.slice(0, -1) : text).split("\n");
}
