// Pieces that every view uses.

import { h } from "./dom.js";
import { Problem } from "./api.js";
import { share } from "./format.js";

/** @typedef {import("./dom.js").Child} Child */
/** @typedef {"good" | "bad" | "warn" | "info" | "quiet"} Kind */

/**
 * @param {string} text
 * @param {(event: MouseEvent) => void} onclick
 * @param {{kind?: "primary" | "danger" | "plain", disabled?: boolean, title?: string}} [options]
 * @returns {HTMLButtonElement}
 */
export function button(text, onclick, { kind = "plain", disabled = false, title } = {}) {
  return h("button", { type: "button", class: `button ${kind}`, disabled, title, onclick }, text);
}

/**
 * @param {string} title
 * @param {...(Child | Child[])} children
 * @returns {HTMLElement}
 */
export function card(title, ...children) {
  return h("section", { class: "card" }, h("h2", {}, title), ...children);
}

/**
 * A control with its label. The hint is part of the label, so that it is read out too.
 * @param {string} label
 * @param {HTMLElement} input
 * @param {string} [hint]
 * @returns {HTMLLabelElement}
 */
export function field(label, input, hint) {
  return h(
    "label",
    { class: "field" },
    h("span", { class: "field-label" }, label),
    input,
    hint && h("span", { class: "hint" }, hint),
  );
}

/**
 * @param {string} text
 * @param {Kind} [kind]
 * @returns {HTMLSpanElement}
 */
export function badge(text, kind = "quiet") {
  return h("span", { class: `badge ${kind}` }, text);
}

/**
 * A message in the page. A bad one is read out at once.
 * @param {Kind} kind
 * @param {...(Child | Child[])} children
 * @returns {HTMLDivElement}
 */
export function notice(kind, ...children) {
  const role = kind === "bad" ? "alert" : "status";
  return h("div", { class: `notice ${kind}`, role }, ...children);
}

/**
 * What a view shows instead of data, and what to do next.
 * @param {string} title
 * @param {Child} text
 * @param {...Child} actions
 * @returns {HTMLDivElement}
 */
export function empty(title, text, ...actions) {
  return h(
    "div",
    { class: "empty" },
    h("p", { class: "empty-title" }, title),
    text && h("p", {}, text),
    actions.length > 0 && h("div", { class: "actions" }, actions),
  );
}

/** @typedef {HTMLDivElement & {update: (used: number, limit: number) => void}} Gauge */

/**
 * A bar of `used` out of `limit`. `update` changes it in place.
 * @param {number} used
 * @param {number} limit
 * @param {string} label what is measured, for screen readers
 * @returns {Gauge}
 */
export function gauge(used, limit, label) {
  const bar = h("div", { class: "gauge-bar" });
  const element = h("div", {
    class: "gauge",
    role: "meter",
    "aria-label": label,
    "aria-valuemin": 0,
  }, bar);
  /** @param {number} used @param {number} limit */
  function update(used, limit) {
    const part = limit > 0 ? Math.min(1, Math.max(0, used / limit)) : 1;
    element.setAttribute("aria-valuemax", String(limit));
    element.setAttribute("aria-valuenow", String(Math.min(used, limit)));
    element.setAttribute("aria-valuetext", `${share(part)} used`);
    element.dataset.level = part >= 1 ? "full" : part >= 0.8 ? "high" : "low";
    bar.style.setProperty("--part", part.toFixed(4));
  }
  update(used, limit);
  return Object.assign(element, { update });
}

/**
 * Asks before an action that cannot be undone. Escape and Cancel are `false`.
 * @param {string} title
 * @param {Child} text
 * @param {string} action the label of the button that confirms
 * @returns {Promise<boolean>}
 */
export function confirmDialog(title, text, action) {
  return new Promise((resolve) => {
    const dialog = h("dialog", { class: "dialog", "aria-labelledby": "dialog-title" });
    dialog.append(
      h("h2", { id: "dialog-title" }, title),
      h("p", {}, text),
      h(
        "div",
        { class: "actions end" },
        button("Cancel", () => dialog.close()),
        button(action, () => dialog.close("yes"), { kind: "danger" }),
      ),
    );
    dialog.addEventListener("close", () => {
      resolve(dialog.returnValue === "yes");
      dialog.remove();
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/**
 * Shows an error of the API as the API says it.
 * @param {unknown} error
 * @returns {HTMLDivElement}
 */
export function problemNotice(error) {
  if (!(error instanceof Problem)) return notice("bad", h("p", {}, String(error)));
  const faults = error.faults ?? [];
  return notice(
    "bad",
    h("p", {}, error.status > 0 && h("strong", {}, `${error.status} `), error.message),
    faults.length > 0 &&
      h("ul", {}, faults.map(({ line, column, message }) =>
        h("li", {}, line > 0 && h("span", { class: "mono" }, `${line}:${column} `), message))),
  );
}

/**
 * A table in a wrapper that scrolls sideways on narrow screens. The first cell of a row is its
 * header. A row is an array of cells; a header may be `{text, numeric}` to align its column.
 * @param {(string | {text: string, numeric?: boolean})[]} headers
 * @param {(Child | Child[])[][]} rows
 * @param {{caption?: string}} [options] the caption is read out, not shown
 * @returns {HTMLDivElement}
 */
export function table(headers, rows, { caption } = {}) {
  const columns = headers.map((header) => (typeof header === "string" ? { text: header } : header));
  /** @param {number} index */
  const align = (index) => (columns[index]?.numeric ? "numeric" : null);
  return h(
    "div",
    { class: "table-scroll", tabindex: 0, role: "region", "aria-label": caption ?? "Table" },
    h(
      "table",
      { class: "list" },
      caption && h("caption", { class: "visually-hidden" }, caption),
      h("thead", {}, h("tr", {}, columns.map(({ text }, index) =>
        h("th", { scope: "col", class: align(index) }, text)))),
      h("tbody", {}, rows.map((row) => tableRow(row, align))),
    ),
  );
}

/**
 * @param {(Child | Child[])[]} cells
 * @param {(index: number) => string | null} align
 */
function tableRow(cells, align) {
  return h("tr", {}, cells.map((cell, index) => {
    const children = Array.isArray(cell) ? cell : [cell];
    return index === 0
      ? h("th", { scope: "row" }, children)
      : h("td", { class: align(index) }, children);
  }));
}

/**
 * A choice between a few values, as a row of buttons.
 * @template {string} T
 * @param {string} label
 * @param {readonly (readonly [T, string])[]} choices values and their labels
 * @param {T} value
 * @param {(value: T) => void} onChange
 * @returns {HTMLDivElement}
 */
export function segmented(label, choices, value, onChange) {
  const element = h("div", { class: "segmented", role: "group", "aria-label": label });
  for (const [choice, text] of choices) {
    const option = h("button", {
      type: "button",
      "aria-pressed": String(choice === value),
      onclick: () => {
        for (const other of element.children) {
          other.setAttribute("aria-pressed", String(other === option));
        }
        onChange(choice);
      },
    }, text);
    element.append(option);
  }
  return element;
}

/**
 * A line to copy, such as a command.
 * @param {string} text
 * @returns {HTMLDivElement}
 */
export function codeLine(text) {
  const copy = button("Copy", async () => {
    await navigator.clipboard.writeText(text);
    copy.textContent = "Copied";
    setTimeout(() => (copy.textContent = "Copy"), 2000);
  });
  const code = h("pre", { class: "code" }, h("code", {}, text));
  // The clipboard needs a secure context, which plain HTTP on another host is not.
  return h("div", { class: "code-line" }, code, isSecureContext && copy);
}
