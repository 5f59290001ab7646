//! Rules in MongoDB.

mod access;
mod documents;
mod load;
mod message_proxy;
mod server;
mod streams;

use fluxgate_testkit::FaultProxy;
use mongodb::bson::{Bson, Document, doc, serialize_to_bson};
use serde_json::{Value, json};

use super::suite::rule_source_suite;
use super::{Corruption, POLL, RuleHost};
use server::{FerretDb, RuleWriter};

rule_source_suite!(
    MongoHost,
    silence_keeps_the_rules,
    the_cache_is_enough_for_a_start
);

/// A server behind a proxy that breaks its connections.
struct MongoHost {
    _server: FerretDb,
    proxy: FaultProxy,
    writer: RuleWriter,
}

/// Returns documents whose field `fluxgate` has all fields of the rules.
fn documents_of(rule_sets: &Value) -> Vec<Document> {
    let mut documents = Vec::new();
    for (name, set) in rule_sets.as_object().unwrap() {
        for (number, rule) in set["rules"].as_array().unwrap().iter().enumerate() {
            let mut fields = rule.as_object().unwrap().clone();
            for name in ["on_error", "lists"] {
                let value = set.get(name).cloned();
                fields.extend(value.map(|value| (name.to_owned(), value)));
            }
            let id = format!("{name}-{number:06}");
            let document = json!({ "id": id, "ruleSetId": name, "fluxgate": fields });
            documents.push(to_document(&document));
        }
    }
    if documents.is_empty() {
        // A collection without documents changes nothing.
        documents.push(document("none", "none", doc! { "enabled": false }));
    }
    documents
}

fn to_document(json: &Value) -> Document {
    match serialize_to_bson(json) {
        Ok(Bson::Document(document)) => document,
        other => panic!("{other:?}"),
    }
}

/// Returns the document of a rule with these further fields.
fn document(id: &str, rule_set: &str, more: Document) -> Document {
    let mut document = doc! {
        "id": id, "ruleSetId": rule_set, "scope": "PER_USER",
        "bands": [ { "windowSeconds": 3600_i64, "capacity": 5_i64 } ],
    };
    document.extend(more);
    document
}

impl RuleHost for MongoHost {
    fn start(rule_sets: &Value) -> Self {
        let server = FerretDb::start();
        let writer = RuleWriter::connect(server.address);
        writer.insert(documents_of(rule_sets));
        Self {
            proxy: FaultProxy::start(server.address),
            _server: server,
            writer,
        }
    }

    fn config(&self, fields: &str) -> String {
        let (url, poll) = (self.proxy.url("mongodb"), POLL.as_millis());
        format!("rules_from: {{ mongodb: {{ url: {url:?}{fields} }}, poll: {poll}ms }}\n")
    }

    fn write(&self, rule_sets: &Value) {
        self.writer.replace_all(&documents_of(rule_sets));
    }

    fn place(&self) -> String {
        "fluxgate.rate_limit_rules: document \"api-000000\"".into()
    }

    fn corrupt(&self, how: Corruption) -> Option<String> {
        let (documents, expected): (Vec<_>, _) = match how {
            Corruption::WrongType => {
                let person = doc! { "_id": "p1", "name": "Ann", "email": "ann@example.com" };
                (vec![person], "document without `id` (`_id` p1)")
            }
            Corruption::Endless => {
                let text = "x".repeat(1 << 20);
                let large = |number: u32| {
                    let attributes = doc! { "attributes": { "text": &text } };
                    document(&format!("l{number}"), "other", attributes)
                };
                ((0..20).map(large).collect(), "more than 16777216 bytes")
            }
            // A document is one rule. `load` has as many of them.
            Corruption::ManyDocuments | Corruption::ManyRules => return None,
            Corruption::DeepNesting => {
                let deep = (0..90).fold(doc! {}, |inner, _| doc! { "a": inner });
                let deep = document("deep", "other", doc! { "attributes": deep });
                (vec![deep], "document \"deep\": nested too deeply")
            }
            Corruption::HugeString => {
                let huge = document(&"a".repeat(8 << 20), "other", doc! {});
                (vec![huge], "`id` must have 1 to 1000 bytes")
            }
        };
        self.writer.insert(documents);
        Some(expected.into())
    }

    fn proxy(&self) -> &FaultProxy {
        &self.proxy
    }
}
