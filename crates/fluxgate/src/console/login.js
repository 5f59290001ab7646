// The form that asks for a token.

import { get, token } from "./api.js";
import { button, field, problemNotice } from "./components.js";
import { h, replace } from "./dom.js";

/**
 * @param {unknown} problem why the token in use was not accepted, if there was one
 * @param {() => void} onLogin
 * @returns {HTMLElement}
 */
export function login(problem, onLogin) {
  const input = h("input", {
    type: "password", name: "token", required: true, autocomplete: "off", spellcheck: "false",
  });
  const message = h("div", {}, problem ? problemNotice(problem) : null);
  const submit = button("Log in", () => {}, { kind: "primary" });
  submit.type = "submit";

  /** @param {SubmitEvent} event */
  async function onsubmit(event) {
    event.preventDefault();
    submit.disabled = true;
    token.set(input.value.trim());
    try {
      await get("/v1/session");
      onLogin();
    } catch (error) {
      token.clear();
      replace(message, problemNotice(error));
      input.select();
      input.focus();
    } finally {
      submit.disabled = false;
    }
  }

  return h(
    "main",
    { class: "login" },
    h(
      "form",
      { class: "card", onsubmit },
      h("h1", { class: "brand" }, h("img", { src: "icon.svg", alt: "", width: 28, height: 28 }),
        "FluxGate console"),
      message,
      field("Token", input, "One of the tokens in admin.tokens_file. It is kept until this tab is closed."),
      submit,
    ),
  );
}
