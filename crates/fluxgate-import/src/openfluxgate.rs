//! The rule documents of OpenFluxGate, as its MongoDB collection and its REST API write them, or
//! the `application.yml` of an application.
//!
//! Rules are in JSON or YAML: one document, a list of them, or a mapping with `rules`.

mod application;
mod bands;
mod live;
mod overlay;

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use fluxgate_core::rules::values;
use fluxgate_core::yaml::{Fault, Faults, Node, Position, Value};
use fluxgate_core::{Algorithm, KeyPart, ValueMatch};

use crate::draft::{Conditions, Draft, Remark, RuleDraft, RuleSetDraft};
use crate::fields::{Fields, items};
use crate::names::{UniqueNames, network, network_text, rule_id, set_name};
use crate::path_patterns;
use crate::spring::Properties;
use bands::AlgorithmBands;
pub use live::{LiveDocuments, openfluxgate_documents};
use overlay::Overlay;

/// The fields of a rule, except for its conditions.
const READ: &str = "id name enabled scope keyStrategyId onLimitExceedPolicy ruleSetId \
    ruleSetIdOrNull bands attributes allowedIps deniedIps allowedKeys deniedKeys priority";

/// The conditions, which are fields of a rule or of its `matcher`.
const CONDITIONS: &str = "methods pathPatterns excludePathPatterns headerEquals headerPresent";

/// The most bytes of an id in live documents: it becomes the name of a rule.
const MAX_DOCUMENT_ID: usize = 1_000;

/// The fields that MongoDB and the REST API add, and texts for people.
const IRRELEVANT: &str = "_id _class __v createdAt updatedAt description";

/// Reads rule documents.
pub(crate) fn read(text: &str, faults: &mut Faults) -> Result<Draft, Fault> {
    let nodes = crate::fields::documents(text)?;
    let mut remarks = Vec::new();
    let is_properties = |node: &&Node| node.as_text().is_some_and(|it| it.contains("fluxgate."));
    if let Some(node) = nodes.iter().find(is_properties) {
        let message = "this is not YAML but a .properties file; convert it to application.yml";
        let (position, message) = (node.position, message.into());
        return Err(Fault { position, message });
    }
    if nodes.iter().any(application::is_application) {
        let properties = Properties::read(text, &["fluxgate"], &mut remarks)?;
        return Ok(application::read(&properties, remarks, faults));
    }
    let node = crate::fields::document(text)?;
    let (documents, default_set) = documents(&node, &mut remarks, faults);
    let mut reader = DocumentReader::new(Purpose::Import, remarks, faults);
    for document in documents {
        reader.document(document, default_set);
    }
    let (sets, remarks) = reader.finish();
    let sets = sets.into_iter().map(|set| RuleSetDraft {
        name: set.name,
        rules: set.rules.into_iter().map(|rule| rule.draft).collect(),
        ..RuleSetDraft::default()
    });
    Ok(Draft {
        remarks,
        sets: sets.collect(),
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

/// What documents are read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// A rule file, which people read.
    Import,
    /// The rules of a service, which reads the documents again and again. A rule keeps its id
    /// whatever other documents there are, as far as possible.
    Live,
}

struct DocumentReader<'r, 'n> {
    purpose: Purpose,
    faults: &'r mut Faults,
    remarks: Vec<Remark>,
    sets: Vec<PendingSet<'n>>,
    /// The indices of the sets, by their names.
    indices: HashMap<String, usize>,
}

/// A rule set whose access lists are not known yet. OpenFluxGate merges the copies in its
/// documents: an address is allowed if every document allows it, denied if one does.
#[derive(Debug)]
struct PendingSet<'n> {
    name: String,
    /// The position of its first document.
    position: Position,
    rules: Vec<PendingRule<'n>>,
    /// The ids of its rules.
    ids: UniqueNames,
    /// The ids of its documents.
    documents: HashSet<&'n str>,
    /// The addresses that each document allows.
    allowed: Vec<Vec<String>>,
    denied: Vec<String>,
}

/// A rule, and the document that it is made from.
#[derive(Clone, Debug)]
struct PendingRule<'n> {
    draft: RuleDraft,
    position: Position,
    overlay: Overlay<'n>,
}

impl PendingSet<'_> {
    fn new(name: String, position: Position) -> Self {
        Self {
            name,
            position,
            rules: Vec::new(),
            ids: UniqueNames::default(),
            documents: HashSet::new(),
            allowed: Vec::new(),
            denied: Vec::new(),
        }
    }

    /// Adds the access lists to the rules.
    fn apply_access_lists(&mut self, remarks: &mut Vec<Remark>) {
        let mut counts: HashMap<&str, usize> = HashMap::new();
        for list in &self.allowed {
            let unique: HashSet<_> = list.iter().map(String::as_str).collect();
            for address in unique {
                *counts.entry(address).or_default() += 1;
            }
        }
        let all = self.allowed.len();
        if counts.values().any(|count| *count < all) {
            let text = "`allowedIps` that not every rule of the set has";
            remarks.push(Remark::lost(self.position.line, text));
        }
        let first = self.allowed.first().into_iter().flatten();
        let common: Vec<_> = first
            .filter(|address| counts.get(address.as_str()) == Some(&all))
            .cloned()
            .collect();
        for rule in &mut self.rules {
            rule.draft.conditions.not_ip.extend_from_slice(&common);
        }
        if !self.denied.is_empty() {
            let mut rule = RuleDraft::denying("denied-ips".into(), 403);
            let mut seen = HashSet::new();
            self.denied.retain(|address| seen.insert(address.clone()));
            rule.conditions.ip = std::mem::take(&mut self.denied);
            // A document may have this id, too.
            while self.rules.iter().any(|it| it.draft.id == rule.id) {
                rule.id.push_str("-list");
            }
            let rule = PendingRule {
                draft: rule,
                position: self.position,
                overlay: Overlay::default(),
            };
            self.rules.insert(0, rule);
        }
    }
}

impl<'r, 'n> DocumentReader<'r, 'n> {
    fn new(purpose: Purpose, remarks: Vec<Remark>, faults: &'r mut Faults) -> Self {
        Self {
            purpose,
            faults,
            remarks,
            sets: Vec::new(),
            indices: HashMap::new(),
        }
    }

    /// Returns the sets, and the remarks that belong to none of their rules.
    fn finish(self) -> (Vec<PendingSet<'n>>, Vec<Remark>) {
        let Self {
            mut sets,
            mut remarks,
            ..
        } = self;
        for set in &mut sets {
            set.apply_access_lists(&mut remarks);
        }
        (sets, remarks)
    }

    /// Returns the set of a document.
    fn set_of(&mut self, fields: &Fields<'n>, default_set: &str) -> &mut PendingSet<'n> {
        let own = fields.first_text(&["ruleSetId", "ruleSetIdOrNull"], self.faults);
        let name = own.unwrap_or(default_set);
        let name = match self.purpose {
            Purpose::Import => set_name(name),
            Purpose::Live => name.to_owned(),
        };
        let sets = &mut self.sets;
        let index = *self.indices.entry(name).or_insert_with_key(|name| {
            sets.push(PendingSet::new(name.clone(), fields.position));
            sets.len() - 1
        });
        &mut self.sets[index]
    }

    fn document(&mut self, node: &'n Node, default_set: &str) {
        let fields = Fields::read(node, "a rule", self.faults);
        let overlay = match self.purpose {
            Purpose::Import => Overlay::default(),
            Purpose::Live => Overlay::read(fields.get("fluxgate"), self.faults),
        };
        let own_id = fields.text("id", self.faults);
        let Some(id) = own_id.or_else(|| overlay.text("id")) else {
            self.faults.add(node.position, "a rule needs an `id`");
            return;
        };
        if self.purpose == Purpose::Live && !(1..=MAX_DOCUMENT_ID).contains(&id.len()) {
            let text = format!("`id` must have 1 to {MAX_DOCUMENT_ID} bytes");
            self.faults.add(node.position, text);
            return;
        }
        let mut rule = RuleDraft::new(String::new(), Algorithm::TokenBucket);
        self.name(&fields, id, &mut rule);
        rule.enabled = fields.boolean("enabled", true, self.faults);
        if !overlay.has_key() {
            rule.key = self.key(&fields);
        }
        let policies = [
            ("REJECT_REQUEST", None),
            ("WAIT_FOR_REFILL", Some(Duration::from_secs(5))),
        ];
        let policy = fields.one_of("onLimitExceedPolicy", &policies, self.faults);
        rule.max_wait = policy.flatten();
        let has_conditions = self.match_fields(&fields, &overlay, &mut rule, id);
        self.attributes(&fields, &mut rule);
        self.remark_on_lost(&fields, &overlay, &mut rule);
        let bands = if overlay.has_bands() {
            vec![AlgorithmBands::none()]
        } else {
            let bands = self.bands(&fields, node);
            match overlay.get("algorithm") {
                Some(_) => AlgorithmBands::joined(bands),
                None => bands,
            }
        };
        let allowed = self.addresses(&fields, "allowedIps");
        let denied = self.addresses(&fields, "deniedIps");
        let purpose = self.purpose;
        let set = self.set_of(&fields, default_set);
        set.allowed.push(allowed);
        set.denied.extend(denied);
        if purpose == Purpose::Live && !set.documents.insert(id) {
            let text = format!(
                "another document of rule set `{}` has the id `{id}`",
                set.name
            );
            self.faults.add(node.position, text);
            return;
        }
        if !has_conditions {
            if purpose == Purpose::Live {
                let text =
                    "a rule cannot express any of `pathPatterns`; write `match` in `fluxgate`";
                self.faults.add(node.position, text);
            }
            return;
        }
        let is_split = bands.len() > 1;
        for (number, part) in bands.into_iter().enumerate() {
            let mut rule = rule.clone();
            if number > 0 {
                rule.remarks.clear();
            }
            let suffix = if is_split { part.id_suffix() } else { "" };
            let made = format!("{}{suffix}", rule_id(id));
            // The ids of such documents are reserved, see `reserve`.
            let is_own = purpose == Purpose::Live && made == id;
            rule.id = if is_own { made } else { set.ids.unique(&made) };
            rule.algorithm = part.algorithm;
            rule.bands = part.bands;
            rule.remarks.extend(part.remarks);
            set.rules.push(PendingRule {
                draft: rule,
                position: node.position,
                overlay,
            });
        }
    }

    /// Keeps the id of a document for its rule, if a rule can have it.
    fn reserve(&mut self, node: &'n Node, default_set: &str) {
        // `document` reports the faults.
        let mut faults = Faults::default();
        let fields = Fields::read(node, "a rule", &mut faults);
        if let Some(id) = fields.text("id", &mut faults)
            && rule_id(id) == id
        {
            self.set_of(&fields, default_set).ids.unique(id);
        }
    }

    /// Reads the conditions, from `matcher` if there is one, and adds remarks on the fields that
    /// no rule has. Returns whether a rule can have the conditions.
    fn match_fields(
        &mut self,
        fields: &Fields<'_>,
        overlay: &Overlay<'_>,
        rule: &mut RuleDraft,
        id: &str,
    ) -> bool {
        let matcher = fields
            .get("matcher")
            .map(|node| Fields::read(node, "`matcher`", self.faults));
        let conditions = match &matcher {
            Some(matcher) => {
                let unread = matcher.unread("`matcher`", &[CONDITIONS]);
                rule.remarks.extend(unread);
                "matcher"
            }
            None => CONDITIONS,
        };
        let overlay_field = match self.purpose {
            Purpose::Import => "",
            Purpose::Live => "fluxgate",
        };
        let known = [READ, conditions, IRRELEVANT, overlay_field];
        rule.remarks.extend(fields.unread("a rule", &known));
        let is_replaced = overlay.get("match").is_some();
        is_replaced || self.conditions(matcher.as_ref().unwrap_or(fields), rule, id)
    }

    /// Adds remarks on fields that mean something else in a rule.
    fn remark_on_lost(&mut self, fields: &Fields<'_>, overlay: &Overlay<'_>, rule: &mut RuleDraft) {
        for name in ["allowedKeys", "deniedKeys"] {
            if !fields.list(name, self.faults).is_empty() {
                let text = format!("`{name}`");
                rule.remarks.push(Remark::lost(fields.line(name), text));
            }
        }
        let priority = fields.text("priority", self.faults);
        let priority = priority.filter(|it| *it != "0" && overlay.get("priority").is_none());
        if let Some(priority) = priority {
            let text = format!("`priority: {priority}`: all rules that match apply, in any order");
            let line = fields.line("priority");
            rule.remarks.push(Remark::lost(line, text));
        }
    }

    /// Sets the name of a rule: that of the document. An id that a rule cannot have is kept
    /// there, too, so that it can be found.
    fn name(&mut self, fields: &Fields<'_>, id: &str, rule: &mut RuleDraft) {
        let made = rule_id(id);
        let own = fields
            .text("name", self.faults)
            .filter(|name| !name.is_empty() && *name != made);
        if made == id {
            rule.name = own.map(str::to_owned);
            return;
        }
        rule.name = Some(match own {
            Some(own) if own != id => format!("{own} ({id})"),
            _ => id.to_owned(),
        });
        if self.purpose == Purpose::Import {
            let text = format!("the id `{id}` is `{made}` here, and kept in `name`");
            rule.remarks.push(Remark::changed(fields.line("id"), text));
        }
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
