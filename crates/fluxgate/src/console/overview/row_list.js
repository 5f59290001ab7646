// Lists of rows that update in place, and do not change places under the pointer or the focus.

import { gauge } from "../components.js";
import { h, set, setText } from "../dom.js";

/** A row. `part` is the length of its bar, from 0 to 1; without `bar`, which says what it is, it only
 * compares rows. @typedef {{
 *   key: string, name: string, href: string, value: string, rule?: string, ruleHref?: string,
 *   detail: string, part?: number, bar?: string,
 * }} Row */

/** @param {number} most how many rows there are */
export function rowList(most) {
  const rows = Array.from({ length: most }, makeRow);
  const element = h("ol.rows", rows.map((row) => row.element));
  /** @type {string[]} */
  let order = [];
  /** @param {Row[]} next */
  function show(next) {
    next = next.slice(0, most);
    if (element.matches(":hover, :focus-within")) {
      const place = (/** @type {Row} */ { key }) => (order.includes(key) ? order.indexOf(key) : most);
      next = next.toSorted((a, b) => place(a) - place(b));
    }
    order = next.map(({ key }) => key);
    rows.forEach((row, index) => row.show(next[index]));
  }
  return { element, show };
}

function makeRow() {
  const name = h("a.row-name");
  const value = h("span.row-value");
  const rule = h("a.row-rule");
  const detail = h("span.row-detail");
  const bar = gauge("");
  const element = h("li.row-item", { hidden: true }, name, value, bar, h("span.hint.row-more", rule, detail));
  /** @param {Row | undefined} row */
  function show(row) {
    element.hidden = !row;
    if (!row) return;
    setText(name, row.name);
    set(name, { href: row.href, title: row.name });
    setText(value, row.value);
    rule.hidden = !row.rule;
    setText(rule, row.rule ?? "");
    set(rule, { href: row.ruleHref ?? row.href });
    setText(detail, row.detail);
    bar.hidden = row.part === undefined;
    set(bar, row.bar ? { "aria-label": row.bar } : { "aria-hidden": "true" });
    bar.update(row.part ?? 0, 1);
  }
  return { element, show };
}
