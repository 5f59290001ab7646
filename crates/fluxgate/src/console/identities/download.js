// A link to a file of the API. With a token, the file is read first: a link alone cannot send one.

import { send, token } from "../api.js";
import { h } from "../dom.js";

/** @import { Context } from "../main.js" */

/**
 * @param {string} text @param {string} file its name @param {() => string} path
 * @param {Context["notify"]} notify
 */
export function downloadLink(text, file, path, notify) {
  const link = h("a.button", { href: path(), download: file, onclick: click }, text);

  /** @param {Event} event */
  async function click(event) {
    link.href = path();
    if (!token.get()) return;
    event.preventDefault();
    try {
      const content = await (await send("GET", path())).blob();
      const url = URL.createObjectURL(content);
      h("a", { href: url, download: file }).click();
      URL.revokeObjectURL(url);
    } catch (error) {
      notify(`The file could not be read: ${error}`, "bad");
    }
  }
  return link;
}
