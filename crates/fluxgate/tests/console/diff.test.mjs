// The difference of two texts.

import assert from "node:assert/strict";
import test from "node:test";
import { countChanges, diffLines, hunksOf } from "../../src/console/rules/diff.js";

const SIGNS = { same: " ", added: "+", removed: "-" };
const shown = (a, b) => diffLines(a, b).map(({ kind, text }) => SIGNS[kind] + text).join("\n");
const check = (a, b) => {
  const lines = diffLines(a.join("\n"), b.join("\n"));
  assert.deepEqual(lines.filter((l) => l.kind !== "added").map((l) => l.text), a);
  assert.deepEqual(lines.filter((l) => l.kind !== "removed").map((l) => l.text), b);
  return countChanges(lines);
};

test("examples", () => {
  assert.equal(shown("a\nb\nc\n", "a\nx\nc\n"), " a\n-b\n+x\n c");
  assert.equal(shown("", "a\nb"), "+a\n+b");
  assert.equal(shown("a\n", "a"), " a");
  assert.equal(shown("a", ""), "-a");
});

test("every pair of random texts is rebuilt, with the fewest edits", () => {
  let seed = 1;
  const random = (n) => (seed = (seed * 48271) % 2147483647) % n;
  for (let i = 0; i < 3000; i++) {
    const text = () => Array.from({ length: 1 + random(12) }, () => "abc"[random(3)]);
    const [a, b] = [text(), text()];
    const { added, removed } = check(a, b);
    // Longest common subsequence by the book.
    const t = Array.from({ length: a.length + 1 }, () => new Array(b.length + 1).fill(0));
    for (let x = 1; x <= a.length; x++) for (let y = 1; y <= b.length; y++)
      t[x][y] = a[x - 1] === b[y - 1] ? t[x - 1][y - 1] + 1 : Math.max(t[x - 1][y], t[x][y - 1]);
    assert.equal(added + removed, a.length + b.length - 2 * t[a.length][b.length]);
  }
});

test("texts with nothing in common end in time", () => {
  const [a, b] = ["a", "b"].map((letter) => Array.from({ length: 5000 }, (_, index) => `${letter}${index}`));
  const start = performance.now();
  assert.deepEqual(check(a, b), { added: 5000, removed: 5000 });
  assert.ok(performance.now() - start < 5000);
});

test("hunks", () => {
  const a = Array.from({ length: 40 }, (_, i) => `l${i + 1}`);
  const b = a.with(9, "x").with(12, "y").with(30, "z");
  const hunks = hunksOf(diffLines(a.join("\n"), b.join("\n")), 2);
  assert.deepEqual(hunks.map((h) => [h.before, h.after, h.lines.length]), [[8, 8, 10], [29, 29, 6]]);
});
