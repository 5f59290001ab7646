// What the fleet holds now: waiting requests, slots, leases; and its rules.

import { h, replace, setText } from "../dom.js";
import { isLate } from "../fleet.js";
import { count, duration, number } from "../format.js";

/** @import { Context } from "../main.js" */
/** @import { Fleet } from "../fleet.js" */

const SOURCES = {
  file: "from a file", dir: "from a directory", redis: "stored in Redis", http: "from a server",
  mongodb: "from MongoDB", demo: "built in",
};

/** @param {Context} context */
export function fleetStrip({ session, live, fleet, signal }) {
  const labels = ["Instances", "Waiting", "Slots held", "Units on lease", "Counters", "Rules", "Running for"];
  const tiles = Object.fromEntries(labels.map((label) => {
    const value = h("dd.tile-value");
    const detail = h("dd.hint");
    return [label, { value, detail, element: h("div.tile", h("dt", label), value, detail) }];
  }));
  replace(tiles.Instances.value, h("a", { href: "#/instances" }, "–"));

  /** @param {Fleet} latest */
  function update({ instances, failure }) {
    const present = instances.filter((each) => !isLate(each));
    const sum = (/** @type {"waiting" | "slots" | "leased_units"} */ field) =>
      present.reduce((all, each) => all + (each[field] ?? 0), 0);
    const revisions = new Set(present.map(({ revision }) => revision)).size;
    const scope = instances.length > 1 ? "of all instances" : "of the only instance";
    setText(/** @type {Element} */ (tiles.Instances.value.firstElementChild), number(instances.length));
    setText(tiles.Instances.detail, failure ? "the others are not known" : present.length < instances.length
      ? `${count(instances.length - present.length, "instance is", "instances are")} silent`
      : instances.length < 2 ? "only this one" : "share the counters");
    setText(tiles.Waiting.value, number(sum("waiting")));
    setText(tiles.Waiting.detail, "requests, for units");
    setText(tiles["Slots held"].value, number(sum("slots")));
    setText(tiles["Slots held"].detail, "by running requests");
    const leased = present.some((each) => (each.leased_units ?? null) !== null);
    tiles["Units on lease"].element.hidden = !leased;
    setText(tiles["Units on lease"].value, number(sum("leased_units")));
    setText(tiles["Units on lease"].detail, `taken in advance, ${scope}`);
    setText(tiles.Rules.value, revisions > 1 ? `${revisions} versions` : "The same");
    setText(tiles.Rules.detail, revisions > 1 ? "instances change over one by one"
      : `everywhere, ${SOURCES[session.source]}`);
    tiles.Rules.detail.classList.toggle("attention", revisions > 1);
  }
  fleet.subscribe(signal, update);
  live.subscribe(signal, ({ store, uptime_s: uptime }) => {
    tiles.Counters.element.hidden = store.keys === null;
    setText(tiles.Counters.value, number(store.keys ?? 0));
    setText(tiles.Counters.detail, "in memory of this process");
    setText(tiles["Running for"].value, duration(Math.floor(uptime / 60) * 60_000 || uptime * 1000));
    setText(tiles["Running for"].detail, `this instance, version ${session.version}`);
  });
  return h("section.card.strip", { "aria-label": "Service" },
    h("dl.grid.tiles", labels.map((label) => tiles[label].element)));
}
