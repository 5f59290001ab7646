// A test with a service and a page of its own, in the browser of its file.

import { after, before, test } from "node:test";

import { launch } from "./browser.mjs";
import { startService } from "./service.mjs";

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser?.close());

/**
 * Defines a test. `body` gets the page and the service, which is started with `options`. It fails
 * if the page logs an error, violates its policy or asks another origin for anything.
 */
export function browserTest(name, options, body) {
  test(name, { timeout: options.timeout ?? 300_000 }, async (context) => {
    const service = await startService(options);
    let page;
    try {
      page = await browser.page();
      await body(page, service, context);
      page.check(service.origin);
    } catch (error) {
      const shots = process.env.FLUXGATE_SHOTS;
      if (shots && page) await page.screenshot(`${shots}/${name.replace(/\W+/g, "-")}.png`);
      throw error;
    } finally {
      await page?.close();
      await service.end();
    }
  });
}

/** Opens a view, and waits until it has its heading. */
export async function open(page, service, hash, heading) {
  await page.goto(service.url(hash));
  await page.find("heading", heading);
}

/** Confirms the dialog that is open. */
export async function confirm(page, action) {
  const dialog = await page.find("dialog");
  await page.click("button", action, dialog);
  await page.gone("dialog");
}

/** Logs in with a token: the name of a role. */
export async function logIn(page, token) {
  const field = await page.find("textbox", /^Token/);
  await field.fill(token);
  await page.press("Enter");
  await page.find("navigation", "Main");
}
