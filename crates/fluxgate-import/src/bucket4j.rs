//! The `application.yml` of the Spring Boot starter for Bucket4j.
//!
//! A filter has a URL pattern and rate limits; with the strategy `first`, only the first of
//! them whose condition holds applies, which is what a group does. A rate limit has a key and
//! bandwidths.

mod bandwidths;
mod documents;
mod expressions;
mod filters;

use fluxgate_core::yaml::{Fault, Faults, Node};

use crate::draft::{Draft, Remark, RuleSetDraft};
use crate::names::{UniqueNames, set_name};
use crate::spring::{self, START, fields};
use documents::Document;
use filters::FilterReader;

/// The name of the rule set.
const SET: &str = "bucket4j";

/// Reads a configuration.
pub(crate) fn read(text: &str, faults: &mut Faults) -> Result<Draft, Fault> {
    let nodes = crate::fields::documents(text)?;
    let start = nodes.first().map_or(START, |node| node.position);
    let is_properties = |node: &Node| node.as_text().is_some_and(|it| it.contains("bucket4j."));
    if nodes.iter().any(is_properties) {
        let message = "this is not YAML but a .properties file; convert it to application.yml";
        return Err(Fault {
            position: start,
            message: message.into(),
        });
    }
    let documents: Vec<_> = nodes
        .iter()
        .filter_map(|node| Document::read(node, faults))
        .collect();
    if documents.is_empty() && faults.count() == 0 {
        faults.add(start, "a configuration needs `bucket4j`");
    }
    let mut draft = Draft::default();
    let mut names = UniqueNames::default();
    let count = documents.len();
    for document in documents {
        let profile = document.profile.clone();
        let line = document.line;
        let mut set = settings(document, &mut draft.remarks, faults);
        let base = match &profile {
            Some(profile) if count > 1 => set_name(&format!("{SET}-{profile}")),
            _ => SET.to_owned(),
        };
        if set.rules.is_empty() && count > 1 {
            let text = "this document: it has no limits of its own";
            draft.remarks.push(Remark::lost(line, text));
            continue;
        }
        set.name = names.unique(&base);
        if let Some(profile) = profile {
            let text = format!("these rules are for the profile `{profile}` only");
            set.remarks.push(Remark::changed(line, text));
        }
        if !draft.sets.is_empty() {
            let text =
                "Spring replaces the limits of earlier documents by these; use one of the sets";
            set.remarks.push(Remark::changed(line, text));
        }
        draft.sets.push(set);
    }
    Ok(draft)
}

/// Reads the settings of a document.
fn settings(
    mut document: Document,
    remarks: &mut Vec<Remark>,
    faults: &mut Faults,
) -> RuleSetDraft {
    spring::substitute(&mut document.settings, remarks);
    // An alias gives the same remark again.
    remarks.sort_by(|first, second| (first.line, &first.text).cmp(&(second.line, &second.text)));
    remarks.dedup();
    let settings = fields(&document.settings, "`bucket4j`", faults);
    let mut reader = FilterReader {
        faults,
        remarks,
        ids: UniqueNames::default(),
        rules: Vec::new(),
    };
    let is_enabled = settings.boolean("enabled", true, reader.faults);
    if !is_enabled {
        let text = "`enabled: false`, so the rules are disabled";
        let line = settings.line("enabled");
        reader.remarks.push(Remark::changed(line, text));
    }
    if settings.get("methods").is_some() {
        let text = "`methods`: rules apply to requests, not to methods";
        let line = settings.line("methods");
        reader.remarks.push(Remark::lost(line, text));
    }
    for (names, instead) in [
        ("cachetouse", filters::STORE),
        (
            "filterconfigcachingenabled filterconfigcachename",
            filters::RELOAD,
        ),
        (
            "defaultmetrictags defaultmethodmetrictags",
            filters::METRICS,
        ),
    ] {
        let replaced = filters::replaced(&settings, names, instead);
        reader.remarks.extend(replaced);
    }
    let replaced = "cachetouse filterconfigcachingenabled filterconfigcachename \
        defaultmetrictags defaultmethodmetrictags";
    let unread = settings.unread("`bucket4j`", &["enabled methods filters", replaced]);
    reader.remarks.extend(unread);
    let filters = settings.list("filters", reader.faults);
    for (index, filter) in filters.iter().enumerate() {
        reader.filter(filter, index);
    }
    for rule in &mut reader.rules {
        rule.enabled = is_enabled;
    }
    RuleSetDraft {
        rules: reader.rules,
        ..RuleSetDraft::default()
    }
}
