import assert from "node:assert/strict";
import { test } from "node:test";

import { Ambiguous } from "../node_modules/fluxgate/src/ambiguous.js";
import { PathSet, readPath, withoutSlash } from "../node_modules/fluxgate/src/path.js";

test("a path has two forms", () => {
  for (const [raw, normal] of [
    ["/", "/"],
    ["/api/x", "/api/x"],
    ["/api/.well-known/..x/...", "/api/.well-known/..x/..."],
    ["/%61pi/x", "/api/x"],
    ["/api%2fx", "/api/x"],
    ["/api\\x", "/api/x"],
    ["/api%5cx", "/api/x"],
    ["//api///x//", "/api/x"],
    ["/%2fapi", "/api"],
    ["/api/", "/api"],
    ["/api%2f", "/api"],
    ["//", "/"],
    ["/api;v=1/x", "/api/x"],
    ["/api%3bv=1/x", "/api/x"],
    ["/api;a;b/x;c", "/api/x"],
    ["/a/;x", "/a"],
    ["/;", "/"],
    ["/a;..;b/c%2Fd/..e/;./f..", "/a/c/d/..e/f.."],
    ["/%2561pi", "/%61pi"],
    ["/%252e%252e/x", "/%2e%2e/x"],
    ["/%25", "/%"],
    ["/%%36%31", "/%61"],
    ["/%zz", "/%zz"],
    ["/%", "/%"],
    ["/%6", "/%6"],
    ["/%+6/x", "/%+6/x"],
    ["/caf%C3%a9", "/café"],
    ["/%3f%23%20%2a", "/?# *"],
  ]) {
    const path = readPath(raw);
    assert.deepEqual([path.raw, withoutSlash(path.normal)], [raw, normal]);
  }
});

test("targets that are not paths", () => {
  assert.equal(readPath("*").raw, "/*");
  assert.equal(readPath("/a?b=/../c").raw, "/a");
  assert.equal(readPath("http://host/a?b").raw, "/a");
  assert.equal(readPath("HTTPS://host").raw, "/");
  for (const target of ["x", "a:80", "\\api", "%2fapi", "ftp://host/a"]) {
    assert.throws(() => readPath(target), Ambiguous, target);
  }
});

test("bytes that are not ASCII", () => {
  // Node shows the bytes of a target as Latin-1.
  const sent = (bytes) => Buffer.from(bytes).toString("latin1");
  assert.equal(readPath(sent([0x2f, 0xc3, 0xa9])).raw, "/é");
  assert.equal(readPath(sent([0x2f, 0xe9])).raw, "/\u{10ffe9}");
  assert.equal(readPath(sent([0x2f, 0xe9, 0x25, 0x32, 0x30])).normal, "/\u{10ffe9} ");
});

test("paths with yet other readings", () => {
  for (const [path, reason] of [
    ["/.", /`\.\.`/],
    ["/a/../x", /`\.\.`/],
    ["/%2e%2e/x", /`\.\.`/],
    ["/..;a/x", /`\.\.`/],
    ["/a%5C..%5cx", /`\.\.`/],
    ["//..//x", /`\.\.`/],
    ["/x;a/../y", /`\.\.`/],
    ["/a%00", /control/],
    ["/a;x%09", /control/],
    ["/a\u007f", /control/],
    ["/a%80", /UTF-8/],
    ["/%c3;%a9", /UTF-8/],
    ["/api;%2fy/x", /`;`/],
    ["/api;\\y", /`;`/],
    ["/health#/api", /`#`/],
  ]) {
    assert.throws(() => readPath(path), { message: reason }, path);
  }
});

test("patterns", () => {
  for (const [pattern, path, expected] of [
    ["/**", "/", true],
    ["/**", "/a/b", true],
    ["/api/**", "/api", true],
    ["/api/**", "/apis", false],
    ["/a/*/c", "/a/b/c", true],
    ["/a/*/c", "/a/b/b/c", false],
    ["/a/{id}", "/a/1", true],
    ["/a/{id}", "/a/", false],
    ["/a/*", "/a/", true],
    ["/a/**/z", "/a/z", true],
    ["/a/**/z", "/a/b/c/z", true],
    ["/a/**/z", "/a/z/b", false],
    ["/x*y?z", "/xaayaz", true],
    ["/x*y?z", "/xyz", false],
    ["/?", "/😀", true],
  ]) {
    const set = new PathSet([pattern], false);
    assert.equal(set.containsBoth({ raw: path, normalForms: [path] }), expected, `${pattern} ${path}`);
  }
  for (const pattern of ["api", "/a**", "/{a", "/{a}b", "/{id:[0-9]+}"]) {
    assert.throws(() => new PathSet([pattern], false), TypeError, pattern);
  }
  const long = `/${"a".repeat(20_000)}`;
  assert.equal(new PathSet(["/*a*a*a*a*a*a*b"], false).containsBoth(readPath(long)), false);
});

test("included by either form, excluded by both", () => {
  const set = new PathSet(["/api/health"], false);
  for (const [path, either, both] of [
    ["/api/health", true, true],
    ["/api/%68ealth", true, false],
    ["/api/health/", true, false],
    ["//host/api/health", true, false],
    ["/API/health", false, false],
  ]) {
    const read = readPath(path);
    assert.deepEqual([set.containsEither(read), set.containsBoth(read)], [either, both], path);
  }
  assert(new PathSet(["/Api"], true).containsBoth(readPath("/aPI")));
});
