// "Raise until…": an override with an end, written into the stored rule.

import { Problem, send } from "../api.js";
import { now } from "../clock.js";
import { button, copyText, field, hidden, options, problemNotice, reasonField } from "../components.js";
import { h, replace, setText } from "../dom.js";
import { count, duration, isNamed, listed, time } from "../format.js";
import { refresh } from "../polling.js";
import { pathOf } from "../rules/store.js";
import { limitWords } from "../rules/words.js";
import { unitOf } from "./bands.js";
import { raisedBands, withOverride, yamlOf } from "./overrides.js";
import { isHidden, readIdentity } from "./parts.js";

/** @import { Context } from "../main.js" */
/** @import { Override } from "./overrides.js" */
/** @import { Subject } from "./subjects.js" */

const HOUR = 3_600_000;
const TIMES = [HOUR, 4 * HOUR, 24 * HOUR, 7 * 24 * HOUR, 30 * 24 * HOUR];
const MOST = 1_000_000_000;

/** Returns the values of an identity, if they are not hidden. @param {Subject} subject */
function valuesOf({ rule, identity, name }) {
  const values = identity ?? rule.key.map((part) => readIdentity(name, rule.key).get(part) ?? "");
  return values.some((value) => value === "" || isHidden(value)) ? null : values;
}

/**
 * Asks for the new limits and their end, and writes them. Where rules cannot be written, shows what to
 * add to them.
 * @param {Pick<Context, "session" | "notify">} context @param {Subject} subject
 * @returns {Promise<void>}
 */
export function raiseDialog({ session, notify }, subject) {
  const { set, rule, name, states } = subject;
  const values = valuesOf(subject);
  const unit = unitOf(rule);
  const obstacle = !session.writable ? `Rules of this service come from ${sourceWords(session.source)}, and are not changed here. `
      + "Add this to the rule there:"
    : session.role !== "admin" ? `Changing rules needs the role admin; you have the role ${session.role}. Add this to the rule:`
    : values === null ? "Only a pseudonym of the identity is known here. Put its real value in its place, and add this to the rule:"
    : "";
  const canWrite = obstacle === "";
  const inputs = rule.bands.map(({ id, capacity }) => {
    const limit = states?.find(({ band }) => band === id)?.limit ?? capacity;
    return h("input", { type: "number", min: 1, max: MOST, step: 1, required: true,
      value: Math.min(MOST, 2 * limit), oninput: show });
  });
  const until = h("select", { onchange: show },
    options(TIMES.map((each) => [String(each), `for ${duration(each)}`]), String(24 * HOUR)));
  const end = h("p.hint");
  const why = reasonField();
  const yaml = h("pre.code.command", { tabindex: 0, role: "region", "aria-label": "The override as YAML" });
  const message = h("div");
  const fields = h("div.stack-small",
    rule.bands.map((band, index) => field(`New limit${isNamed(band.id) ? ` of ${band.id}` : ""}, in ${unit}s`, inputs[index],
      `The rule: ${limitWords(band)}.`)),
    field("Until", until), end,
    canWrite ? why : h("p", obstacle), yaml, message);

  /** @returns {Override} */
  function override() {
    const identity = values ?? rule.key.map((part) => `THE ${part} OF ${name || "THE IDENTITY"}`);
    return {
      identity: identity.length === 1 ? identity[0] : identity,
      until: new Date(Math.ceil((now() + Number(until.value)) / 60_000) * 60_000).toISOString().replace(".000", ""),
      bands: raisedBands(rule.bands, inputs.map((input) => Number(input.value) || 1)),
    };
  }

  function show() {
    const added = override();
    setText(end, `Until ${time(Date.parse(added.until))}. From then on, the limit of the rule applies again.`);
    setText(yaml, yamlOf(added));
  }

  async function write() {
    const added = override();
    const path = pathOf(set, rule.id);
    const stored = await send("GET", path);
    const body = await stored.json();
    const response = await send("PUT", path, {
      body: { ...body, overrides: withOverride(body.overrides, added) },
      headers: { "If-Match": stored.headers.get("ETag") ?? "" }, reason: why.reason(),
    });
    const { detail } = await response.json();
    const limits = listed(added.bands.map(({ capacity }, index) => `${count(Number(capacity), unit)} in place of ${limitWords(rule.bands[index])}`));
    const done = `${name} may use ${limits} of ${set}/${rule.id} until ${time(Date.parse(added.until))}.`;
    if (response.status === 202) notify(`Stored, but not active yet: ${detail}`, "bad");
    else notify(done);
    refresh("/v1/rule_sets");
  }

  return new Promise((resolve) => {
    const onclose = () => {
      dialog.remove();
      resolve();
    };
    const submit = h("button.button.primary", { type: "submit" }, "Raise the limit");
    const copy = button("Copy", () => copyText(yaml.textContent ?? "", (said) => setText(copy, said), "Copied"));
    const onsubmit = async (/** @type {Event} */ event) => {
      event.preventDefault();
      if (!canWrite) return;
      submit.disabled = true;
      try {
        await write();
        dialog.close();
      } catch (error) {
        const isChanged = error instanceof Problem && error.status === 412;
        replace(message, problemNotice(isChanged ? "Somebody else has just changed this rule. Look at it, and try again." : error));
      }
      submit.disabled = false;
    };
    const dialog = h("dialog.dialog", { "aria-labelledby": "dialog-title", onclose }, h("form.stack-small", { onsubmit },
      h("h2", { id: "dialog-title" }, `Raise the limit of ${set}/${rule.id}`, hidden(`for ${name}`)),
      h("p", `For ${name || "this identity"} only.`), fields,
      h("div.actions", button(canWrite ? "Cancel" : "Close", () => dialog.close()), canWrite ? submit : copy)));
    show();
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** @param {string} source */
const sourceWords = (source) => ({
  file: "its configuration file", dir: "a directory of rule files", http: "a server",
  mongodb: "MongoDB", demo: "the built-in demo",
}[source] ?? source);
