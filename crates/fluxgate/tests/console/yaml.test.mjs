// The text of rules is changed in one place, and stays as it is elsewhere.

import assert from "node:assert/strict";
import test from "node:test";
import {
  addItem, listText, parse, quoted, removeItem, setEntry, spliced, textsOf, valueIn,
} from "../../src/console/rules/yaml.js";

const TEXT = `# All of them
on_error: deny   # why
lists: { office: ["192.0.2.0/24"], blocked: [user-13, "user 99"] }
rules:
- id: per-user
  name: 'It''s: a name'
  match:
    path: ["/api/**", /x] # c
    headers: { X-Plan: "free", 'X-A': { not: [a, b] } }
  scope: per_user
  bands:
    - { id: hour, capacity: 10, window: 1h }
    - 100/d   # a day
    - capacity: 5
      calendar: month
  # the last
  cost: header:X-Cost

- { id: q, scope: global, bands: [ 10/s, { rate: 10/s, burst: 50 } ] }
-
  id: z
  bands: [
    10/s,
    5/m
  ]
`;

const plain = (node) => node.kind === "scalar" ? node.value : node.kind === "list" ? node.items.map(plain)
  : Object.fromEntries(node.entries.map(({ key, value }) => [key, plain(value)]));
const rules = (text) => valueIn(parse(text), "rules");

test("every value is read with its place", () => {
  assert.deepEqual(plain(parse(TEXT)), {
    on_error: "deny",
    lists: { office: ["192.0.2.0/24"], blocked: ["user-13", "user 99"] },
    rules: [
      {
        id: "per-user", name: "It's: a name",
        match: { path: ["/api/**", "/x"], headers: { "X-Plan": "free", "X-A": { not: ["a", "b"] } } },
        scope: "per_user",
        bands: [{ id: "hour", capacity: "10", window: "1h" }, "100/d", { capacity: "5", calendar: "month" }],
        cost: "header:X-Cost",
      },
      { id: "q", scope: "global", bands: ["10/s", { rate: "10/s", burst: "50" }] },
      { id: "z", bands: ["10/s", "5/m"] },
    ],
  });
  const walk = (node) => {
    if (node.kind === "list") return node.items.forEach(walk);
    if (node.kind === "map") return node.entries.forEach(({ value }) => walk(value));
    if (node.value !== null) assert.ok(TEXT.slice(node.start, node.end).includes(node.value.replace("'", "''")));
  };
  walk(parse(TEXT));
  assert.deepEqual(plain(parse("a:\nb: ~\nc: # none\n")), { a: null, b: null, c: null });
});

test("what it does not know is an error with its line", () => {
  const bad = [
    "a: |\n  x", "a: &x 1", "a: *x", "a: [1", "a: b\n  c: d", "- a\n  b", "a: !t x", "a: 'x", "a: {b: c}}", "a: b: c",
  ];
  for (const text of bad) assert.throws(() => parse(text), SyntaxError, text);
  assert.throws(() => parse("a: 1\nb: [1"), /line 2/);
});

/** Returns the lines that an edit removes and adds. */
function changed(splice) {
  const [before, after] = [TEXT, spliced(TEXT, splice)].map((text) => text.split("\n"));
  parse(after.join("\n"));
  return { gone: before.filter((line) => !after.includes(line)), come: after.filter((line) => !before.includes(line)) };
}

test("an entry is set, added and removed", () => {
  const [block, flow] = rules(TEXT).items;
  assert.deepEqual(changed(setEntry(TEXT, block, "id", "per-key")), { gone: ["- id: per-user"], come: ["- id: per-key"] });
  assert.deepEqual(changed(setEntry(TEXT, block, "mode", "shadow")), { gone: [], come: ["  mode: shadow"] });
  assert.deepEqual(changed(setEntry(TEXT, block, "name", null)).gone, ["  name: 'It''s: a name'"]);
  assert.deepEqual(changed(setEntry(TEXT, block, "none", null)), { gone: [], come: [] });
  // The comment beside it stays.
  assert.deepEqual(changed(setEntry(TEXT, valueIn(block, "match"), "path", "[/y]")).come, ["    path: [/y] # c"]);
  const { come } = changed(setEntry(TEXT, flow, "scope", null));
  assert.deepEqual(come, ["- { id: q, bands: [ 10/s, { rate: 10/s, burst: 50 } ] }"]);
  assert.match(spliced(TEXT, setEntry(TEXT, flow, "mode", "shadow")), /burst: 50 } \], mode: shadow }/);
  assert.equal(spliced("a: {}", setEntry("a: {}", valueIn(parse("a: {}"), "a"), "b", "1")), "a: { b: 1 }");
});

test("an item is added and removed", () => {
  const list = rules(TEXT);
  assert.deepEqual(changed(addItem(TEXT, list, "id: new\nscope: global")).come, ["- id: new", "  scope: global"]);
  assert.equal(rules(spliced(TEXT, removeItem(TEXT, list, 0))).items.length, 2);
  assert.equal(spliced(TEXT, removeItem(TEXT, list, 2)).endsWith("burst: 50 } ] }\n"), true);
  const bands = valueIn(list.items[0], "bands");
  assert.deepEqual(changed(removeItem(TEXT, bands, 1)).gone, ["    - 100/d   # a day"]);
  assert.deepEqual(changed(removeItem(TEXT, bands, 2)).gone, ["    - capacity: 5", "      calendar: month"]);
  const short = valueIn(list.items[1], "bands");
  assert.match(spliced(TEXT, removeItem(TEXT, short, 1)), /bands: \[ 10\/s \] }/);
  assert.match(spliced(TEXT, addItem(TEXT, short, "5/m")), /burst: 50 }, 5\/m \] }/);
});

test("texts get quotes where they need them", () => {
  for (const text of ["user-13", "/api/**", "per_user"]) assert.equal(quoted(text), text);
  for (const text of ["true", "10.0.0.0/8", "a b", "", "header:X", "a,b", "#a", "Null", "12"]) {
    assert.equal(quoted(text), JSON.stringify(text));
    assert.equal(parse(quoted(text)).value, text);
  }
  assert.deepEqual(textsOf(parse(listText(["a", "b c"]))), ["a", "b c"]);
  assert.equal(textsOf(parse("[a, { b: c }]")), null);
});
