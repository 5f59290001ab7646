// Prints failures as they happen, the time of each file, and one line at the end.

import path from "node:path";

export default async function* (source) {
  let passed = 0;
  let failed = 0;
  let skipped = 0;
  for await (const { type, data } of source) {
    if (type === "test:stderr" || type === "test:stdout") {
      yield data.message;
      continue;
    }
    if (type !== "test:pass" && type !== "test:fail") continue;
    if (data.details.type === "suite") continue;
    const file = path.basename(data.file ?? "");
    if (type === "test:fail") {
      failed += 1;
      const { error } = data.details;
      yield `failed: ${file}: ${data.name}\n${error?.cause?.stack ?? error?.stack ?? error}\n\n`;
    } else if (data.skip !== undefined) {
      skipped += 1;
      if (typeof data.skip === "string") yield `skipped: ${file}: ${data.name}: ${data.skip}\n`;
    } else {
      passed += 1;
    }
  }
  yield `${passed} passed, ${failed} failed, ${skipped} skipped\n`;
}
