// A form for the common parts of rules and lists, beside the text. It changes single values of the text
// and leaves the rest as it is, so both edit one document.

import { badge, button, field, notice, options, textInput } from "../components.js";
import { h, replace } from "../dom.js";
import { capitalized, listed } from "../format.js";
import { bandFields } from "./form_bands.js";
import { algorithmWords } from "./words.js";
import {
  addItem, listText, parse, quoted, removeItem, setEntry, spliced, textOf, textsOf, valueIn,
} from "./yaml.js";

/** @import { Child } from "../dom.js" */
/** @import { List, Map, Node, Splice } from "./yaml.js" */
/**
 * What an edit starts from: the text as it is now, with its parsed set and rules, and the chosen rule.
 * Values that were drawn may be elsewhere by then.
 * @typedef {{text: string, set: Map, rules: List | null, index: number}} Place
 * @typedef {(text: string, rule: Map) => Splice | null} Edit
 */

const ALGORITHMS = ["token_bucket", "leaky_bucket", "fixed_window", "sliding_window", "sliding_log", "concurrency"];
const SCOPES = /** @type {const} */ ([
  ["per_user", "Each user"], ["per_ip", "Each address"], ["per_api_key", "Each API key"],
  ["global", "All requests together"],
]);
/** What only a limit has. */
const LIMIT_FIELDS = ["scope", "key", "bands", "algorithm", "cost", "on_exceed", "max_wait", "rollout", "notify",
  "group", "on_missing_key", "lease", "overrides", "charge", "shape", "hold", "reset_on_change"];
const SHOWN = ["id", "name", "enabled", "mode", "action", "status", "match", "scope", "key", "bands", "algorithm", "cost",
  "on_exceed", "max_wait", "rollout", "notify"];
const LISTED_PARTS = /** @type {const} */ ([["user", "Users"], ["ip", "Addresses"], ["api_key", "API keys"]]);
const NEW_RULE = "scope: per_user\nbands: [100/m]";

/**
 * @param {{read: () => string, write: (text: string) => void}} document
 * @param {boolean} hasSets whether the text is that of all sets
 * @param {string | null} set the set to begin with @param {string | null} rule the rule to begin with
 */
export function ruleForm(document, hasSets, set, rule) {
  let chosenSet = set;
  let chosenRule = rule;
  /** The text that is drawn. @type {string | null} */
  let drawn = null;
  const body = h("div.stack-small");
  const element = h("section.card.stack-small.rule-form", { "aria-label": "Form" }, h("h2", "Form"), body);

  /** @param {boolean} [mayChoose] another set, if the chosen one is gone */
  function read(mayChoose = false) {
    const root = parse(document.read());
    if (root.kind !== "map") throw new SyntaxError("line 1");
    const all = hasSets ? valueIn(root, "rule_sets") : undefined;
    const sets = all?.kind === "map" ? all.entries.map(({ key }) => key) : [];
    if (mayChoose && hasSets && !sets.includes(chosenSet ?? "")) chosenSet = sets[0] ?? null;
    const found = hasSets ? valueIn(all, chosenSet ?? "") : root;
    const map = found?.kind === "map" ? found : null;
    const rules = map && valueIn(map, "rules");
    return { set: map, sets, rules: rules?.kind === "list" ? rules : null };
  }

  /** @param {List | null} rules */
  const idsOf = (rules) => rules?.items.map((item) => textOf(valueIn(item, "id")) ?? "") ?? [];

  /** @param {(place: Place) => Splice | null} make `null`: what it changes is gone @param {boolean} [redraws] */
  function edit(make, redraws = true) {
    const text = document.read();
    let splice = null;
    try {
      const { set: map, rules } = read();
      splice = map && make({ text, set: map, rules, index: idsOf(rules).indexOf(chosenRule ?? "") });
    } catch (error) {
      // Drawing says why it cannot be read.
      if (!(error instanceof SyntaxError)) throw error;
    }
    if (splice && (splice.text !== "" || splice.start !== splice.end)) document.write(spliced(text, splice));
    // The next key must not change another rule.
    if (redraws || !splice) draw(splice !== null);
  }

  /** @param {Edit} make @param {boolean} [redraws] */
  const editRule = (make, redraws) => edit(({ text, rules, index }) => {
    const rule = rules?.items[index];
    return rule?.kind === "map" ? make(text, rule) : null;
  }, redraws);

  /** Sets or removes a field of the rule. @param {string} name @param {string | null} value as YAML @param {boolean} [redraws] */
  const put = (name, value, redraws) => editRule((text, rule) => setEntry(text, rule, name, value), redraws);

  /** Sets or removes a condition. @param {string} name @param {string | null} value as YAML */
  const putMatch = (name, value) => editRule((text, rule) => {
    const match = valueIn(rule, "match");
    const entries = match?.kind === "map" ? match.entries : [];
    if (value === null && entries.every(({ key }) => key === name)) return setEntry(text, rule, "match", null);
    return match?.kind === "map" ? setEntry(text, match, name, value) : setEntry(text, rule, "match", `{ ${name}: ${value} }`);
  }, false);

  /** @param {boolean} [keepsFocus] */
  function draw(keepsFocus = true) {
    drawn = document.read();
    const focused = keepsFocus && element.contains(window.document.activeElement)
      ? /** @type {HTMLElement} */ (window.document.activeElement).getAttribute("name") : null;
    try {
      replace(body, content());
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error;
      replace(body, notice("info", `The form cannot read this text (${error.message}). Edit the text; the form comes back `
        + "when it can."));
    }
    if (focused) /** @type {HTMLElement | null} */ (body.querySelector(`[name=${CSS.escape(focused)}]`))?.focus();
  }

  /** @returns {Child[]} */
  function content() {
    const { set: map, sets, rules } = read(true);
    if (!map) return [h("p.quiet", "There is no rule set in this text.")];
    const ids = idsOf(rules);
    if (!ids.includes(chosenRule ?? "")) chosenRule = ids[0] ?? null;
    const found = rules?.items[ids.indexOf(chosenRule ?? "")];
    return [
      hasSets && choice("form-set", "Rule set", sets.map((name) => [name, name]), chosenSet ?? "", (value) => {
        chosenSet = value;
        draw();
      }),
      h("div.row.bottom",
        choice("form-rule", "Rule", ids.map((id) => [id, id]), chosenRule ?? "", (value) => {
          chosenRule = value;
          draw();
        }),
        rules && rules.at >= 0 && button("Add a rule", addRule),
        ids.length > 1 && button("Remove the rule", () => edit(({ text, rules: now, index }) => {
          if (!now?.items[index] || now.items.length < 2) return null;
          chosenRule = idsOf(now)[index + 1] ?? idsOf(now)[index - 1];
          return removeItem(text, now, index);
        }), { of: chosenRule ?? "" })),
      ...(found?.kind === "map" ? ruleFields(found, map) : [h("p.quiet", "This rule can only be edited as text.")]),
      listFields(map),
    ];
  }

  const addRule = () => edit(({ text, rules }) => {
    let id = "new-rule";
    for (let number = 2; idsOf(rules).includes(id); number++) id = `new-rule-${number}`;
    if (!rules) return null;
    chosenRule = id;
    return addItem(text, rules, `id: ${id}\n${NEW_RULE}`);
  });

  /** @param {Map} rule @param {Map} set @returns {Child[]} */
  function ruleFields(rule, set) {
    const get = (/** @type {string} */ name) => textOf(valueIn(rule, name));
    const action = get("action") ?? "limit";
    const isLimit = action === "limit";
    const state = get("enabled") === "false" ? "disabled" : get("mode") ?? "enforce";
    const rest = rule.entries.map(({ key }) => key).filter((key) => !SHOWN.includes(key));
    return [
      h("div.form-grid",
        text("form-id", "Id", get("id") ?? "", (value) => {
          put("id", quoted(value), false);
          chosenRule = value;
        }, "A new id begins with empty counters."),
        text("form-name", "Name for people", get("name") ?? "", (value) => put("name", value ? quoted(value) : null, false)),
        choice("form-action", "What it does", [["limit", "Limits"], ["deny", "Denies"], ["allow", "Exempts from all limits"]],
          action, changeAction),
        choice("form-state", "State", [["enforce", "Enforced"], ["shadow", "Shadow: only reports"], ["disabled", "Disabled"]],
          state, (value) => {
            put("enabled", value === "disabled" ? "false" : null, false);
            if (value !== "disabled") put("mode", value === "shadow" ? "shadow" : null, false);
          }),
        action === "deny" && text("form-status", "Status of the answer", get("status") ?? "403", (value) => put("status", value || null, false))),
      matchFields(valueIn(rule, "match"), set),
      ...(isLimit ? limitFields(rule, get) : []),
      rest.length > 0 && h("p.hint", `Only in the text: ${listed(rest)}.`),
    ];
  }

  /** A rule that decides by itself has no limit, and its status only if it denies. @param {string} action */
  function changeAction(action) {
    if (action === "limit") {
      put("action", null, false);
      put("scope", "per_user", false);
      put("bands", "[100/m]", false);
    } else {
      for (const name of LIMIT_FIELDS) put(name, null, false);
      put("action", action, false);
    }
    if (action !== "deny") put("status", null, false);
    draw();
  }

  /** @param {Node | undefined} match @param {Map} set @returns {Child} */
  function matchFields(match, set) {
    const paths = textsOf(valueIn(match, "path"));
    const methods = textsOf(valueIn(match, "methods"));
    const lists = valueIn(set, "lists");
    const names = lists?.kind === "map" ? lists.entries.map(({ key }) => key) : [];
    const [part, list] = LISTED_PARTS.map(([name]) => [name, textOf(valueIn(valueIn(match, name), "in"))])
      .find(([, found]) => found) ?? ["", ""];
    /** @param {string} next */
    const changeList = (next) => {
      const [nextPart, nextList] = next.split(/:(.*)/s);
      if (part && part !== nextPart) putMatch(String(part), null);
      if (nextPart) putMatch(nextPart, `{ in: ${quoted(nextList)} }`);
      draw();
    };
    return h("div.form-grid",
      paths && lines("form-path", "Paths", paths, (values) => putMatch("path", values.length > 0 ? listText(values) : null),
        "One a line. * is any text within a segment, ** any number of segments."),
      methods && text("form-methods", "Methods", methods.join(", "), (value) => {
        const values = value.split(/[\s,]+/).filter(Boolean);
        putMatch("methods", values.length > 0 ? listText(values) : null);
      }, "Such as GET, POST. Empty: all."),
      names.length > 0 && choice("form-list", "Only for", [["", "Everybody"], ...names.flatMap((name) =>
        LISTED_PARTS.map(([kind, words]) => /** @type {[string, string]} */ ([`${kind}:${name}`, `${words} in ${name}`])))],
        list ? `${part}:${list}` : "", changeList));
  }

  /** @param {Map} rule @param {(name: string) => string | null} get @returns {Child[]} */
  function limitFields(rule, get) {
    const key = textsOf(valueIn(rule, "key"));
    const own = key && key.length > 0 ? "key" : "";
    const algorithm = get("algorithm") === "gcra" ? "token_bucket" : get("algorithm") ?? "token_bucket";
    const bands = valueIn(rule, "bands");
    let shownBands = bands && document.read().slice(bands.start, bands.end);
    return [
      h("div.form-grid",
        choice("form-scope", "Counted for", [...SCOPES, ...(own ? [/** @type {[string, string]} */ (["key", `Each ${listed(key ?? [])}`])] : [])],
          own || (get("scope") ?? "global"), (value) => {
            if (value === "key") return;
            put("key", null, false);
            put("scope", value);
          }),
        choice("form-algorithm", "Algorithm", ALGORITHMS.map((name) => [name, capitalized(algorithmWords(name))]), algorithm,
          (value) => put("algorithm", value === "token_bucket" ? null : value))),
      bands?.kind === "list" ? bandFields(bands, algorithm, (make) => editRule((all, current) => {
        const now = valueIn(current, "bands");
        // They are edited by position, so the text must be what is shown.
        if (now?.kind !== "list" || all.slice(now.start, now.end) !== shownBands) return null;
        const splice = make(all, now);
        if (splice) shownBands = spliced(all, splice).slice(now.start, now.end + splice.text.length - splice.end + splice.start);
        return splice;
      }, false), () => draw()) : h("p.hint", "The limits can only be edited as text."),
      h("div.form-grid",
        text("form-cost", "Units of a request", get("cost") ?? "1", (value) => put("cost", value === "1" || !value ? null : costText(value), false),
          "A number, header:NAME, attr:NAME, or llm:total_tokens for language models."),
        choice("form-exceed", "When it is exceeded", [["reject", "Deny"], ["wait", "Let the request wait"]], get("on_exceed") ?? "reject",
          (value) => {
            if (value !== "wait") put("max_wait", null, false);
            put("on_exceed", value === "wait" ? "wait" : null);
          }),
        get("on_exceed") === "wait" && text("form-wait", "Longest wait", get("max_wait") ?? "5s", (value) => put("max_wait", value || null, false), "Such as 500ms or 5s."),
        get("scope") !== "global" && text("form-rollout", "Enforced for", get("rollout") ?? "100%", (value) =>
          put("rollout", value === "100%" || !value ? null : value, false), "Share of identities. Others are only reported."),
        text("form-notify", "Events at", (textsOf(valueIn(rule, "notify")) ?? []).join(", "), (value) => {
          const shares = value.split(/[\s,]+/).filter(Boolean);
          put("notify", shares.length > 0 ? `[${shares.join(", ")}]` : null, false);
        }, "Shares of a limit, such as 80%, 100%.")),
    ];
  }

  /** @param {Map} set @returns {Child} */
  function listFields(set) {
    const lists = valueIn(set, "lists");
    const entries = lists?.kind === "map" ? lists.entries : [];
    const name = textInput({ name: "form-new-list", "aria-label": "Name of the new list", placeholder: "Name" });
    return h("details.lists", { open: openLists, ontoggle: (/** @type {Event} */ event) => {
      openLists = /** @type {HTMLDetailsElement} */ (event.target).open;
    } },
      h("summary", "Named lists ", badge(String(entries.length))),
      h("div.stack-small", entries.map(({ key, value }) => {
        const values = textsOf(value);
        return values === null ? h("p.hint", `The list ${key} can only be edited as text.`)
          : h("div.stack-small", lines(`form-list-${key}`, `List ${key}`, values, (next) => edit(({ text: all, set: current }) => {
            const now = valueIn(current, "lists");
            return now?.kind === "map" ? setEntry(all, now, key, listText(next)) : null;
          }, false), "One value a line."),
          h("div.actions", button("Remove the list", () => edit(({ text: all, set: current }) => {
            const now = valueIn(current, "lists");
            if (now?.kind !== "map") return null;
            return now.entries.length === 1 ? setEntry(all, current, "lists", null) : setEntry(all, now, key, null);
          }), { of: key })));
      }),
      h("div.row.bottom", field("New list", name), button("Add a list", () => {
        const key = name.value.trim();
        if (!key || entries.some((entry) => entry.key === key)) return name.focus();
        edit(({ text: all, set: current }) => {
          const now = valueIn(current, "lists");
          // A list has at least one value.
          const value = "[value]";
          return now?.kind === "map" ? setEntry(all, now, key, value) : setEntry(all, current, "lists", `{ ${quoted(key)}: ${value} }`);
        });
      })),
      h("p.hint", "Rules use a list by its name, such as match: { user: { in: NAME } }.")));
  }

  return { element, draw: () => {
    // While somebody edits in the form, or is about to click on what is as it was, it is not drawn again.
    if (document.read() !== drawn && !element.contains(window.document.activeElement)) draw();
  } };
}

let openLists = false;

/** A number as it is; names as text. @param {string} value */
const costText = (value) => (/^\d+$/.test(value) ? value : quoted(value));

/** @param {string} name @param {string} label @param {string} value @param {(value: string) => void} onChange @param {string} [hint] */
const text = (name, label, value, onChange, hint) =>
  field(label, textInput({ name, value, oninput: (/** @type {Event} */ event) =>
    onChange(/** @type {HTMLInputElement} */ (event.target).value.trim()) }), hint);

/** @param {string} name @param {string} label @param {string[]} values @param {(values: string[]) => void} onChange @param {string} [hint] */
function lines(name, label, values, onChange, hint) {
  const input = h("textarea.mono", { name, rows: Math.min(8, Math.max(2, values.length)), spellcheck: "false", oninput() {
    onChange(input.value.split("\n").map((line) => line.trim()).filter(Boolean));
  } });
  input.value = values.join("\n");
  return field(label, input, hint);
}

/**
 * @param {string} name @param {string} label @param {readonly (readonly [string, string])[]} choices
 * @param {string} value @param {(value: string) => void} onChange
 */
const choice = (name, label, choices, value, onChange) => field(label, h("select", { name, onchange: (/** @type {Event} */ event) =>
  onChange(/** @type {HTMLSelectElement} */ (event.target).value) },
options(choices, value)));
