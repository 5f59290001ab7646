//! The same rules give the same decisions, whatever their source.

use std::collections::BTreeMap;
use std::fs;

use fluxgate_core::rules::RuleOptions;
use fluxgate_core::yaml::Node;
use fluxgate_core::{MemoryStore, RuleSets, conformance};
use serde_json::{Map, Value};

use super::RuleHost;
use crate::service::Service;
use crate::support::project_file;

/// Writes the rules of all vectors to a host, and replays the vectors with the rules that a
/// service has read there.
pub(super) fn the_vectors_are_decided_as_they_should<H: RuleHost>() {
    let host = H::start(&Value::Object(all_sets()));
    let service = Service::start(&[], &host.config(""));
    let read = active_sets(&service);
    let mut used = 0;
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let replay = conformance::run_with(
        async |clock| MemoryStore::with_clock(clock),
        |original| {
            let set = read[&name(used)].clone();
            used += 1;
            let set = RuleSets::read_set("s", set, RuleOptions::default()).unwrap();
            assert_eq!(set.to_yaml(), original.to_yaml());
            set
        },
    );
    let steps = runtime.unwrap().block_on(replay).unwrap();
    assert!(steps > 1_000, "{steps}");
    assert_eq!(used, read.len());
}

fn name(number: usize) -> String {
    format!("v{number}")
}

/// Returns the rule sets of all vectors, in the order in which they are replayed.
fn all_sets() -> Map<String, Value> {
    let folder = project_file("spec/vectors");
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let mut sets = Vec::new();
    for file in files {
        let vectors: Vec<Value> = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
        for vector in vectors {
            let replaced = vector["steps"].as_array().unwrap().iter();
            let replaced = replaced.filter_map(|step| step.get("replace"));
            let rules = [&vector["rules"]].into_iter().chain(replaced);
            sets.extend(rules.map(|rules| rules["rule_sets"]["s"].clone()));
        }
    }
    let sets = sets.into_iter().enumerate();
    sets.map(|(number, set)| (name(number), set)).collect()
}

/// Returns the active rule sets of a service.
fn active_sets(service: &Service) -> BTreeMap<String, Node> {
    let answer = service.http().get("/v1/rules_text");
    assert_eq!(answer.status, 200, "{answer:?}");
    let answer: Value = serde_json::from_str(&answer.body).unwrap();
    let root = Node::parse(answer["text"].as_str().unwrap()).unwrap();
    let mut faults = fluxgate_core::yaml::Faults::default();
    let [sets] = root.fields("a rule file", ["rule_sets"], &mut faults);
    let fluxgate_core::yaml::Value::Map(sets) = &sets.unwrap().value else {
        panic!("not a mapping: {answer}");
    };
    let named = sets.iter().map(|(key, set)| {
        let name = key.as_text().unwrap().to_owned();
        (name, set.clone())
    });
    named.collect()
}
