//! The rule documents of OpenFluxGate, as its MongoDB collection and its REST API write them, or
//! the `application.yml` of an application.
//!
//! Rules are in JSON or YAML: one document, a list of them, or a mapping with `rules`.

mod application;
mod bands;

use std::collections::HashMap;
use std::time::Duration;

use fluxgate_core::rules::values;
use fluxgate_core::yaml::{Fault, Faults, Node, Value};
use fluxgate_core::{Algorithm, KeyPart, ValueMatch};

use crate::draft::{Conditions, Draft, Remark, RuleDraft, RuleSetDraft};
use crate::fields::{Fields, items};
use crate::names::{UniqueNames, is_expressible, network, network_text, rule_id, set_name};
use crate::path_patterns;
use crate::spring::Properties;
use bands::AlgorithmBands;

/// The fields of a rule, except for its conditions.
const READ: &str = "id name enabled scope keyStrategyId onLimitExceedPolicy ruleSetId \
    ruleSetIdOrNull bands attributes allowedIps deniedIps allowedKeys deniedKeys priority";

/// The conditions, which are fields of a rule or of its `matcher`.
const CONDITIONS: &str = "methods pathPatterns excludePathPatterns headerEquals headerPresent";

/// The fields that MongoDB and the REST API add, and texts for people.
const IRRELEVANT: &str = "_id _class __v createdAt updatedAt description";

/// Reads rule documents.
pub(crate) fn read(text: &str, faults: &mut Faults) -> Result<Draft, Fault> {
    let nodes = crate::fields::documents(text)?;
    let mut remarks = Vec::new();
    if nodes.iter().any(application::is_application) {
        let properties = Properties::read(text, &["fluxgate"], &mut remarks)?;
        return Ok(application::read(&properties, remarks, faults));
    }
    let node = crate::fields::document(text)?;
    let (documents, default_set) = documents(&node, &mut remarks, faults);
    let mut reader = DocumentReader {
        faults,
        remarks,
        sets: Vec::new(),
        ids: HashMap::new(),
    };
    for document in documents {
        reader.document(document, default_set);
    }
    let DocumentReader {
        mut remarks, sets, ..
    } = reader;
    let sets = sets
        .into_iter()
        .map(|set| set.finish(&mut remarks))
        .collect();
    Ok(Draft {
        remarks,
        sets,
        config: None,
    })
}

/// Returns the documents, and the rule set of those that name none.
fn documents<'n>(
    node: &'n Node,
    remarks: &mut Vec<Remark>,
    faults: &mut Faults,
) -> (&'n [Node], &'n str) {
    let Value::Map(_) = &node.value else {
        return (items(node, "the rules", faults), "default");
    };
    let fields = Fields::read(node, "a rule", faults);
    match fields.get("rules") {
        Some(rules) => {
            let name = fields.first_text(&["ruleSetId", "id"], faults);
            let known = ["rules ruleSetId id name", IRRELEVANT];
            remarks.extend(fields.unread("a rule set", &known));
            (items(rules, "`rules`", faults), name.unwrap_or("default"))
        }
        None => (std::slice::from_ref(node), "default"),
    }
}

struct DocumentReader<'r> {
    faults: &'r mut Faults,
    remarks: Vec<Remark>,
    sets: Vec<PendingSet>,
    ids: HashMap<String, UniqueNames>,
}

/// A rule set whose access lists are not known yet. OpenFluxGate merges the copies in its
/// documents: an address is allowed if every document allows it, denied if one does.
#[derive(Debug, Default)]
struct PendingSet {
    name: String,
    rules: Vec<RuleDraft>,
    /// The addresses that each document allows.
    allowed: Vec<Vec<String>>,
    denied: Vec<String>,
    line: usize,
}

impl PendingSet {
    fn finish(self, remarks: &mut Vec<Remark>) -> RuleSetDraft {
        let Self {
            name,
            mut rules,
            allowed,
            denied,
            line,
        } = self;
        let first = allowed.first().cloned().unwrap_or_default();
        let is_common = |address: &String| allowed.iter().all(|list| list.contains(address));
        let (common, partial): (Vec<_>, Vec<_>) = first.into_iter().partition(is_common);
        let others = allowed
            .iter()
            .skip(1)
            .flatten()
            .filter(|it| !common.contains(it));
        if !partial.is_empty() || others.count() > 0 {
            let text = "`allowedIps` that not every rule of the set has";
            remarks.push(Remark::lost(line, text));
        }
        for rule in &mut rules {
            rule.conditions.not_ip.extend(common.iter().cloned());
        }
        if !denied.is_empty() {
            let mut rule = RuleDraft::denying("denied-ips".into(), 403);
            rule.conditions.ip = denied;
            // A document may have this id, too.
            while rules.iter().any(|it| it.id == rule.id) {
                rule.id.push_str("-list");
            }
            rules.insert(0, rule);
        }
        RuleSetDraft {
            name,
            rules,
            ..RuleSetDraft::default()
        }
    }
}

impl DocumentReader<'_> {
    fn document(&mut self, node: &Node, default_set: &str) {
        let fields = Fields::read(node, "a rule", self.faults);
        let line = node.position.line;
        let own_set = fields.first_text(&["ruleSetId", "ruleSetIdOrNull"], self.faults);
        let set = set_name(own_set.unwrap_or(default_set));
        let Some(id) = fields.text("id", self.faults) else {
            self.faults.add(node.position, "a rule needs an `id`");
            return;
        };
        let mut rule = RuleDraft::new(String::new(), Algorithm::TokenBucket);
        self.name(&fields, id, &mut rule);
        rule.enabled = fields.boolean("enabled", true, self.faults);
        rule.key = self.key(&fields);
        let policies = [
            ("REJECT_REQUEST", None),
            ("WAIT_FOR_REFILL", Some(Duration::from_secs(5))),
        ];
        let policy = fields.one_of("onLimitExceedPolicy", &policies, self.faults);
        rule.max_wait = policy.flatten();
        let matcher = fields
            .get("matcher")
            .map(|node| Fields::read(node, "`matcher`", self.faults));
        let read = match &matcher {
            Some(matcher) => {
                let unread = matcher.unread("`matcher`", &[CONDITIONS]);
                rule.remarks.extend(unread);
                "matcher"
            }
            None => CONDITIONS,
        };
        let unread = fields.unread("a rule", &[READ, read, IRRELEVANT]);
        rule.remarks.extend(unread);
        let has_conditions = self.conditions(matcher.as_ref().unwrap_or(&fields), &mut rule, id);
        self.attributes(&fields, &mut rule);
        for name in ["allowedKeys", "deniedKeys"] {
            if !fields.list(name, self.faults).is_empty() {
                let text = format!("`{name}`");
                rule.remarks.push(Remark::lost(fields.line(name), text));
            }
        }
        if let Some(priority) = fields.text("priority", self.faults).filter(|it| *it != "0") {
            let text = format!("`priority: {priority}`: all rules that match apply, in any order");
            rule.remarks
                .push(Remark::lost(fields.line("priority"), text));
        }
        let bands = self.bands(&fields, node);
        let allowed = self.addresses(&fields, "allowedIps");
        let denied = self.addresses(&fields, "deniedIps");
        let known = self.sets.iter().position(|it| it.name == set);
        let index = known.unwrap_or_else(|| {
            self.sets.push(PendingSet {
                name: set.clone(),
                line,
                ..PendingSet::default()
            });
            self.sets.len() - 1
        });
        let ids = self.ids.entry(set).or_default();
        let pending = &mut self.sets[index];
        pending.allowed.push(allowed);
        for address in denied {
            if !pending.denied.contains(&address) {
                pending.denied.push(address);
            }
        }
        if !has_conditions {
            return;
        }
        let is_split = bands.len() > 1;
        for (number, part) in bands.into_iter().enumerate() {
            let mut rule = rule.clone();
            if number > 0 {
                rule.remarks.clear();
            }
            let suffix = if is_split { part.id_suffix() } else { "" };
            rule.id = ids.unique(&format!("{}{suffix}", rule_id(id)));
            rule.algorithm = part.algorithm;
            rule.bands = part.bands;
            rule.remarks.extend(part.remarks);
            pending.rules.push(rule);
        }
    }

    /// Sets the name of a rule. An id that a rule cannot have is kept there.
    fn name(&mut self, fields: &Fields<'_>, id: &str, rule: &mut RuleDraft) {
        let made = rule_id(id);
        let own = fields
            .text("name", self.faults)
            .filter(|name| *name != made);
        if made == id {
            rule.name = own.map(str::to_owned);
            return;
        }
        let line = fields.line("id");
        let is_kept = !is_expressible(id) || own.is_none();
        let kept = if is_kept { " and kept in `name`" } else { "" };
        let text = format!("the id `{id}` is `{made}` here{kept}");
        rule.remarks.push(Remark::changed(line, text));
        if is_kept && let Some(own) = own.filter(|own| *own != id) {
            let text = format!("the name `{own}`");
            rule.remarks.push(Remark::lost(fields.line("name"), text));
        }
        rule.name = Some(if is_kept { id } else { own.unwrap_or(id) }.to_owned());
    }

    fn key(&mut self, fields: &Fields<'_>) -> Vec<KeyPart> {
        let scopes = ["GLOBAL", "PER_IP", "PER_USER", "PER_API_KEY", "CUSTOM"];
        let scope = fields.one_of("scope", &scopes.map(|name| (name, name)), self.faults);
        match scope {
            Some("GLOBAL") => Vec::new(),
            Some("PER_IP") => vec![KeyPart::Ip],
            Some("PER_USER") => vec![KeyPart::User],
            Some("CUSTOM") => {
                let strategy = fields
                    .text("keyStrategyId", self.faults)
                    .unwrap_or_default();
                if strategy.is_empty() {
                    let text = "`scope: CUSTOM` needs a `keyStrategyId`";
                    self.faults.add(fields.position, text);
                }
                vec![KeyPart::Attribute(strategy.into())]
            }
            // Its default, too.
            _ => vec![KeyPart::ApiKey],
        }
    }

    /// Reads the conditions. Returns whether a rule can have them.
    fn conditions(&mut self, fields: &Fields<'_>, rule: &mut RuleDraft, id: &str) -> bool {
        let mut conditions = Conditions::default();
        let methods = fields.texts("methods", self.faults).into_iter();
        conditions.methods = methods
            .map(|(method, _)| method.to_ascii_uppercase())
            .collect();
        for (pattern, line) in fields.texts("pathPatterns", self.faults) {
            match path_patterns::ant(pattern) {
                Some(pattern) => conditions.path.push(pattern),
                None => {
                    let text = format!("the path pattern `{pattern}` of rule `{id}`");
                    self.remarks.push(Remark::lost(line, text));
                }
            }
        }
        let has_paths = !fields.list("pathPatterns", self.faults).is_empty();
        if has_paths && conditions.path.is_empty() {
            return false;
        }
        for (pattern, line) in fields.texts("excludePathPatterns", self.faults) {
            match path_patterns::ant(pattern) {
                Some(pattern) => conditions.not_path.push(pattern),
                None => {
                    let text = format!("the exclusion of `{pattern}`");
                    rule.remarks.push(Remark::lost(line, text));
                }
            }
        }
        if let Some(node) = fields.get("headerEquals") {
            for (name, key, value) in node.map("`headerEquals`", self.faults) {
                values::header_name(name, key.position, self.faults);
                if let Some(value) = value.text("a header's value", self.faults) {
                    conditions.headers.push((name.to_owned(), value.into()));
                }
            }
        }
        for node in fields.list("headerPresent", self.faults) {
            let Some(name) = node.text("an item of `headerPresent`", self.faults) else {
                continue;
            };
            values::header_name(name, node.position, self.faults);
            let has_value = |(known, _): &(String, ValueMatch)| known.eq_ignore_ascii_case(name);
            if !conditions.headers.iter().any(has_value) {
                conditions
                    .headers
                    .push((name.to_owned(), ValueMatch::present()));
            }
        }
        rule.conditions = conditions;
        true
    }

    fn attributes(&mut self, fields: &Fields<'_>, rule: &mut RuleDraft) {
        let Some(node) = fields.get("attributes") else {
            return;
        };
        for (name, key, value) in node.map("`attributes`", self.faults) {
            match value.as_text() {
                Some(text) => rule.attributes.push((name.to_owned(), text.to_owned())),
                None => {
                    let text = format!("the attribute `{name}`: its value is not a text");
                    rule.remarks.push(Remark::lost(key.position.line, text));
                }
            }
        }
    }

    fn bands(&mut self, fields: &Fields<'_>, node: &Node) -> Vec<AlgorithmBands> {
        let nodes = fields.list("bands", self.faults);
        if nodes.is_empty() {
            self.faults.add(node.position, "a rule needs `bands`");
        }
        bands::read(nodes, &mut self.remarks, self.faults)
    }

    fn addresses(&mut self, fields: &Fields<'_>, name: &str) -> Vec<String> {
        let mut addresses = Vec::new();
        for node in fields.list(name, self.faults) {
            let Some(text) = node.text(&format!("an item of `{name}`"), self.faults) else {
                continue;
            };
            match network(text) {
                Some(network) => addresses.push(network_text(&network)),
                None => {
                    let text = format!("`{text}` is not an address or a range such as 10.0.0.0/8");
                    self.faults.add(node.position, text);
                }
            }
        }
        addresses
    }
}
