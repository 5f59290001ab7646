//! An axum service with the layer beside the same without. `wrk` asks both.

use std::env;
use std::net::SocketAddr;

use axum::Router;
use axum::routing::get;
use fluxgate_core::{Limiter, MemoryStore, RuleSets};
use fluxgate_testkit::Program;
use fluxgate_tower::RateLimitLayer;

use crate::folder::Folder;
use crate::load::compare;
use crate::report::Report;
use crate::wrk;

/// Has this program be the service; it says where it listens.
pub(crate) const SERVE: &str = "--serve-axum";
const WITH: &str = "with-layer";
const WITHOUT: &str = "without-layer";

/// A rule that counts users and refuses none.
const RULES: &str = "
rule_sets:
  api:
    rules:
      - { id: per-user, scope: per_user, bands: [ { id: burst, capacity: 1000000, window: 1s } ] }
";

pub(crate) fn run(report: &mut Report) {
    let folder = Folder::new("layer");
    let script = wrk::script(&folder, wrk::USERS);
    let (with, without) = (start(WITH), start(WITHOUT));
    compare(
        report,
        "layer",
        "the same axum service without the layer",
        || wrk::ask(with.1, &script),
        || wrk::ask(without.1, &script),
    );
}

#[expect(clippy::unwrap_used, reason = "a benchmark that cannot run has failed")]
fn start(how: &str) -> (Program, SocketAddr) {
    let program = Program::start(env::current_exe().unwrap(), |command| {
        command.arg(SERVE).arg(how);
    });
    let address = program.wait_for_line("the service listens", |line| line.parse().ok());
    (program, address)
}

/// Serves until it is killed.
#[expect(clippy::unwrap_used, reason = "a benchmark that cannot run has failed")]
pub(crate) fn serve(how: &str) {
    let limiter = Limiter::new(RuleSets::from_yaml(RULES).unwrap(), MemoryStore::default());
    let app = Router::new().route("/api/x", get(|| async { "hello, world" }));
    let app = match how {
        WITH => app.layer(RateLimitLayer::new(limiter).rule_set("api")),
        _ => app,
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        eprintln!("{}", listener.local_addr().unwrap());
        axum::serve(listener, app).await.unwrap();
    });
}
