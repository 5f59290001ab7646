// "Explain a request": how a request would be decided now, and why.

import { post } from "../api.js";
import { card, field, notice, options, problemNotice, submitButton, textInput } from "../components.js";
import { h, replace } from "../dom.js";
import { capitalized, listed } from "../format.js";
import { nounOf, partsOfRequest } from "./parts.js";
import { explainedRules, verdict } from "./verdict.js";

/** @import { Recorded } from "../api.js" */
/** @import { Recent } from "./subjects.js" */

const LINES = "One per line, as name: value";
const ONE_RULE = "This is what the rule alone decides about the next request of this identity. Which other "
  + "rules apply depends on the request.";

/**
 * Explains the next request of an identity that only a handle finds, by its rule alone.
 * @param {string} set @param {string} handle @param {string} [more] @returns {Promise<HTMLElement[]>}
 */
export async function explainHandle(set, handle, more = ONE_RULE) {
  try {
    const { decision, rules } = await post("/v1/explain", { rule_set: set, handle });
    return [verdict(decision, more), explainedRules(rules)];
  } catch (error) {
    return [problemNotice(error)];
  }
}

export function explainCard() {
  const set = h("select", { name: "rule_set" });
  const result = h("div.stack-small", { "aria-live": "polite" },
    h("p.quiet", "Describe a request and see how it would be decided. Nothing is charged."));
  /** @param {string} name */
  const lines = (name) => h("textarea.mono", { name, rows: 2, spellcheck: "false" });
  const form = h("form.id-explain-form", { onsubmit: explain },
    field("Rule set", set), field("Method", textInput({ name: "method", value: "GET" })),
    field("Path", textInput({ name: "path", value: "/" })),
    field("User", textInput({ name: "user" })), field("IP address", textInput({ name: "ip" })),
    field("API key", textInput({ name: "api_key" })),
    field("Cost", h("input", { name: "cost", type: "number", min: 0, placeholder: "set by the rules" })),
    field("Headers", lines("headers"), LINES),
    field("Attributes", lines("attributes"), LINES),
    h("div.actions", submitButton("Explain")));
  const element = card("Explain a request", h("div.halves", form, result));

  /** Returns what is typed in. @returns {Recorded} */
  const request = () =>
    Object.fromEntries([...new FormData(form)].filter(([, value]) => value !== ""));

  /** @param {Event} [event] */
  async function explain(event) {
    event?.preventDefault();
    const { cost, headers = "", attributes = "", ...body } = request();
    try {
      const { decision, rules } = await post("/v1/explain", {
        ...body, cost: cost && Number(cost), headers: readPairs(headers), attributes: readPairs(attributes),
      });
      replace(result, verdict(decision), explainedRules(rules));
    } catch (error) {
      replace(result, problemNotice(error));
    }
  }

  /** Fills in a request. What it does not have is empty. @param {Recorded} filled */
  function fill(filled) {
    /** @type {NodeListOf<HTMLInputElement>} */
    const inputs = form.querySelectorAll("[name]");
    for (const input of inputs) {
      const value = filled[input.name] ?? "";
      input.value = typeof value === "object" ? writePairs(value) : value;
    }
  }

  return {
    element,
    /** @param {string[]} names of the active rule sets */
    showSets(names) {
      const chosen = set.value;
      replace(set, options(names.map((name) => [name, name]), chosen));
    },
    /** @param {Recorded} identity */
    fillIdentity(identity) {
      const { rule_set, method, path } = request();
      fill({ rule_set, method, path, ...identity });
    },
    /**
     * Explains a recorded request. If values are hidden, what is filled in would be another request.
     * @param {Recorded} event @param {Recent["decisions"][number]} decision of then
     * @param {boolean} isNamed whether users and addresses are in the clear
     */
    async explainEvent(event, { outcome, rule, handle }, isNamed) {
      const hidden = [...partsOfRequest(event).keys()].filter((part) => part === "api_key" || !isNamed);
      element.scrollIntoView({ block: "nearest" });
      form.querySelector("button")?.focus({ preventScroll: true });
      if (hidden.length === 0) {
        fill(event);
        return explain();
      }
      const { method, path, rule_set } = event;
      fill({ method, path, rule_set });
      const why = `${capitalized(listed(hidden.map(nounOf)))} of the recorded request ${hidden.length > 1 ? "are" : "is"} hidden, so `;
      const then = `Then it was decided as ${outcome ?? "unknown"}${rule ? ` by ${rule}` : ""}.`;
      if (handle === null) {
        replace(result, notice("warn", h("p", `This request cannot be explained. ${why}it is not known whom it counts for. ${then}`)));
      } else {
        replace(result, ...await explainHandle(rule_set, handle,
          `${why}only the rule ${rule} is explained, for the identity that it counted. ${then}`));
      }
    },
  };
}

/** @param {string} text */
function readPairs(text) {
  return Object.fromEntries(text.split("\n").filter((line) => line.trim() !== "")
    .map((line) => line.split(/:(.*)/s))
    .map(([name, value = ""]) => [name.trim(), value.trim()]));
}

/** @param {Record<string, unknown>} pairs */
const writePairs = (pairs) =>
  Object.entries(pairs).map(([name, value]) => `${name}: ${value}`).join("\n");
