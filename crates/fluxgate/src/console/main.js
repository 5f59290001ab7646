// The frame around the views: session, navigation, theme, and what is wrong.

import { get, Problem, token } from "./api.js";
import {
  badge, button, empty, field, notice, problemNotice, refreshAges, submitButton, textInput,
} from "./components.js";
import { h, replace, svg } from "./dom.js";
import { fleetFeed } from "./fleet.js";
import { capitalized } from "./format.js";
import { health, showConnection } from "./health.js";
import { liveFeed } from "./live.js";
import { forgetAnswers } from "./polling.js";

/** @import { Session } from "./api.js" */
/** @import { FleetFeed } from "./fleet.js" */
/** @import { LiveFeed } from "./live.js" */

/** What a view gets. `signal` aborts when the view is left. @typedef {{
 *   session: Session, params: URLSearchParams, signal: AbortSignal, live: LiveFeed, fleet: FleetFeed,
 *   notify: (text: string, kind?: "good" | "bad") => void,
 * }} Context */

/** @type {Record<string, () => Promise<{view: (context: Context) => {element: HTMLElement}}>>} */
const VIEWS = {
  overview: () => import("./overview.js"),
  rules: () => import("./rules.js"),
  identities: () => import("./identities.js"),
  events: () => import("./events.js"),
  lab: () => import("./lab.js"),
  instances: () => import("./instances.js"),
};
/** Icons as strokes on a grid of 24. @type {Record<string, string>} */
const ICONS = {
  overview: "M3 20h18M5 16l5-6 4 3 5-8",
  rules: "M5 6h14M5 12h14M5 18h8",
  identities: "M12 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8M4.5 20c.8-3.6 3.8-5 7.5-5s6.7 1.4 7.5 5",
  events: "M6 4v16M6 6h.01M10 6h9M6 12h.01M10 12h9M6 18h.01M10 18h6",
  lab: "M9 4h6M10 4v6l-5 8.5A1 1 0 0 0 6 20h12a1 1 0 0 0 1-1.5L14 10V4M7.5 15h9",
  instances: "M4 5h16v5H4zM4 14h16v5H4zM7.5 7.5h.01M7.5 16.5h.01",
  system: "M4 5h16v11H4zM9 20h6M12 16v4",
  light: "M12 16a4 4 0 1 0 0-8 4 4 0 0 0 0 8M12 2v2M12 20v2M2 12h2M20 12h2" +
    "M5 5l1.4 1.4M17.6 17.6 19 19M5 19l1.4-1.4M17.6 6.4 19 5",
  dark: "M20 14.5A8.5 8.5 0 0 1 9.5 4a8.5 8.5 0 1 0 10.5 10.5z",
  logout: "M10 4H5v16h5M15 8l4 4-4 4M19 12H9",
  close: "M6 6l12 12M18 6 6 18",
};
/** The first view comes first. */
const PRELOAD_MS = 1500;
const THEMES = ["system", "light", "dark"];

const app = /** @type {HTMLElement} */ (document.getElementById("app"));
const toasts = h("div.toasts", { role: "region", "aria-label": "Messages", "aria-live": "polite" });
document.body.append(toasts);

let leave = () => {};

async function start() {
  leave();
  try {
    showConsole(await get("/v1/session"));
  } catch (error) {
    if (error instanceof Problem && error.status === 401) showLogin(token.get() && error);
    else showUnreachable(error);
  }
}

/** @param {unknown} problem */
function showLogin(problem) {
  leave();
  token.clear();
  forgetAnswers();
  document.title = "Log in · FluxGate";
  replace(app, login(problem));
  app.querySelector("input")?.focus();
}

/** @param {unknown} error */
function showUnreachable(error) {
  document.title = "Not connected · FluxGate";
  const retry = setTimeout(start, 2000);
  leave = () => clearTimeout(retry);
  if (app.querySelector(".unreachable")) return;
  replace(app, h("main.login", h("div.card.unreachable", brand(),
    empty("The console could not start", "Retrying every two seconds."),
    problemNotice(error), button("Try now", start, { kind: "primary" }))));
}

/** @param {Session} session */
function showConsole(session) {
  const closed = new AbortController();
  const { signal: open } = closed;
  const connection = h("span.connection", { "data-state": "connecting" }, "Connecting");
  const lost = h("div.banners");
  const main = h("main", { id: "view", tabindex: -1 });
  const links = Object.keys(VIEWS).map((route) =>
    h("a", { href: `#/${route}` }, icon(route), h("span", capitalized(route))));

  const live = liveFeed(open, (problem) => {
    const state = problem ? "lost" : "live";
    if (connection.dataset.state !== state) connection.textContent = problem ? "Offline" : "Live";
    connection.dataset.state = state;
    showConnection(live, lost, problem);
  });
  const fleet = fleetFeed(open);
  live.onEvent(open, () => refreshAges(main));
  const { line, banners } = health({ signal: open, live, fleet, session });

  /** The hash is the route, so the skip link moves the focus itself. @param {Event} event */
  const skip = (event) => {
    event.preventDefault();
    main.focus();
  };
  replace(app,
    h("a.skip", { href: "#view", onclick: skip }, "Skip to content"),
    h("header.top",
      h("div.top-inner",
        h("a.brand", { href: "#/overview" }, logo(), h("span", "FluxGate")),
        h("nav.nav", { "aria-label": "Main" }, links),
        h("div.who",
          connection,
          h("span.who-name", session.name),
          badge(session.role),
          themeSwitch(),
          token.get() && iconButton("logout", "Log out", () => {
            token.clear();
            forgetAnswers();
            start();
          })))),
    h("section.below-top", { "aria-label": "State of the service" }, line, lost, banners),
    main);

  let left = new AbortController();
  const showView = async () => {
    left.abort();
    const { signal } = (left = new AbortController());
    const [asked, query] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s);
    const route = Object.hasOwn(VIEWS, asked) ? asked : "overview";
    for (const each of links) each.ariaCurrent = each.hash === `#/${route}` ? "page" : null;
    const title = capitalized(route);
    document.title = `${title} · FluxGate`;
    let element;
    try {
      const { view } = await VIEWS[route]();
      if (signal.aborted) return;
      const params = new URLSearchParams(query);
      ({ element } = view({ session, params, signal, live, fleet, notify }));
    } catch (error) {
      if (signal.aborted) return;
      console.error(error);
      // Its files could not be read; a browser reads them again only with the page.
      if (connection.dataset.state === "lost") live.onEvent(signal, () => location.reload());
      element = h("div.stack", h("h1", title), notice("bad", `This view could not be shown: ${error}`),
        h("div.actions", button("Reload the page", () => location.reload())));
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
  const options = { signal: open };
  addEventListener("hashchange", showView, options);
  addEventListener("unauthorized", (event) => showLogin(/** @type {CustomEvent} */ (event).detail), options);
  leave = () => {
    closed.abort();
    left.abort();
  };
  showView();
  // The other views must open while the service is away.
  const preload = setTimeout(() => Object.values(VIEWS).forEach((load) => load().catch(() => {})), PRELOAD_MS);
  open.addEventListener("abort", () => clearTimeout(preload));
}

/** @param {string} name @param {string} label @param {() => void} onclick */
function iconButton(name, label, onclick) {
  return h("button.icon-button", { type: "button", title: label, "aria-label": label, onclick },
    icon(name));
}

function themeSwitch() {
  const root = document.documentElement;
  const theme = root.dataset.theme ?? "system";
  const next = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
  const element = iconButton(theme, `Theme: ${theme}. Switch to ${next}.`, () => {
    root.dataset.theme = next;
    try {
      localStorage.setItem("fluxgate.theme", next);
    } catch {
      // Without storage, the choice lasts until the page is reloaded.
    }
    const changed = themeSwitch();
    element.replaceWith(changed);
    changed.focus();
  });
  return element;
}

/** @param {string} text @param {"good" | "bad"} [kind] */
function notify(text, kind = "good") {
  const toast = notice(kind, h("div", text),
    iconButton("close", "Close the message", () => toast.remove()));
  toasts.append(toast);
  while (toasts.childElementCount > 3) toasts.firstElementChild?.remove();
  setTimeout(() => toast.remove(), kind === "bad" ? 12_000 : 6000);
}

/** @param {unknown} problem of the token in use, if there was one */
function login(problem) {
  const input = textInput({ type: "password", name: "token", required: true });
  const message = h("div", problem ? problemNotice(problem) : null);
  const submit = submitButton("Log in");

  /** @param {SubmitEvent} event */
  async function onsubmit(event) {
    event.preventDefault();
    submit.disabled = true;
    token.set(input.value.trim());
    try {
      await get("/v1/session");
      start();
    } catch (error) {
      token.clear();
      replace(message, problemNotice(error));
      input.select();
    } finally {
      submit.disabled = false;
    }
  }

  return h("main.login", h("form.card", { onsubmit }, brand(), message,
    field("Token", input, "One of the tokens in admin.tokens_file. It is kept until this tab is closed."),
    submit));
}

const brand = () => h("h1.brand", logo(), "FluxGate console");

const logo = () => h("img", { src: "icon.svg", alt: "", width: 26, height: 26 });

/** @param {string} name */
function icon(name) {
  return svg("svg", { class: "icon", viewBox: "0 0 24 24", width: 20, height: 20, "aria-hidden": "true" },
    svg("path", { d: ICONS[name] ?? "" }));
}

start();
