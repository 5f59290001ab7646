//! Rule documents as the rules of a service that reads them while they change.

use fluxgate_core::yaml::{Faults, Node, Position, Value};

use super::overlay::{Overlay, SET_FIELDS};
use super::{DocumentReader, PendingRule, PendingSet, Purpose};
use crate::remark::Remark;

/// The rule set of documents that name none.
const DEFAULT_SET: &str = "default";

/// The rules of OpenFluxGate's documents.
#[derive(Debug)]
pub struct LiveDocuments {
    /// The mapping under `rule_sets`. Values of a document have its positions, so that
    /// `RuleSets::read` reports faults there.
    pub rule_sets: Node,
    /// What the rules leave out or express differently. The line is that of the document.
    pub remarks: Vec<Remark>,
}

/// Converts documents of OpenFluxGate, in their order, into rule sets that need not be valid.
///
/// The field `fluxgate` of a document may have any field of a rule, which takes precedence over
/// those of the document, and `on_error` and `lists` of its rule set.
///
/// An id that a rule cannot have is kept in the rule's `name`, in parentheses after that of the
/// document; the id of the rule is then that of [`rule_id`](crate::rule_id), with a number after
/// it if another rule of the set has it.
pub fn openfluxgate_documents(documents: &[Node], faults: &mut Faults) -> LiveDocuments {
    let mut reader = DocumentReader::new(Purpose::Live, Vec::new(), faults);
    for document in documents {
        reader.reserve(document, DEFAULT_SET);
    }
    for document in documents {
        reader.document(document, DEFAULT_SET);
    }
    let (sets, mut remarks) = reader.finish();
    let sets = sets.into_iter().filter(|set| !set.rules.is_empty());
    let sets = sets
        .map(|set| set_node(set, &mut remarks, faults))
        .collect();
    remarks.sort_by_key(|remark| remark.line);
    LiveDocuments {
        rule_sets: Node {
            value: Value::Map(sets),
            position: Position { line: 1, column: 1 },
        },
        remarks,
    }
}

/// Returns the name of a rule set and its fields.
fn set_node(set: PendingSet<'_>, remarks: &mut Vec<Remark>, faults: &mut Faults) -> (Node, Node) {
    let PendingSet {
        name,
        position,
        rules,
        ..
    } = set;
    let mut fields = SetFields::default();
    let mut nodes = Vec::with_capacity(rules.len());
    for mut rule in rules {
        remarks.append(&mut rule.draft.remarks);
        fields.add(&rule.overlay, faults);
        nodes.extend(rule_node(rule, faults));
    }
    let key = |name: &str| Node {
        value: Value::Quoted(name.to_owned()),
        position,
    };
    let map = |pairs| Node {
        value: Value::Map(pairs),
        position,
    };
    let mut pairs = Vec::new();
    if let Some(on_error) = fields.on_error {
        pairs.push((key("on_error"), on_error.clone()));
    }
    if !fields.lists.is_empty() {
        pairs.push((key("lists"), map(fields.lists)));
    }
    let rules = Node {
        value: Value::List(nodes),
        position,
    };
    pairs.push((key("rules"), rules));
    (key(&name), map(pairs))
}

/// Returns the fields of a rule, unless they are outside the domain of a limit.
fn rule_node(rule: PendingRule<'_>, faults: &mut Faults) -> Option<Node> {
    let PendingRule {
        mut draft,
        position,
        overlay,
    } = rule;
    draft.drop_repeated_band_ids();
    let written = draft.to_rule().map(|rule| rule.to_yaml());
    let parsed = written
        .map_err(|error| error.to_string())
        .and_then(|text| Node::parse(&text).map_err(|fault| fault.message));
    let mut node = parsed
        .map_err(|message| faults.add(position, message))
        .ok()?;
    set_position(&mut node, position);
    overlay.apply(&mut node);
    Some(node)
}

fn set_position(node: &mut Node, position: Position) {
    node.position = position;
    match &mut node.value {
        Value::Plain(_) | Value::Quoted(_) => {}
        Value::List(items) => {
            for item in items {
                set_position(item, position);
            }
        }
        Value::Map(pairs) => {
            for (key, value) in pairs {
                set_position(key, position);
                set_position(value, position);
            }
        }
    }
}

/// The fields of a rule set, which any of its documents may have.
#[derive(Debug, Default)]
struct SetFields<'n> {
    on_error: Option<&'n Node>,
    lists: Vec<(Node, Node)>,
}

impl<'n> SetFields<'n> {
    fn add(&mut self, overlay: &Overlay<'n>, faults: &mut Faults) {
        let [on_error, lists] = SET_FIELDS.map(|name| overlay.get(name));
        if let Some(node) = on_error {
            let first = *self.on_error.get_or_insert(node);
            if first.canonical() != node.canonical() {
                let text = "another document gives the rule set another `on_error`";
                faults.add(node.position, text);
            }
        }
        let lists = lists.map(|node| node.map("`lists`", faults));
        for (name, key, values) in lists.into_iter().flatten() {
            let known = self.lists.iter().find(|it| it.0.as_text() == Some(name));
            match known {
                None => self.lists.push((key.clone(), values.clone())),
                Some((_, known)) if known.canonical() == values.canonical() => {}
                Some(_) => {
                    let text = format!("another document gives the list `{name}` other values");
                    faults.add(key.position, text);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use fluxgate_core::RuleSets;
    use fluxgate_core::rules::RuleOptions;

    use super::*;
    use crate::rule_id;

    /// Returns the rules of documents that are written as YAML, or their faults.
    fn rules(text: &str) -> Result<String, Vec<String>> {
        let Value::List(documents) = Node::parse(text).unwrap().value else {
            panic!("{text}");
        };
        let mut faults = Faults::default();
        let live = openfluxgate_documents(&documents, &mut faults);
        let sets = RuleSets::read(&live.rule_sets, RuleOptions::default(), &mut faults);
        if faults.count() > 0 {
            let faults = faults.into_sorted().into_iter();
            return Err(faults.map(|fault| fault.to_string()).collect());
        }
        let lines = sets.to_yaml();
        let lines = lines.lines().skip(1).map(|line| &line[2..]);
        Ok(lines.collect::<Vec<_>>().join("\n"))
    }

    const BANDS: &str = "bands: [{windowSeconds: 60, capacity: 10}]";

    #[test]
    fn fields_of_the_overlay_take_precedence() {
        let text = format!(
            "- {{id: a, scope: CUSTOM, onLimitExceedPolicy: WAIT_FOR_REFILL, {BANDS}, fluxgate: \
             {{key: [ip], algorithm: fixed_window, on_exceed: reject, priority: 5, mode: null, \
             match: {{user: {{in: l}}}}, lists: {{l: [x]}}, on_error: deny}}}}\n\
             - {{id: b, fluxgate: {{action: deny, status: 451, lists: {{l: [x], m: ['1.2.3.4']}}, \
             match: {{ip: {{in: m}}}}}}}}\n\
             - {{id: c, scope: PER_IP, bands: [], fluxgate: {{id: d, name: D, bands: [5/s]}}}}"
        );
        let expected = "\
default:
  on_error: deny
  lists:
    l: [x]
    m: [\"1.2.3.4\"]
  rules:
    - id: a
      priority: 5
      match: { user: { in: l } }
      scope: per_ip
      algorithm: fixed_window
      bands:
        - { capacity: 10, window: 1m }
    - id: b
      action: deny
      status: 451
      match: { ip: { in: m } }
    - id: d
      name: D
      scope: per_ip
      bands:
        - { capacity: 5, window: 1s }";
        assert_eq!(rules(&text).unwrap(), expected);
    }

    #[test]
    fn a_rule_keeps_its_id_whatever_other_documents_there_are() {
        let text = format!(
            "- {{id: 'A b', name: other, scope: GLOBAL, {BANDS}}}\n\
             - {{id: a-b, name: mine, scope: GLOBAL, {BANDS}}}\n\
             - {{id: 사용자, ruleSetId: 한도, scope: GLOBAL, {BANDS}}}"
        );
        let rules = rules(&text).unwrap();
        for expected in [
            "id: a-b-2\n      name: \"other (A b)\"\n",
            "id: a-b\n      name: mine\n",
            &format!("id: {}\n      name: \"사용자\"\n", rule_id("사용자")),
            "\"한도\":",
        ] {
            assert!(rules.contains(expected), "{expected}\n{rules}");
        }
    }

    /// What a rule is called does not depend on whether its document is imported or read live.
    #[test]
    fn names_and_bands_are_those_of_an_import() {
        let text = format!(
            "- {{id: Per-User, name: Per user, ruleSetId: api, scope: GLOBAL, {BANDS}}}\n\
             - {{id: 아이피별-한도, name: 주소별 한도, ruleSetId: api, scope: GLOBAL, {BANDS}}}\n\
             - {{id: plain, name: Plain, ruleSetId: api, scope: GLOBAL, bands: [{{windowSeconds: 1, \
             capacity: 5, label: 분당}}]}}"
        );
        let live = rules(&text).unwrap();
        for expected in [
            "id: per-user\n      name: \"Per user (Per-User)\"\n",
            "      name: \"주소별 한도 (아이피별-한도)\"\n",
            "id: plain\n      name: Plain\n",
            "{ id: band-b22b47fd6f65, capacity: 5, window: 1s }",
        ] {
            assert!(live.contains(expected), "{expected}\n{live}");
        }
        let format = crate::Format::OpenFluxgate;
        let imported = crate::import(format, "source", &text, crate::Output::Rules).unwrap();
        let lines = imported.text.lines();
        let lines = lines.filter(|line| !line.trim_start().starts_with('#'));
        let lines: Vec<_> = lines.skip(1).map(|line| &line[2..]).collect();
        assert_eq!(lines.join("\n"), live);
    }

    #[test]
    fn faults_are_at_their_documents() {
        for (document, expected) in [
            ("{scope: GLOBAL}", "1:3: a rule needs an `id`"),
            ("{id: a, scope: GLOBAL}", "1:3: a rule needs `bands`"),
            (
                "{id: a, fluxgate: {bands: [5/s], scope: global, prioritty: 5}}",
                "1:51: unknown field `prioritty` in a rule; did you mean `priority`?",
            ),
            ("{id: a, fluxgate: 5}", "1:21: `fluxgate` must be a mapping"),
            (
                "{id: a, scope: GLOBAL, bands: [{windowSeconds: 0, capacity: 1}]}",
                "1:50: `windowSeconds` must be a whole number of at least 1, not `0`",
            ),
            (
                "{id: a, pathPatterns: ['/{id:[0-9]+}'], bands: [{windowSeconds: 1, capacity: 1}]}",
                "1:3: a rule cannot express any of `pathPatterns`",
            ),
        ] {
            let faults = rules(&format!("- {document}")).unwrap_err();
            let is_reported = faults.iter().any(|fault| fault.starts_with(expected));
            assert!(is_reported, "{document}: {faults:?}");
        }
        let text = format!(
            "- {{id: x, scope: GLOBAL, {BANDS}, fluxgate: {{on_error: deny, lists: {{l: [a]}}}}}}\n\
             - {{id: y, scope: GLOBAL, {BANDS}, fluxgate: {{on_error: allow, lists: {{l: [b]}}}}}}\n\
             - {{id: x, scope: GLOBAL, {BANDS}}}"
        );
        let faults = rules(&text).unwrap_err().join("\n");
        for expected in [
            "2:91: another document gives the rule set another `on_error`",
            "another document gives the list `l` other values",
            "3:3: another document of rule set `default` has the id `x`",
        ] {
            assert!(faults.contains(expected), "{expected}\n{faults}");
        }
    }
}
