//! From documents to rules, with faults that name the document and the field.

use fluxgate_core::RuleSets;
use fluxgate_core::rules::RuleOptions;
use fluxgate_core::yaml::{Faults, Node, Position};
use fluxgate_import::openfluxgate_documents;

use super::documents::{DocumentConverter, field_at, shortened};
use crate::config::Deployment;
use crate::reload::error::ReloadError;
use crate::reload::snapshot::{CompiledRules, Document};

/// The most characters of a message, which may quote values of any length.
const MAX_MESSAGE: usize = 1_000;

/// Compiles the rules of all documents, all or none. `namespace` names their collection.
pub(super) fn compile(
    documents: &[Document],
    options: RuleOptions,
    deployment: &Deployment,
    namespace: &str,
) -> Result<CompiledRules, ReloadError> {
    let mut faults = Faults::default();
    let mut converter = DocumentConverter::new();
    let mut nodes = Vec::with_capacity(documents.len());
    for document in documents {
        match converter.convert(&document.content) {
            Ok(node) => nodes.push(node),
            Err(message) => faults.add(converter.position(), message),
        }
    }
    let places = Places {
        documents,
        nodes: &nodes,
        namespace,
    };
    let live = openfluxgate_documents(&nodes, &mut faults);
    let rules = RuleSets::read(&live.rule_sets, options, &mut faults);
    if faults.count() > 0 {
        let faults = faults.into_sorted().into_iter();
        let lines = faults.map(|fault| places.line(fault.position, &fault.message));
        return Err(ReloadError::Invalid(lines.collect()));
    }
    let mut warnings = Vec::new();
    if documents.is_empty() {
        let message = "there are no documents, so there are no rules";
        warnings.push(format!("{namespace}: warning: {message}"));
    }
    for remark in &live.remarks {
        let position = Position {
            line: remark.line,
            column: 1,
        };
        let message = format!("warning: {}", remark.sentence());
        warnings.push(places.line(position, &message));
    }
    for warning in deployment.warnings(&rules, &live.rule_sets) {
        let message = format!("warning: {}", warning.message);
        warnings.push(places.line(warning.position, &message));
    }
    warnings.extend(deployment.missing_rule_sets(&rules, namespace));
    Ok(CompiledRules {
        rules,
        warnings,
        settings: None,
    })
}

/// Finds documents and fields by the positions of their values.
struct Places<'a> {
    documents: &'a [Document],
    /// Those of the documents that are not malformed.
    nodes: &'a [Node],
    namespace: &'a str,
}

impl Places<'_> {
    /// Returns a line about a value: `fluxgate.rules: document "a", field bands.0: …`.
    fn line(&self, position: Position, message: &str) -> String {
        let namespace = self.namespace;
        let message = shortened(message, MAX_MESSAGE);
        let index = position.line.checked_sub(1);
        let Some(document) = index.and_then(|index| self.documents.get(index)) else {
            return format!("{namespace}: {message}");
        };
        let name = &document.name;
        let node = self
            .nodes
            .binary_search_by_key(&position.line, |node| node.position.line);
        let field = node
            .ok()
            .and_then(|index| field_at(&self.nodes[index], position));
        let field = field.map(|field| format!(", field {}", shortened(&field, MAX_MESSAGE)));
        let field = field.unwrap_or_default();
        format!("{namespace}: {name}{field}: {message}")
    }
}
