// Takes the pictures of the console for the documents: node screenshots.mjs FOLDER

import { writeFileSync } from "node:fs";

import { launch } from "./browser.mjs";
import { startService } from "./service.mjs";

/** How long the demo sends traffic before the overview is taken. */
const TRAFFIC_MS = 45_000;
const [folder] = process.argv.slice(2);
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

const service = await startService({ demo: true });
const browser = await launch();
try {
  const page = await browser.page();
  await page.view({ width: 1280, height: 800 });
  await page.media({ scheme: "light" });
  await page.goto(service.url("#/overview"));
  await page.find("heading", "Overview");
  await page.click("button", "Send demo traffic");
  await pause(TRAFFIC_MS);
  const take = async (name) => {
    const { data } = await page.send("Page.captureScreenshot", { format: "webp", quality: 90 });
    writeFileSync(`${folder}/console-${name}.webp`, Buffer.from(data, "base64"));
  };
  await take("overview");
  await page.goto(service.url("#/rules?view=edit"));
  const text = await page.find("textbox", "Rules in YAML");
  await text.fill((await text.value()).replace("capacity: 5", "capacity: 3"));
  await page.click("button", "Try it");
  await page.find("table", "Totals before and after");
  // The changes and the trial, one below the other.
  await page.view({ width: 1280, height: 1200 });
  await page.evaluate(() => document.querySelector(".bench").scrollIntoView());
  await page.evaluate(() => scrollBy(0, -150));
  await pause(1_000);
  await take("rules");
  await page.view({ width: 1280, height: 800 });
  await page.goto(service.url("#/lab"));
  await page.find("heading", "Lab");
  await pause(2_000);
  await take("lab");
} finally {
  await browser.close();
  await service.end();
}
