//! An axum service with the layer, compared with the same service without it, under `wrk`.

use std::env;
use std::net::SocketAddr;

use axum::extract::Request;
use axum::routing::get;
use axum::{Router, ServiceExt};
use fluxgate_core::{Limiter, MemoryStore, RuleSets};
use fluxgate_testkit::Program;
use fluxgate_tower::{HeaderFamilies, RateLimitLayer};
use tower_layer::Layer;

use crate::load::in_turn;
use crate::report::Report;
use crate::service::TempDir;
use crate::wrk;

/// The argument that makes this program the service. It prints its address.
pub(crate) const SERVE: &str = "--serve-axum";
/// The layer wraps the whole application.
const AROUND: &str = "around";
/// The layer is one of the router's.
const IN_ROUTER: &str = "in-router";
/// No layer; the application adds as many headers as the layer would.
const SAME_ANSWER: &str = "same-answer";
/// The layer wraps the application and adds no headers.
const SILENT: &str = "silent";
const NONE: &str = "none";

/// A rule that counts users and denies none.
const RULES: &str = "
rule_sets:
  api:
    rules:
      - { id: per-user, scope: per_user, bands: [ { id: burst, capacity: 1000000, window: 1s } ] }
";

/// Headers like those of the layer.
const HEADERS: [(&str, &str); 5] = [
    ("x-ratelimit-limit", "1000000"),
    ("x-ratelimit-remaining", "999999"),
    ("x-ratelimit-reset", "1800000000"),
    ("ratelimit-policy", "\"per-user/burst\";q=1000000;w=1"),
    ("ratelimit", "\"per-user/burst\";r=999999"),
];

pub(crate) fn run(report: &mut Report) {
    let dir = TempDir::new("layer");
    let script = wrk::script(&dir, wrk::USERS);
    let all = [AROUND, NONE, SILENT, IN_ROUTER, SAME_ANSWER].map(start);
    let [around, none, silent, in_router, same_answer] = all;
    let run = |(_, address): &(Program, SocketAddr)| wrk::ask(*address, &script);
    let [around, none, silent, in_router, same_answer] = in_turn([
        &mut || run(&around),
        &mut || run(&none),
        &mut || run(&silent),
        &mut || run(&in_router),
        &mut || run(&same_answer),
    ]);
    let bare = "the same axum service without a layer";
    around.add_to(report, "layer", bare, &none);
    in_router.add_to(report, "layer-in-router", bare, &none);
    silent.add_to(report, "layer-without-headers", bare, &none);
    let same = "the same without a layer, with five constant headers";
    around.add_to(report, "layer-same-answer", same, &same_answer);
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
    let layer = RateLimitLayer::new(limiter).rule_set("api").same_body();
    let layer = match how {
        SILENT => layer.headers(HeaderFamilies {
            legacy: false,
            ietf: false,
            ..HeaderFamilies::default()
        }),
        _ => layer,
    };
    let app = Router::new().route("/api/x", get(|| async { "hello, world" }));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        eprintln!("{}", listener.local_addr().unwrap());
        match how {
            AROUND | SILENT => {
                let app = ServiceExt::<Request>::into_make_service(layer.layer(app));
                axum::serve(listener, app).await
            }
            IN_ROUTER => axum::serve(listener, app.layer(layer)).await,
            SAME_ANSWER => {
                let app = Router::new().route("/api/x", get(async || (HEADERS, "hello, world")));
                axum::serve(listener, app).await
            }
            _ => axum::serve(listener, app).await,
        }
        .unwrap();
    });
}
