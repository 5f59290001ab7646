//! The suite that every store must pass, on the script.

use fluxgate_core::{conformance, ready};
use fluxgate_redis::injected_time::InjectedStore;

use crate::server::RedisServer;

#[test]
fn the_script_decides_as_the_vectors_say() {
    let server = RedisServer::start();
    let wire = server.connect();
    let steps = ready(conformance::run(async |clock| {
        wire.clear();
        InjectedStore::new(&wire, clock)
    }));
    let steps = steps.unwrap_or_else(|mismatch| panic!("{mismatch}"));
    assert!(steps > 300, "only {steps} steps were checked");
}
