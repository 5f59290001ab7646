// Identities in words: what is typed and linked, what is left, and overrides.

import assert from "node:assert/strict";
import test from "node:test";
import { nextWords, refundWords, resetDone, resetWords, slotWords, unitOf, usedWords, windowDates } from "../../src/console/identities/bands.js";
import { durationText, raisedBands, withOverride, yamlOf } from "../../src/console/identities/overrides.js";
import { clearOf, filtersOf, isHidden, linkOf, readIdentity, readLink, readSearch } from "../../src/console/identities/parts.js";

const plain = (text) => text.replace(/\s+/g, " ");
const pairs = (values) => Object.fromEntries(values);
const entry = (id, key) => ({ set: "api", rule: { id, key } });

test("shown texts are not taken for values", () => {
  for (const hidden of ["~0123456789ab", "a-se…-1", "…"]) assert.ok(isHidden(hidden), hidden);
  for (const value of ["ann", "~ann", "~0123456789AB", "…ann", "a…b", ""]) assert.ok(!isHidden(value), value);
  const values = new Map([["user", "ann"], ["api_key", "~0123456789ab"]]);
  assert.deepEqual(pairs(clearOf(values)), { user: "ann" });
  assert.deepEqual(filtersOf(values), ["user=ann", "api_key=~0123456789ab"]);
  assert.deepEqual(filtersOf(new Map([["api_key", "a-se…-1"]])), []);
});

test("an identity is read by the key of its rule", () => {
  const key = ["user", "attr:tenant"];
  const expected = { user: "ann", "attr:tenant": "a, b=c" };
  assert.deepEqual(pairs(readIdentity("user=ann attr:tenant=a, b=c", key)), expected);
  assert.deepEqual(pairs(readIdentity("user=ann, attr:tenant=a, b=c")), expected);
  assert.deepEqual(pairs(readIdentity("user=a user=b", ["user"])), { user: "a user=b" });
  assert.deepEqual(pairs(readIdentity("header:X-Plan=free")), { "header:x-plan": "free" });
  for (const none of ["anonymous", "(everyone)", "ann", "name=ann"]) assert.equal(readIdentity(none).size, 0, none);
  const link = new URLSearchParams({ identity: "user=ann attr:tenant=x", rule: "api/pair", ip: "192.0.2.1" });
  assert.deepEqual(pairs(readLink(link, [entry("pair", key)])), { user: "ann", "attr:tenant": "x", ip: "192.0.2.1" });
});

test("a search means every part that it may be", () => {
  const parts = ["user", "api_key", "ip", "attr:tenant", "path"];
  const meant = (text) => readSearch(text, parts).map(pairs);
  assert.deepEqual(meant("user=ann attr:tenant=x"), [{ user: "ann", "attr:tenant": "x" }]);
  assert.deepEqual(meant("ann"), [{ user: "ann" }, { api_key: "ann" }, { "attr:tenant": "ann" }]);
  assert.deepEqual(meant("192.0.2.1")[0], { ip: "192.0.2.1" });
  assert.deepEqual(meant("2001:db8::1")[0], { ip: "2001:db8::1" });
  assert.deepEqual(meant("/login"), [{ path: "/login" }]);
  assert.deepEqual(readSearch("ann", []).map(pairs), [{ user: "ann" }]);
});

test("a key stays out of links, and its pseudonym does not", () => {
  assert.equal(linkOf(new Map([["api_key", "secret"], ["user", "a b"]])), "#/identities?user=a+b");
  assert.equal(linkOf(new Map([["api_key", "~0123456789ab"]])), "#/identities?api_key=%7E0123456789ab");
  assert.equal(linkOf(new Map([["api_key", "secret"]])), "#/identities");
});

test("units are what the cost says", () => {
  const unit = (cost, algorithm = "token_bucket") => unitOf({ cost, algorithm });
  assert.deepEqual([unit(undefined), unit(1), unit(5), unit("llm:total_tokens"), unit("attr:tokens"), unit("header:X-Cost")],
    ["request", "request", "unit", "token", "token", "unit"]);
  assert.equal(unit(undefined, "concurrency"), "slot");
  assert.equal(usedWords({ limit: 10, remaining: 7 }, "token"), "3 of 10 tokens used");
  assert.equal(usedWords({ limit: 1, remaining: 0 }, "slot"), "1 of 1 slot taken");
});

test("what comes next", () => {
  const rule = { mode: "enforce", on_exceed: "reject", algorithm: "token_bucket" };
  const full = [{ band: "a", limit: 5, remaining: 0, reset_after_ms: 1 }];
  assert.equal(plain(nextWords(full, 11_200, rule)), "Next request in 12 s.");
  assert.match(nextWords(full, null, rule), /never passes/);
  assert.match(nextWords(full, 0, { ...rule, on_exceed: "wait" }), /has to wait/);
  assert.match(nextWords(full, 0, { ...rule, mode: "shadow" }), /shadow/);
  assert.match(nextWords(full, 11_200, { ...rule, algorithm: "concurrency" }), /when one is free/);
  assert.equal(nextWords([{ ...full[0], remaining: 1 }], 0, rule), "");
});

test("a calendar window starts afresh at its edge, also by clocks that differ", () => {
  const [midnight, band] = [Date.UTC(2026, 11, 1), { id: "b", capacity: 1, calendar: "month", time_zone: "UTC" }];
  for (const now of [midnight - 60_400, midnight - 59_300]) {
    const words = resetWords({ reset_after_ms: 60_000 }, band, { algorithm: "fixed_window" }, now);
    assert.equal(plain(words), "starts afresh 1 Dec 2026, 00:00 UTC");
  }
});

test("slots that end together are said together", () => {
  assert.equal(slotWords([]), "");
  assert.equal(plain(slotWords([11_200, 49_100, 50_000])), "1 slot in 12 s, 2 slots in 50 s");
});

test("calendar windows have dates in their zone", () => {
  const now = Date.UTC(2026, 10, 30, 20, 5);
  const dates = (calendar, time_zone = "Asia/Seoul", at = now) => plain(windowDates({ id: "b", capacity: 1, calendar, time_zone }, at));
  assert.equal(dates("hour"), "1 Dec 2026, 05:00 to 06:00 (Asia/Seoul)");
  assert.equal(dates("day"), "1 Dec 2026 (Asia/Seoul)");
  assert.equal(dates("week"), "30 Nov to 6 Dec 2026 (Asia/Seoul)");
  assert.equal(dates("month"), "1 to 31 Dec 2026 (Asia/Seoul)");
  assert.equal(dates("month", "UTC"), "1 to 30 Nov 2026 (UTC)");
  assert.equal(dates("year"), "1 Jan to 31 Dec 2026 (Asia/Seoul)");
  assert.equal(dates("week", "UTC", Date.UTC(2027, 0, 1)), "28 Dec 2026 to 3 Jan 2027 (UTC)");
  assert.equal(windowDates({ id: "b", capacity: 1, window_ms: 5 }, now), "");
  const reset = resetWords({ band: "b", limit: 1, remaining: 0, reset_after_ms: 3_600_000 },
    { id: "b", capacity: 1, calendar: "month", time_zone: "Asia/Seoul" }, { algorithm: "fixed_window" }, Date.UTC(2026, 10, 30, 14));
  assert.equal(plain(reset), "starts afresh 1 Dec 2026, 00:00 GMT+9");
});

test("a refund and a reset say what they did", () => {
  const state = (remaining) => [{ band: "hour", limit: 10, remaining, reset_after_ms: 0 }];
  const limit = () => "10 per hour";
  assert.deepEqual(refundWords(state(2), state(5), 3, "token", limit),
    { kind: "good", text: "Refunded 3 tokens. 5 left in hour (10 per hour)." });
  // A limit without a name of its own has a number, which says nothing.
  assert.equal(refundWords(state(2), [{ ...state(5)[0], band: "b0" }], 3, "token", limit).text, "Refunded 3 tokens. 5 left of 10 per hour.");
  assert.equal(refundWords(state(10), state(10), 3, "token", limit).kind, "quiet");
  assert.equal(resetDone(1, state(10), "ann", limit).text, "Reset: 1 counter deleted. 10 left in hour (10 per hour).");
  assert.deepEqual(resetDone(0, state(10), "ann", limit),
    { kind: "quiet", text: "There was nothing to reset: ann had used nothing. 10 left in hour (10 per hour)." });
});

test("an override has all bands, with other capacities", () => {
  const bands = [
    { id: "b0", capacity: 50, window_ms: 1000, refill: 10, period_ms: 1000 },
    { id: "day", capacity: 100, window_ms: 86_400_000, refill: 100, period_ms: 86_400_000 },
    { id: "month", capacity: 5, calendar: "month", time_zone: "Asia/Seoul" },
    { id: "slots", capacity: 3, hold_ms: 60_000 },
  ];
  const raised = raisedBands(bands, [100, 200, 10, 6]);
  assert.deepEqual(raised, [
    { id: "b0", capacity: 100, window: "1s", refill: 20, period: "1s" },
    { id: "day", capacity: 200, window: "1d" },
    { id: "month", capacity: 10, calendar: "month", time_zone: "Asia/Seoul" },
    { id: "slots", capacity: 6 },
  ]);
  const added = { identity: "ann", until: "2027-01-01T00:00:00Z", bands: raised.slice(1, 2) };
  assert.equal(yamlOf(added), "overrides:\n  - { identity: \"ann\", until: \"2027-01-01T00:00:00Z\", "
    + "bands: [ { id: day, capacity: 200, window: 1d } ] }\n");
  assert.deepEqual(withOverride([{ ...added, identity: ["ann"] }, { ...added, identity: "bob" }], added).map(({ identity }) => identity),
    ["bob", "ann"]);
  assert.deepEqual(withOverride(undefined, added), [added]);
  assert.deepEqual([500, 90_000, 7_200_000].map(durationText), ["500ms", "90s", "2h"]);
});
