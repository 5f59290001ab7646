// The frame around the views: session, navigation, theme, and the state of the connection.

import { get, Problem, token } from "./api.js";
import { badge, button, empty, notice, problemNotice } from "./components.js";
import { h, replace } from "./dom.js";
import { time } from "./format.js";
import { icon } from "./icons.js";
import { LiveFeed } from "./live.js";
import { login } from "./login.js";

/** @typedef {{
 *   name: string, role: "viewer" | "operator" | "admin", tokens: boolean, demo: boolean,
 *   version: string, instance: string, source: "file" | "directory" | "redis" | "demo",
 *   writable: boolean, records: boolean, identities: boolean,
 * }} Session */

/**
 * What a view gets. `signal` aborts when the view is left.
 * @typedef {{
 *   session: Session, params: URLSearchParams, signal: AbortSignal, live: LiveFeed,
 *   navigate: (hash: string) => void, notify: (text: string, kind?: "good" | "bad") => void,
 * }} Context
 */

/** @typedef {{element: HTMLElement, dispose?: () => void}} View */
/** @typedef {(context: Context) => View} MakeView */

/** @type {{route: string, label: string, load: () => Promise<{view: MakeView}>}[]} */
const VIEWS = [
  { route: "overview", label: "Overview", load: () => import("./overview.js") },
  { route: "rules", label: "Rules", load: () => import("./rules.js") },
  { route: "identities", label: "Identities", load: () => import("./identities.js") },
  { route: "lab", label: "Lab", load: () => import("./lab.js") },
  { route: "instances", label: "Instances", load: () => import("./instances.js") },
];

const THEMES = ["system", "light", "dark"];

const app = /** @type {HTMLElement} */ (document.getElementById("app"));
const toasts = h("div", {
  class: "toasts", role: "region", "aria-label": "Messages", "aria-live": "polite",
});
document.body.append(toasts);

/** Ends what the current session shows. */
let leave = () => {};

/** Asks who we are, and shows the console, the login form or what is wrong. */
async function start() {
  leave();
  let session;
  try {
    session = await get("/v1/session");
  } catch (error) {
    if (error instanceof Problem && error.status === 401) return showLogin(token.get() && error);
    return showUnreachable(error);
  }
  showConsole(session);
}

/** @param {unknown} problem */
function showLogin(problem) {
  leave();
  token.clear();
  document.title = "Log in · FluxGate";
  replace(app, login(problem, start));
  app.querySelector("input")?.focus();
}

/** @param {unknown} error */
function showUnreachable(error) {
  document.title = "Not connected · FluxGate";
  const retry = setTimeout(start, 2000);
  leave = () => clearTimeout(retry);
  if (app.querySelector(".unreachable")) return;
  replace(app, h("main", { class: "login" }, h(
    "div", { class: "card unreachable" },
    h("h1", { class: "brand" }, h("img", { src: "icon.svg", alt: "", width: 28, height: 28 }),
      "FluxGate console"),
    empty("The console could not start", "It tries again every two seconds.",
      button("Try now", start, { kind: "primary" })),
    problemNotice(error),
  )));
}

/** @param {Session} session */
function showConsole(session) {
  const closed = new AbortController();
  const connection = h("span", { class: "connection", "data-state": "connecting" }, "Connecting");
  const lost = h("div", { class: "lost", role: "alert", hidden: true });
  const main = h("main", { id: "view", tabindex: -1 });
  const links = VIEWS.map(({ route, label }) =>
    h("a", { href: `#/${route}`, "data-route": route }, icon(route), label));

  const live = new LiveFeed((state) => {
    const name = state === null ? "live" : "lost";
    if (connection.dataset.state === name) return;
    connection.dataset.state = name;
    connection.textContent = state === null ? "Live" : "Offline";
    lost.hidden = state === null;
    if (!state) return;
    const since = live.latest ? ` The page shows the state of ${time(live.latest.at_ms)}.` : "";
    const why = state.status > 0 ? `${state.status} ${state.message} ` : "";
    replace(lost, h("p", {}, h("strong", {}, "Connection lost. "), why,
      `The console tries to connect every second.${since}`));
  });

  const frame = [
    h("a", { class: "skip", href: "#view", onclick: skipTo(main) }, "Skip to content"),
    h("header", { class: "top" },
      h("div", { class: "top-inner" },
        h("a", { class: "brand", href: "#/overview" },
          h("img", { src: "icon.svg", alt: "", width: 26, height: 26 }), h("span", {}, "FluxGate")),
        h("nav", { class: "nav", "aria-label": "Main" }, links),
        h("div", { class: "who" },
          connection,
          h("span", { class: "who-name", title: session.name }, session.name),
          badge(session.role, "quiet"),
          themeSwitch(),
          token.get() && logOut()),
      ),
      lost),
    main,
  ];
  replace(app, ...frame);

  let stopView = () => {};
  const showView = async () => {
    stopView();
    const left = new AbortController();
    stopView = () => left.abort();
    const [route, query = ""] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s);
    const found = VIEWS.find((entry) => entry.route === route) ?? VIEWS[0];
    for (const link of links) {
      if (link.dataset.route === found.route) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    document.title = `${found.label} · FluxGate`;
    let element;
    try {
      const { view } = await found.load();
      if (left.signal.aborted) return;
      const params = new URLSearchParams(query);
      const made = view({ session, params, signal: left.signal, live, navigate, notify });
      left.signal.addEventListener("abort", () => made.dispose?.());
      element = made.element;
    } catch (error) {
      if (left.signal.aborted) return;
      console.error(error);
      element = h("div", { class: "stack" }, h("h1", {}, found.label),
        notice("bad", `This view could not be shown: ${error}`),
        h("div", { class: "actions" }, button("Reload the page", () => location.reload())));
    }
    const isFirst = main.childElementCount === 0;
    replace(main, element);
    const heading = main.querySelector("h1");
    heading?.setAttribute("tabindex", "-1");
    // The first view leaves the focus where a page load puts it.
    if (isFirst) return;
    scrollTo(0, 0);
    heading?.focus({ preventScroll: true });
  };
  addEventListener("hashchange", showView, { signal: closed.signal });
  addEventListener("unauthorized", (event) => {
    showLogin(/** @type {CustomEvent} */ (event).detail);
  }, { signal: closed.signal });
  leave = () => {
    closed.abort();
    stopView();
    live.close();
  };
  showView();
}

/**
 * The hash is the route, so the skip link moves the focus itself.
 * @param {HTMLElement} target
 */
function skipTo(target) {
  return (/** @type {Event} */ event) => {
    event.preventDefault();
    target.focus();
  };
}

/** @param {string} hash */
function navigate(hash) {
  location.hash = hash;
}

function logOut() {
  const onclick = () => {
    token.clear();
    start();
  };
  return h("button", {
    type: "button", class: "icon-button log-out", title: "Log out", "aria-label": "Log out", onclick,
  }, icon("logout"));
}

function themeSwitch() {
  const root = document.documentElement;
  const element = h("button", { type: "button", class: "icon-button", onclick: () => show(next()) });
  const next = () => THEMES[(THEMES.indexOf(root.dataset.theme ?? "system") + 1) % THEMES.length];
  /** @param {string} theme */
  function show(theme) {
    root.dataset.theme = theme;
    try {
      localStorage.setItem("fluxgate.theme", theme);
    } catch {
      // Without storage, the choice lasts until the page is reloaded.
    }
    const text = `Theme: ${theme}. Switch to ${next()}.`;
    element.title = text;
    element.setAttribute("aria-label", text);
    replace(element, icon(theme));
  }
  show(root.dataset.theme ?? "system");
  return element;
}

/**
 * Shows a message for some seconds.
 * @param {string} text
 * @param {"good" | "bad"} [kind]
 */
function notify(text, kind = "good") {
  const onclick = () => toast.remove();
  const toast = notice(kind, h("div", {}, text), h("button", {
    type: "button", class: "icon-button", "aria-label": "Close the message", onclick,
  }, icon("close")));
  toasts.append(toast);
  while (toasts.childElementCount > 3) toasts.firstElementChild?.remove();
  setTimeout(() => toast.remove(), kind === "bad" ? 12_000 : 6000);
}

start();
