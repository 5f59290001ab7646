// Pieces that every view uses.

import { Problem } from "./api.js";
import { h, replace, set, setText } from "./dom.js";
import { ago, number, share, time } from "./format.js";
import { repeat } from "./polling.js";

/** @import { Child, Part } from "./dom.js" */
/** @typedef {"good" | "bad" | "warn" | "info" | "quiet"} Kind */

/**
 * @param {string} text @param {() => void} onclick
 * @param {{kind?: "primary" | "danger" | "plain", of?: string}} [options] `of` is read out too
 */
export const button = (text, onclick, { kind = "plain", of } = {}) =>
  h(`button.button.${kind}`, { type: "button", onclick }, text, hidden(of));

/** @param {string} text */
export const submitButton = (text) => h("button.button.primary", { type: "submit" }, text);

/** @param {string | undefined} text */
export const hidden = (text) => text && h("span.visually-hidden", ` ${text}`);

/** @param {string} title @param {Child[]} text @param {...Child} actions */
export function pageHead(title, text, ...actions) {
  return h("div.page-head", h("div", h("h1", title), text.length > 0 && h("p.quiet", text)),
    h("div.actions", actions));
}

/** @param {string} title @param {...Part} children */
export const card = (title, ...children) => h("section.card", h("h2", title), ...children);

/**
 * The hint is part of the label, so that it is read out too.
 * @param {string} label @param {HTMLElement} input @param {string} [hint]
 */
export const field = (label, input, hint) =>
  h("label.field", h("span.field-label", label), input, hint && h("span.hint", hint));

/** An input whose text a browser must not correct. @param {Part} attributes */
export function textInput(attributes) {
  const plain = { type: "text", autocomplete: "off", autocapitalize: "none", spellcheck: "false" };
  return h("input", plain, attributes);
}

/** @param {string} text @param {Kind} [kind] */
export const badge = (text, kind = "quiet") => h(`span.badge.${kind}`, text);

/** A message in the page. A bad one is read out at once. @param {Kind} kind @param {...Part} children */
export const notice = (kind, ...children) =>
  h(`div.notice.${kind}`, { role: kind === "bad" ? "alert" : "status" }, ...children);

/** @param {string} title @param {string} text */
export const empty = (title, text) => h("div.empty", h("p.empty-title", title), h("p", text));

/** A bar of `used` out of `limit`, which `update` sets. @param {string} label */
export function gauge(label) {
  const bar = h("div.gauge-bar");
  const element = h("div.gauge", { role: "meter", "aria-label": label, "aria-valuemin": 0 }, bar);
  /** @param {number} used @param {number} limit */
  function update(used, limit) {
    const part = limit > 0 ? Math.min(1, Math.max(0, used / limit)) : 1;
    set(element, {
      "aria-valuemax": limit,
      "aria-valuenow": Math.min(used, limit),
      "aria-valuetext": `${share(part)} used`,
      "data-level": part >= 1 ? "full" : part >= 0.8 ? "high" : "low",
    });
    bar.style.setProperty("--part", part.toFixed(4));
  }
  update(0, 1);
  return Object.assign(element, { update });
}

/** A field for the reason of a change. */
export function reasonField() {
  const input = textInput({ name: "reason", maxlength: 500, autocomplete: "on" });
  return Object.assign(field("Reason", input, "Optional. Shown under Events, and kept in the audit log."),
    { reason: () => input.value.trim() });
}

/**
 * Asks before a change, and why it is made: the audit log keeps the reason. Escape and Cancel are
 * `null`.
 * @param {string} title @param {Part} text @param {string} action
 * @param {{kind?: "primary" | "danger", asksWhy?: boolean}} [options]
 * @returns {Promise<{reason: string} | null>}
 */
export function reasonDialog(title, text, action, { kind = "danger", asksWhy = true } = {}) {
  return new Promise((resolve) => {
    const why = reasonField();
    const onclose = () => {
      resolve(dialog.returnValue === "yes" ? { reason: why.reason() } : null);
      dialog.remove();
    };
    const onsubmit = (/** @type {Event} */ event) => {
      event.preventDefault();
      dialog.close("yes");
    };
    const dialog = h("dialog.dialog", { "aria-labelledby": "dialog-title", onclose },
      h("form", { onsubmit },
        h("h2", { id: "dialog-title" }, title),
        typeof text === "string" ? h("p", text) : text,
        asksWhy && why,
        h("div.actions",
          button("Cancel", () => dialog.close()),
          h(`button.button.${kind}`, { type: "submit" }, action))));
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** @param {unknown} error */
export function problemNotice(error) {
  const { faults = [] } = error instanceof Problem ? error : {};
  return notice("bad", h("p", String(error)),
    faults.length > 0 && h("ul", faults.map(({ line, column, message }) =>
      h("li", line > 0 && h("span.mono", `${line}:${column} `), message))));
}

/**
 * A place for what `load` returns. If that fails, the place says so and loads again by itself; and it
 * loads again whenever the rules have changed.
 * @param {Pick<import("./main.js").Context, "signal" | "live">} context
 * @param {(signal: AbortSignal) => Promise<Child>} load
 * @param {{followsRules?: boolean}} [options]
 */
export function reloading({ signal, live }, load, { followsRules = true } = {}) {
  const place = h("div", h("p.quiet", "Loading…"));
  const { run } = repeat(signal, 3000, async (current) => {
    try {
      replace(place, await load(current));
      return true;
    } catch (error) {
      if (current.aborted) return;
      replace(place, problemNotice(error), h("p.hint", "It is tried again every few seconds."));
      throw error;
    }
  });
  if (followsRules) live.onRules(signal, run);
  return { element: place, reload: run };
}

/**
 * Calls `read` again and again while the page is visible. `problem` shows what goes wrong, unless
 * the service does not answer, which the header says.
 * @param {AbortSignal} signal @param {number} pause @param {(signal: AbortSignal) => Promise<void>} read
 */
export function poll(signal, pause, read) {
  const problem = h("div");
  const { run } = repeat(signal, pause, async (current) => {
    try {
      await read(current);
      replace(problem);
    } catch (error) {
      if (!current.aborted) showProblem(problem, error);
      throw error;
    }
  });
  return { problem, run };
}

/**
 * Shows a problem of a view in its place, or that there is none. That the service does not answer is
 * said by the header. @param {Element} place @param {unknown} error `null`: none
 */
export function showProblem(place, error) {
  const isSilent = error instanceof Problem && error.status === 0;
  if (error === null) replace(place);
  else if (!isSilent && place.textContent !== String(error)) replace(place, problemNotice(error));
  if (isSilent || error === null) return;
  for (const each of place.parentElement?.querySelectorAll("p") ?? []) {
    if (each.textContent === "Loading…") each.textContent = "It is tried again every few seconds.";
  }
}

/** A time with its zone, that programs can read too. @param {number} milliseconds */
export const timeTag = (milliseconds) =>
  h("time", { datetime: new Date(milliseconds).toISOString() }, time(milliseconds));

/** How long ago a time is, which `refreshAges` keeps current. @param {number} milliseconds */
export const ageTag = (milliseconds) => h("span.hint", { "data-at": milliseconds }, ago(milliseconds));

/** @param {Element} within */
export function refreshAges(within) {
  for (const each of within.querySelectorAll("[data-at]")) setText(each, ago(Number(each.getAttribute("data-at"))));
}

/**
 * A button that shows and hides `place`, which is filled when it is first shown.
 * @param {string} text @param {HTMLElement} place @param {() => Part} content @param {string} [of]
 */
export function disclosure(text, place, content, of) {
  const element = button(text, () => show(Boolean(place.hidden)), { of });
  /** @param {boolean} shown */
  function show(shown) {
    place.hidden = !shown;
    set(element, { "aria-expanded": String(shown) });
    if (shown && !place.firstChild) replace(place, content());
  }
  show(false);
  return element;
}

/**
 * A table whose rows are stacked on phones, each cell with the name of its column. Columns are numbers
 * from `numericFrom` on.
 * @param {string} caption @param {string[]} headers @param {Part[][]} rows
 * @param {number} [numericFrom]
 */
export function table(caption, headers, rows, numericFrom = Infinity) {
  const numeric = (/** @type {number} */ column) => ({ class: column >= numericFrom && "numeric" });
  // The roles stay when the style makes blocks of the rows.
  const size = headers.length > 6 ? ".many" : headers.length < 5 ? ".few" : "";
  return h(`div.table-scroll${size}`, { tabindex: 0, role: "region", "aria-label": caption },
    h("table.list", { role: "table" },
      h("caption.visually-hidden", caption),
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, headers.map((text, column) =>
        h("th", { scope: "col", role: "columnheader" }, numeric(column), text)))),
      h("tbody", { role: "rowgroup" }, rows.map((row) => h("tr", { role: "row" }, row.map((content, column) =>
        h(column === 0 ? "th" : "td",
          { scope: column === 0 && "row", role: column === 0 ? "rowheader" : "cell", "data-label": headers[column] },
          numeric(column), h("div", typeof content === "number" ? number(content, 1) : content))))))));
}

/**
 * @template {string} T
 * @param {string} label @param {readonly (readonly [T, string])[]} choices values and their labels
 * @param {T} value @param {(value: T) => void} onChange
 */
export function segmented(label, choices, value, onChange) {
  const buttons = choices.map(([choice, text]) => h("button", { type: "button", onclick() {
    select(choice);
    onChange(choice);
  } }, text));
  /** @param {T} chosen */
  function select(chosen) {
    buttons.forEach((each, index) => set(each, { "aria-pressed": String(choices[index][0] === chosen) }));
  }
  select(value);
  return Object.assign(h("div.segmented", { role: "group", "aria-label": label }, buttons), { select });
}

/** The same as a field, below its label. @type {(...of: Parameters<typeof segmented>) => HTMLElement} */
export const segmentedField = (label, ...rest) =>
  h("div.field", h("span.field-label", { "aria-hidden": "true" }, label), segmented(label, ...rest));

/** @param {readonly (readonly [string, string])[]} choices values and their texts @param {string | null} [chosen] */
export const options = (choices, chosen) =>
  choices.map(([value, text]) => h("option", { value, selected: value === chosen }, text));

/** @param {{set: string, rule: {id: string}}[]} rules @param {() => void} onchange @param {string | null} [chosen] */
export const ruleChoice = (rules, onchange, chosen) => h("select", { onchange }, options([["", "all rules"],
  ...rules.map(({ set, rule: { id } }) => /** @type {const} */ ([`${set}/${id}`, `${set} / ${id}`]))], chosen));

/** @param {string} text @param {import("./main.js").Context["notify"]} notify @param {string} done */
export async function copyText(text, notify, done) {
  try {
    await navigator.clipboard.writeText(text);
    notify(done);
  } catch {
    // There is no clipboard over plain HTTP from another host, or it is not permitted.
    notify("The browser does not allow copying here.", "bad");
  }
}

/** @param {string} text */
export function codeLine(text) {
  const copy = button("Copy", () => copyText(text, (said) => (copy.textContent = said), "Copied"));
  return h("div.row", h("pre.code.command", h("code", text)), copy);
}
