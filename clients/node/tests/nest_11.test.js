// NestJS 11 consists of CommonJS modules, later versions of ES modules.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { writeFileSync } from "node:fs";
import { test } from "node:test";
import { promisify } from "node:util";

import { Service } from "./support/service.js";

const PROGRAM = `
import "reflect-metadata";
import * as nest from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import { Client } from "fluxgate";
import { rateLimit } from "fluxgate/nest";

class Routes {
  get() {
    return "ok";
  }
}
nest.Controller()(Routes);
nest.Get()(Routes.prototype, "get", Object.getOwnPropertyDescriptor(Routes.prototype, "get"));
class App {}
nest.Module({ controllers: [Routes] })(App);
const client = new Client(process.argv[2], { deadline: 2000 });
const app = await NestFactory.create(App, { logger: false });
app.useGlobalGuards(rateLimit({ client, ruleSet: "api" }));
await app.listen(0, "127.0.0.1");
const url = await app.getUrl();
for (let at = 0; at < 2; at += 1) {
  const { status, headers } = await fetch(url);
  console.log(status, headers.get("content-type"), headers.get("x-ratelimit-remaining"));
}
await app.close();
await client.close();
`;

test("NestJS 11", async () => {
  const service = await Service.start(
    'listen: { api: "${API}" }\nrule_sets: { api: { rules: [ { id: r, scope: per_ip, bands: [1/h] } ] } }\n',
  );
  try {
    writeFileSync("nest-11/app.js", PROGRAM);
    const run = promisify(execFile);
    const { stdout } = await run(process.execPath, ["app.js", service.url], { cwd: "nest-11" });
    assert.equal(stdout, "200 text/html; charset=utf-8 0\n429 application/problem+json 0\n");
  } finally {
    await service.stop();
  }
});
