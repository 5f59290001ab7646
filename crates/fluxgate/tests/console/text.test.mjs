// The texts of the rules view: positions and logs.

import assert from "node:assert/strict";
import test from "node:test";
import { ruleText, unwrap, wrap } from "../../src/console/rules/document.js";
import { eventsOfSet, parseLog, MOST_EVENTS } from "../../src/console/rules/events.js";

test("wrap", () => {
  assert.equal(wrap('a"b', "rules:\n  - id: x\n\n"), 'rule_sets:\n  "a\\"b":\n    rules:\n      - id: x\n\n\n');
  assert.deepEqual(unwrap({ line: 4, column: 9, message: "m" }), { line: 2, column: 5, message: "m" });
  assert.deepEqual(unwrap({ line: 2, column: 9, message: "m" }), { line: 1, column: 1, message: "m" });
});
test("rule text", () => {
  // As the service writes it.
  const file = `keys: { ipv6_prefix: 64 }
rule_sets:
  other:
    rules:
      - id: a
        scope: global
  "a b":
    on_error: deny
    rules:
      - id: a
        bands:
          - { id: b, capacity: 1, window: 1s }
      - id: "b:"
        scope: global
`;
  const bands = "- id: a\n  bands:\n    - { id: b, capacity: 1, window: 1s }";
  assert.equal(ruleText(file, "a b", "a"), bands);
  assert.equal(ruleText(file, "a b", "b:"), '- id: "b:"\n  scope: global');
  assert.equal(ruleText(file, "other", "a"), "- id: a\n  scope: global");
  assert.equal(ruleText(file, "none", "a"), null);
  assert.equal(ruleText("rules:\n  - id: a\n  - id: bb\n    scope: global\n", null, "bb"), "- id: bb\n  scope: global");
});
test("logs", () => {
  const log = parseLog(`203.0.113.9 - - [01/Jan/2026:09:10:00 +0100] "GET /login?next=/ HTTP/1.1" 200 512 "-" "curl/8 \\"x\\""\nnonsense\n::1 - ann [01/Jan/2026:09:09:00 +0100] "-" 400 0\nhost - - [01/Jan/2026:09:11:00 +0100] "POST http://h/ HTTP/1.1" 200 -\n`);
  assert.deepEqual(log, { bad: 1, cut: false, events: [
    { t: 1767255000000000, ip: "203.0.113.9", method: "GET", path: "/login", headers: { "user-agent": 'curl/8 "x"' } },
    { t: 1767255000000000, ip: "::1", user: "ann" },
    { t: 1767255060000000, method: "POST", path: "/" }] });
  const many = parseLog('{"t":1}\n'.repeat(MOST_EVENTS + 1));
  assert.equal(many.events.length, MOST_EVENTS); assert.equal(many.cut, true);
  assert.equal(parseLog('{"t":1}\n'.repeat(MOST_EVENTS) + "\n").cut, false);
  assert.deepEqual(parseLog('{"t":1,"user":"a"}\n[1]\n{"x":1}\n{'), { events: [{ t: 1, user: "a" }], bad: 3, cut: false });
  assert.deepEqual(eventsOfSet([{ t: 1 }, { t: 1, rule_set: "b", hold: "h" }, { t: 2, settle: "h" }, { t: 1, rule_set: "a", hold: "i" }, { t: 2, settle: "i" }], "a"),
    [{ t: 1, rule_set: "a" }, { t: 1, rule_set: "a", hold: "i" }, { t: 2, settle: "i" }]);
});
