import assert from "node:assert/strict";
import { test } from "node:test";

import { Ambiguous } from "../node_modules/fluxgate/src/ambiguous.js";
import { HeaderReader } from "../node_modules/fluxgate/src/headers.js";

const COUNTED = ["x-user-id", "x-api-key", "x-forwarded-for"];

/** Node shows the bytes of a header as Latin-1. */
const sent = (text) => Buffer.from(text, "utf8").toString("latin1");

test("headers that rules may read", () => {
  const read = (...lines) => {
    try {
      return Object.fromEntries(Object.entries(new HeaderReader(COUNTED).read(lines).sent));
    } catch (error) {
      assert(error instanceof Ambiguous, error);
      return "refused";
    }
  };
  for (const [lines, expected] of [
    [["A", "1", "a", "1 "], { a: "1" }],
    [["A", "1", "a", "2"], "refused"],
    [["X-User-Id", "ann", "x-user-id", "bob"], "refused"],
    [["X-User-Id", "ann", "X_User_Id", "ann"], "refused"],
    [["X.Api.Key", "k"], "refused"],
    [["X_Forwarded_For", "1.1.1.1"], "refused"],
    [["X-UserId", "ann"], { "x-userid": "ann" }],
    [["A", sent("1\u00a0")], "refused"],
    [["A", "1\u00a0"], "refused"],
    [["A", "=?utf-8?q?1?="], "refused"],
    [["A", "a=?b"], { a: "a=?b" }],
    [["Via", "1", "Via", "2"], { via: "1" }],
    [["Authorization", "x", "Authorization", "y"], {}],
    [["Cookie", "a=1", "Cookie", "b=2"], {}],
    [["a_b", "1", "a.b", "2", "a-b", "3"], { "a-b": "3" }],
    [["constructor", "1", "__proto__", "2"], { constructor: "1" }],
    [["A", sent("é")], { a: "é" }],
    [["A", "a\u00e9b"], { a: "a\u{10ffe9}b" }],
    [[":path", "/", "A", ""], { a: "" }],
  ]) {
    assert.deepEqual(read(...lines), expected, JSON.stringify(lines));
  }
});

test("headers that are named", () => {
  const reader = new HeaderReader(COUNTED, ["X-Plan", "Accept", "Authorization", "x_key"]);
  const { sent: found } = reader.read(["X-Plan", "a", "B", "1", "B", "2", "Authorization", "Bearer t"]);
  assert.deepEqual({ ...found }, { "x-plan": "a", authorization: "Bearer t" });
  for (const lines of [
    ["X_Plan", "a"],
    ["x-key", "a"],
    ["Accept", "a", "Accept", "b"],
    ["Authorization", "Bearer a b"],
    ["Authorization", "Bearer"],
    ["Authorization", "Basic \u00e9"],
    ["X-User-Id", "a", "X-User-Id", "b"],
  ]) {
    assert.throws(() => reader.read(lines), Ambiguous, JSON.stringify(lines));
  }
});

test("lines of proxies and identities", () => {
  const lines = ["X-Forwarded-For", "1.1.1.1", "x-forwarded-for", "2.2.2.2", "X-User-Id", "ann"];
  const { counted, forwarded } = new HeaderReader(COUNTED).read(lines);
  assert.deepEqual(forwarded, ["1.1.1.1", "2.2.2.2"]);
  assert.equal(counted["x-user-id"], "ann");
});
