//! Change streams: changes are seen at once where the server announces them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fluxgate_testkit::{FaultProxy, Mode, Stopwatch, wait_until};
use mongodb::bson::{Document, doc};

use super::document;
use super::message_proxy::{MessageProxy, refusal};
use super::server::{FerretDb, MongoJavaServer, RuleWriter};
use crate::service::{Service, limit};

const POLLED: &str = "MongoDB has no change streams here; the rules are polled";

fn with_capacity(capacity: i64) -> mongodb::bson::Document {
    let bands = doc! { "bands": [ { "windowSeconds": 3600, "capacity": capacity } ] };
    document("r", "api", bands)
}

#[track_caller]
fn wait_for_limit(service: &Service, expected: u64) -> Duration {
    let mut http = service.http();
    let watch = Stopwatch::start();
    wait_until("the new limit", || {
        limit(&mut http, "api") == Some(expected)
    });
    watch.elapsed()
}

/// The service never polls here, so a change that it sees was announced.
#[test]
fn changes_are_announced() {
    let server = MongoJavaServer::start();
    let writer = RuleWriter::connect(server.address);
    writer.insert([with_capacity(10)]);
    let proxy = FaultProxy::start(server.address);
    let url = proxy.url("mongodb");
    let config = format!("rules_from: {{ mongodb: {{ url: {url:?} }}, poll: 1h }}\n");
    let service = Service::start(&[], &config);
    wait_for_limit(&service, 10);
    writer.upsert(&with_capacity(20));
    wait_for_limit(&service, 20);
    writer.insert([document("s", "other", doc! {})]);
    let mut http = service.http();
    wait_until("the new rule", || limit(&mut http, "other").is_some());
    writer.delete(doc! { "id": "s" });
    wait_until("no such rule", || limit(&mut http, "other").is_none());
    // A lost connection is replaced, and what was missed is read.
    proxy.set_mode(Mode::Refuse);
    proxy.reset_connections();
    service.wait_for_log(
        "MongoDB announces no changes of the rules; they take effect at the next poll",
    );
    writer.upsert(&with_capacity(30));
    proxy.heal();
    wait_for_limit(&service, 30);
    service.wait_for_log("MongoDB announces changes of the rules again");
    writer.upsert(&with_capacity(40));
    wait_for_limit(&service, 40);
    assert_eq!(service.logs(POLLED).len(), 0);
    assert_eq!(server.program.ended(), None);
}

#[test]
fn a_server_that_does_not_implement_change_streams_is_polled() {
    let server = FerretDb::start();
    expect_polling(&server, server.address, 238);
}

/// A server of MongoDB that is no member of a replica set.
#[test]
fn a_standalone_server_is_polled() {
    let server = FerretDb::start();
    let asked = Arc::new(AtomicUsize::new(0));
    let proxy = MessageProxy::start(server.address, {
        let asked = Arc::clone(&asked);
        move || {
            let asked = Arc::clone(&asked);
            move |command: &Document| {
                let stage = command.get_array("pipeline").ok()?.first()?.as_document()?;
                stage.contains_key("$changeStream").then(|| {
                    asked.fetch_add(1, Ordering::Relaxed);
                    let why = "The $changeStream stage is only supported on replica sets";
                    refusal(40573, "Location40573", why)
                })
            }
        }
    });
    expect_polling(&server, proxy.address, 40573);
    assert_eq!(asked.load(Ordering::Relaxed), 1);
}

/// Starts a service that reads the rules of `server` at `address`. It must find out, and log once,
/// that changes are not announced there.
fn expect_polling(server: &FerretDb, address: SocketAddr, code: i32) {
    let writer = RuleWriter::connect(server.address);
    writer.insert([with_capacity(10)]);
    let config =
        format!("rules_from: {{ mongodb: {{ url: 'mongodb://{address}' }}, poll: 100ms }}\n");
    let service = Service::start(&[], &config);
    wait_for_limit(&service, 10);
    let line = service.wait_for_log(POLLED);
    assert_eq!(line["code"], code, "{line}");
    assert_eq!(line["level"], "INFO", "{line}");
    for capacity in [20, 30] {
        writer.upsert(&with_capacity(capacity));
        wait_for_limit(&service, capacity.unsigned_abs());
    }
    assert_eq!(service.logs(POLLED).len(), 1);
    assert_eq!(service.refusals().len(), 0);
    assert_eq!(server.program.ended(), None);
}
