import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";

for (const compiler of ["typescript", "typescript5"]) {
  test(`the declarations compile as users write against them: ${compiler}`, () => {
    const args = [`node_modules/${compiler}/bin/tsc`, "-p", "tests/types"];
    const { stdout } = spawnSync(process.execPath, args, { encoding: "utf8" });
    // Declarations of other packages may not fit together.
    const isForeign = (line) => /^node_modules\/(?!fluxgate\/)/.test(line);
    const errors = stdout.split("\n").filter((line) => line !== "" && !isForeign(line));
    assert.deepEqual(errors, []);
  });
}
