// Identities: who is limited, and everything about one customer.

import { get } from "./api.js";
import { button, card, notice, pageHead, showProblem, submitButton, textInput } from "./components.js";
import { h, replace } from "./dom.js";
import { browse } from "./identities/browse.js";
import { customer } from "./identities/customer.js";
import { explainCard } from "./identities/explain.js";
import { entriesOf, linkOf, nounOf, partsOf, readLink, readSearch, requestOf } from "./identities/parts.js";
import { isUsed, openHandle, readStates, subjectsOf } from "./identities/subjects.js";
import { watch } from "./polling.js";

/** @import { RuleSet } from "./api.js" */
/** @import { Entry, Values } from "./identities/parts.js" */
/** @import { Target } from "./identities/customer.js" */

const RULES_MS = 60_000;
const TYPING_MS = 300;
const TRIED = 50;
const HINT = "A user, an API key, an address or any other value that rules count by; or its part too: "
  + "user=ann, attr:tenant=acme. An API key does not become part of the link.";

/** @param {import("./main.js").Context} context */
export function view(context) {
  const { signal, live, session } = context;
  let { params } = context;
  const input = textInput({ type: "search", name: "search", "aria-describedby": "id-search-hint", oninput: typed });
  const form = h("form.id-search", { role: "search", "aria-label": "Identities", onsubmit: submit },
    h("label.field", h("span.field-label", "Search"), input),
    h("div.actions", submitButton("Look up"), button("Clear", () => open(new Map()))),
    h("p.hint", { id: "id-search-hint" }, HINT));
  const problem = h("div");
  const choices = h("div");
  const results = h("div.stack", h("p.quiet", "Loading…"));
  const explain = explainCard();
  const explainPlace = h("div", explain.element);

  /** @type {Entry[]} */
  let entries = [];
  let rules = "";
  let typing = 0;
  let list = /** @type {ReturnType<typeof browse> | null} */ (null);
  let round = new AbortController();
  signal.addEventListener("abort", () => {
    round.abort();
    clearTimeout(typing);
  });

  const job = watch(signal, "/v1/rule_sets", RULES_MS, (/** @type {{rule_sets: RuleSet[]}} */ { rule_sets: sets }) => {
    const text = JSON.stringify(sets);
    if (text === rules) return;
    const isFirst = rules === "";
    rules = text;
    entries = entriesOf(sets);
    explain.showSets(sets.map(({ name }) => name));
    if (isFirst || params.has("handle")) follow();
    else show(shown);
  }, (error) => showProblem(problem, error));
  live.onRules(signal, job.run);

  /** What is shown; `null` for the lists. */
  let shown = /** @type {Target | null} */ (null);

  /** Shows what the link says. */
  async function follow() {
    const values = readLink(params, entries);
    const handle = params.get("handle");
    const rule = params.get("rule");
    if (handle === null) {
      const isEveryone = entries.some((each) => `${each.set}/${each.rule.id}` === rule && each.rule.key.length === 0);
      return show(values.size > 0 || isEveryone ? { values, found: null, rule } : null);
    }
    const { signal: current } = round;
    try {
      const opened = await openHandle(entries, handle, current);
      if (!current.aborted) show({ ...opened, rule });
    } catch (error) {
      if (current.aborted) return;
      // The link may say who it is, too.
      show(values.size > 0 ? { values, found: null, rule } : null);
      replace(choices, notice("warn", `This link no longer finds the identity of its rule: ${/** @type {Error} */ (error).message}`));
    }
  }

  /** @param {Target | null} target */
  function show(target) {
    round.abort();
    round = new AbortController();
    shown = target;
    explain.fillIdentity(requestOf(target?.values ?? new Map()));
    const inner = { ...context, params, signal: round.signal };
    list = null;
    if (target) replace(results, customer(inner, entries, target, explain));
    else {
      list = browse(inner, entries);
      list.filter(input.value.trim());
      replace(results, list.element);
    }
  }

  function typed() {
    clearTimeout(typing);
    typing = setTimeout(() => list?.filter(input.value.trim()), TYPING_MS);
  }

  /** @param {Event} event */
  async function submit(event) {
    event.preventDefault();
    const text = input.value.trim();
    if (text === "") return open(new Map());
    const options = readSearch(text, partsOf(entries));
    const { signal: current } = round;
    const likely = options.length > 1 ? await used(options, text) : options;
    if (current.aborted) return;
    open(likely[0]);
    if (likely.length < 2) return;
    const [part] = likely[0].keys();
    replace(choices, h("p.row.hint", `Taken for the ${nounOf(part)}. It may also be another part:`,
      likely.slice(1, 9).map((each) => button(nounOf([...each.keys()][0]), () => open(each)))));
  }

  /** Returns those first that have used something. @param {Values[]} options @param {string} text */
  async function used(options, text) {
    const tried = options.map((values) => subjectsOf(entries, values)
      .filter(({ rule }) => rule.key.length > 0).slice(0, TRIED));
    // Without an answer, the order stays as it is.
    const [, listed] = await Promise.allSettled([readStates(tried.flat(), round.signal),
      session.history && get(`/v1/usage?${new URLSearchParams({ search: text, n: "20" })}`, round.signal)]);
    const rows = listed.status === "fulfilled" && listed.value ? listed.value.usage : [];
    const isListed = (/** @type {string} */ part) => rows.some((/** @type {{identity: string}} */ { identity }) =>
      ` ${identity} `.includes(` ${part}=${text} `));
    const rank = (/** @type {number} */ index) => tried[index].some(isUsed) || isListed([...options[index].keys()][0]) ? 0 : 1;
    return options.map((values, index) => ({ values, rank: rank(index) }))
      .sort((a, b) => a.rank - b.rank).map(({ values }) => values);
  }

  /** @param {Values} values */
  function open(values) {
    const hash = linkOf(values);
    if (location.hash !== hash) history.pushState(null, "", hash);
    params = new URLSearchParams();
    if (values.size === 0) input.value = "";
    replace(choices);
    show(values.size > 0 ? { values, found: null, rule: null } : null);
  }

  return {
    element: h("div.stack",
      pageHead("Identities", ["Who is limited, by which rule, and what each customer has left, on all instances."]),
      card("Look up", form), problem, choices, results, explainPlace),
  };
}
