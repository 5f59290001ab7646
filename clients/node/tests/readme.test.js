// Runs the programs of the README as they stand there.

import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { after, before, describe, test } from "node:test";

import { HOST, freePort } from "./support/host.js";
import { start } from "./support/raw_http.js";
import { Service } from "./support/service.js";
import { until } from "./support/until.js";

const checkout = process.env.FLUXGATE_CHECKOUT;

/** Returns the blocks of a document that are files of this language, by their names. */
function blocksOf(document, kinds) {
  const text = readFileSync(path.join(checkout, document), "utf8");
  const blocks = text.matchAll(/^```(\w+) ?(\S*)\n(.*?)^```$/gms);
  return Array.from(blocks, ([, kind, name, text]) => ({ kind, name, text })).filter(({ kind }) =>
    kinds.includes(kind),
  );
}

const RULES = blocksOf("clients/node/README.md", ["yaml"])[0].text;
const programs = blocksOf("clients/node/README.md", ["js", "ts"]).filter(({ name }) =>
  name.includes("."),
);

describe("the programs of the README", () => {
  let service;
  before(async () => {
    service = await Service.start(RULES.replace("127.0.0.1:8081", "${API}").replace("3/m", "3/h"));
  });
  after(() => service.stop());

  test("there are some", () => assert(programs.length >= 6));

  for (const [at, { name, text }] of programs.entries()) {
    test(name, async () => {
      const port = freePort();
      const folder = path.resolve("documents", String(at));
      mkdirSync(folder, { recursive: true });
      writeFileSync(path.join(folder, "package.json"), '{ "type": "module" }');
      // After the default of 100 ms the programs would fail open on a busy machine.
      const changed = text
        .replace(/"http:\/\/127.0.0.1:8081"(, \{.*\})?/, `"${service.url}", { deadline: 10_000 }`)
        .replace("listen(3000)", `listen(${port}, "${HOST}")`)
        .replace("port: 3000", `port: ${port}, host: "${HOST}"`);
      writeFileSync(path.join(folder, name), changed);
      if (name.endsWith(".ts")) compile(folder, name);
      const child = spawn(process.execPath, [name.replace(/\.ts$/, ".js")], { cwd: folder });
      let errors = "";
      child.stderr.on("data", (chunk) => (errors += chunk));
      const ended = new Promise((resolve) => child.on("close", resolve));
      try {
        if (text.includes(".listen(")) await checkServer(child, port, `${name}-${at}`);
        else assert.equal(await ended, 0);
      } catch (error) {
        throw new Error(`${error.message}; the program printed: ${errors}`);
      } finally {
        child.kill();
        await ended;
      }
    });
  }
});

function compile(folder, name) {
  const options = "--module nodenext --target es2022 --experimentalDecorators --skipLibCheck --strict";
  const tsc = path.resolve("node_modules/typescript/bin/tsc");
  const { status, stdout } = spawnSync(process.execPath, [tsc, ...options.split(" "), name], {
    cwd: folder,
    encoding: "utf8",
  });
  assert.equal(status, 0, stdout);
}

async function checkServer(child, port, user) {
  const send = () => start(port, { path: "/", headers: [["X-User-Id", user]] }).finish();
  let first;
  const answers = async () => {
    assert.equal(child.exitCode, null, "the program has ended");
    first = await send().catch(() => undefined);
    return first !== undefined;
  };
  await until("the program answers", answers, 300);
  const statuses = [first.status];
  for (let at = 0; at < 3; at += 1) statuses.push((await send()).status);
  assert.deepEqual(statuses, [200, 200, 200, 429]);
}
