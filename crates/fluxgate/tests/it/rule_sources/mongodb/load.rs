//! Many rules, and too many.

use std::fs;
use std::time::Duration;

use fluxgate_testkit::{Stopwatch, wait_until};
use mongodb::bson::doc;

use super::document;
use super::server::{MongoJavaServer, RuleWriter};
use crate::service::{Service, limit};
use crate::support::Dir;

/// The times are those of a quiet machine and of the program as users have it, so they are checked
/// only if both are meant: `FLUXGATE_LONG=1 cargo test --release`.
#[test]
fn ten_thousand_rules_load_and_change() {
    let is_measured = std::env::var_os("FLUXGATE_LONG").is_some() && !cfg!(debug_assertions);
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
        "rules_from: {{ mongodb: {{ url: 'mongodb://{}' }}, poll: 30s }}\n",
        server.address
    );
    let watch = Stopwatch::start();
    let service = Service::start(&[], &config);
    let loaded = watch.elapsed();
    let started = processor_time(service.program.id());
    let mut http = service.http();
    assert_eq!(limit(&mut http, "observed"), Some(5));
    let mut times: Vec<_> = (6..11)
        .map(|capacity: i64| {
            let bands = doc! { "bands": [ { "windowSeconds": 3600, "capacity": capacity } ] };
            let watch = Stopwatch::start();
            writer.upsert(&document("observed", "observed", bands));
            let expected = Some(capacity.unsigned_abs());
            wait_until("the change", || limit(&mut http, "observed") == expected);
            watch.elapsed()
        })
        .collect();
    times.sort_unstable();
    let used = processor_time(service.program.id()) - started;
    eprintln!(
        "10,000 rules: started with them in {loaded:?}, with {started:?} of the processor; changes \
         were active after {times:?}, with {:?} of the processor each",
        used / 5
    );
    if is_measured {
        assert!(loaded < Duration::from_secs(2), "{loaded:?}");
        assert!(times[2] < Duration::from_secs(1), "{times:?}");
    }
}

/// Returns how long a process has used the processor.
fn processor_time(id: u32) -> Duration {
    const PER_SECOND: u64 = 100;
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let fields = fields.split_whitespace().skip(11).take(2);
    let ticks: u64 = fields.map(|ticks| ticks.parse::<u64>().unwrap()).sum();
    Duration::from_millis(ticks * 1000 / PER_SECOND)
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
