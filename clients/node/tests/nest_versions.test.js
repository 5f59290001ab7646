// NestJS 11 consists of CommonJS modules, later versions of ES modules. The package may be
// installed, or be a link to a checkout.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdirSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { after, before, describe, test } from "node:test";
import { promisify } from "node:util";

import { Service } from "./support/service.js";

const PROGRAM = `
import "reflect-metadata";
import * as nest from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import { Client } from "fluxgate";
import { rateLimit, RateLimitException } from "fluxgate/nest";

class Routes {
  get() {
    return "ok";
  }
}
nest.Controller()(Routes);
nest.Get()(Routes.prototype, "get", Object.getOwnPropertyDescriptor(Routes.prototype, "get"));
class App {}
nest.Module({ controllers: [Routes] })(App);
const [url, user] = process.argv.slice(2);
const client = new Client(url, { deadline: 10_000 });
const app = await NestFactory.create(App, { logger: false });
app.useGlobalGuards(rateLimit({ client, ruleSet: "api", user: () => user }));
await app.listen(0, "127.0.0.1");
for (let at = 0; at < 2; at += 1) {
  const { status, headers } = await fetch(await app.getUrl());
  console.log(status, headers.get("content-type"), headers.get("x-ratelimit-remaining"));
}
console.log(new RateLimitException({ status: 429 }) instanceof nest.HttpException);
await app.close();
await client.close();
`;

/** Makes a folder with the packages of another, and this package as a link. */
function linked(packages, name) {
  const folder = path.resolve("linked", name);
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(path.join(folder, "node_modules"), { recursive: true });
  for (const entry of readdirSync(packages).filter((entry) => entry !== "fluxgate")) {
    symlinkSync(path.resolve(packages, entry), path.join(folder, "node_modules", entry));
  }
  const checkout = path.join(process.env.FLUXGATE_CHECKOUT, "clients", "node");
  symlinkSync(checkout, path.join(folder, "node_modules", "fluxgate"));
  return folder;
}

describe("NestJS", () => {
  let service;
  before(async () => {
    service = await Service.start(
      'listen: { api: "${API}" }\nrule_sets: { api: { rules: [ { id: r, scope: per_user, bands: [1/h] } ] } }\n',
    );
  });
  after(() => service.stop());

  const nest11 = () => linked("nest-11/node_modules", "nest-11");
  const nest12 = () => linked("node_modules", "nest-12");
  const refusal = "429 application/problem+json 0";
  for (const [name, folder, options, isHttpException] of [
    ["11, installed", () => path.resolve("nest-11"), [], true],
    ["11, linked", nest11, [], true],
    ["12, linked", nest12, [], true],
    ["12, where ES modules cannot be required", nest12, ["--no-experimental-require-module"], false],
  ]) {
    test(name, async () => {
      const cwd = folder();
      writeFileSync(path.join(cwd, "app.mjs"), PROGRAM);
      const args = [...options, "app.mjs", service.url, name];
      const { stdout } = await promisify(execFile)(process.execPath, args, { cwd });
      const expected = ["200 text/html; charset=utf-8 0", refusal, String(isHttpException)];
      assert.deepEqual(stdout.trim().split("\n"), expected);
    });
  }
});
