// The difference of two texts by lines: their longest common subsequence stays. Pure.

/** @typedef {{kind: "same" | "removed" | "added", text: string}} Line */

/** Beyond this the middle is shown as replaced: the search is quadratic. */
const MOST_CELLS = 4_000_000;

/** @param {string} before @param {string} after */
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

/** @param {Line[]} lines */
export function countChanges(lines) {
  const count = (/** @type {string} */ wanted) => lines.filter(({ kind }) => kind === wanted).length;
  return { added: count("added"), removed: count("removed") };
}

/**
 * Returns the parts that changed, each with some unchanged lines around it, and the numbers of its
 * first line in both texts.
 * @param {Line[]} lines @param {number} [around]
 */
export function hunksOf(lines, around = 3) {
  /** @type {{lines: Line[], before: number, after: number}[]} */
  const hunks = [];
  let before = 1;
  let after = 1;
  let wasShown = false;
  lines.forEach((line, index) => {
    const near = lines.slice(Math.max(0, index - around), index + around + 1);
    const isShown = near.some(({ kind }) => kind !== "same");
    if (isShown && !wasShown) hunks.push({ lines: [], before, after });
    if (isShown) hunks[hunks.length - 1].lines.push(line);
    wasShown = isShown;
    if (line.kind !== "added") before++;
    if (line.kind !== "removed") after++;
  });
  return hunks;
}

/** @param {string[]} a @param {string[]} b @returns {Line[]} */
function middle(a, b) {
  if (a.length * b.length > MOST_CELLS) return [...marked("removed", a), ...marked("added", b)];
  // `common[i * width + j]` is how many lines `a` from i and `b` from j have in common.
  const width = b.length + 1;
  const common = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      const at = i * width + j;
      common[at] = a[i] === b[j]
        ? common[at + width + 1] + 1
        : Math.max(common[at + width], common[at + 1]);
    }
  }
  /** @type {Line[]} */
  const lines = [];
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    const at = i * width + j;
    if (i < a.length && j < b.length && a[i] === b[j]) {
      lines.push({ kind: "same", text: a[i++] });
      j++;
    } else if (j === b.length || (i < a.length && common[at + width] >= common[at + 1])) {
      lines.push({ kind: "removed", text: a[i++] });
    } else lines.push({ kind: "added", text: b[j++] });
  }
  return lines;
}

/** @param {Line["kind"]} kind @param {string[]} lines @returns {Line[]} */
const marked = (kind, lines) => lines.map((text) => ({ kind, text }));

/** @param {string} text */
const linesOf = (text) => text === "" ? [] : text.replace(/\n$/, "").split("\n");
