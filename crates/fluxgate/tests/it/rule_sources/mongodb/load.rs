//! Many rules, and too many.

use std::fs;

use fluxgate_testkit::{Stopwatch, wait_until};
use mongodb::bson::doc;

use super::document;
use super::server::{MongoJavaServer, RuleWriter};
use crate::service::{Service, limit};
use crate::support::Dir;

#[test]
fn ten_thousand_rules_load_and_change() {
    // FerretDB needs seconds for so many documents.
    let server = MongoJavaServer::start();
    let writer = RuleWriter::connect(server.address);
    let rules = (0..10_000).map(|number| {
        let matched = doc! { "match": { "path": [format!("/api/v1/resource-{number}/**")] } };
        let id = format!("per-user-limit-{number}");
        document(&id, "api", doc! { "name": "Per user", "fluxgate": matched })
    });
    writer.insert(rules);
    writer.insert([document("observed", "observed", doc! {})]);
    let config = format!(
        "rules_from: {{ mongodb: {{ url: 'mongodb://{}' }}, poll: 100ms }}\n",
        server.address
    );
    let watch = Stopwatch::start();
    let service = Service::start(&[], &config);
    let loaded = watch.elapsed();
    let mut http = service.http();
    assert_eq!(limit(&mut http, "observed"), Some(5));
    let bands = doc! { "bands": [ { "windowSeconds": 3600, "capacity": 6 } ] };
    let watch = Stopwatch::start();
    writer.upsert(&document("observed", "observed", bands));
    wait_until("the change", || limit(&mut http, "observed") == Some(6));
    let changed = watch.elapsed();
    eprintln!(
        "10,000 rules: started with them in {loaded:?}, a change was active after {changed:?}"
    );
}

/// The service stops reading as soon as there are too many.
#[test]
fn too_many_documents_are_refused_without_the_memory() {
    let server = MongoJavaServer::start();
    let writer = RuleWriter::connect(server.address);
    let text = "x".repeat(50);
    let count = match std::env::var_os("FLUXGATE_LONG") {
        Some(_) => 1_000_000,
        None => 100_001,
    };
    writer.insert((0..count).map(|number| doc! { "id": number, "text": &text }));
    let dir = Dir::new();
    dir.write(
        "fluxgate.yaml",
        format!(
            "listen: {{ api: \"127.0.0.1:0\" }}\nrules_from: {{ mongodb: {{ url: 'mongodb://{}' }} }}\n",
            server.address
        ),
    );
    let service = Service::open_in(dir, &["run", "--config", "fluxgate.yaml"], 1);
    let line = service.wait_for_log("there are no rules yet");
    assert_eq!(
        line["why"],
        "fluxgate.rate_limit_rules: there are more than 100000 documents"
    );
    assert_eq!(service.http().get("/readyz").status, 503);
    let status = fs::read_to_string(format!("/proc/{}/status", service.program.id())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes: u64 = peak
        .unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap();
    assert!(kilobytes < 400 << 10, "{kilobytes} kB");
}
