//! What it costs to record what happens: `POST /v1/check` with `history` on, beside the same service
//! with `history: false`.

use fluxgate_testkit::RedisServer;

use crate::load::compare;
use crate::report::Report;
use crate::service::TempDir;
use crate::{http, service, wrk};

/// In memory: nearly all requests allowed, and half of them denied.
pub(crate) fn http(report: &mut Report) {
    compare_with_off(report, "http-history", ["", ""], http::CONFIG);
    compare_with_off(report, "http-history-denials", ["", ""], &half_denied());
}

/// On Redis, where half of the requests are denied.
pub(crate) fn redis(report: &mut Report) {
    let servers = [RedisServer::start(), RedisServer::start()];
    let stores = servers.each_ref().map(|server| {
        let url = server.url();
        format!("store: {{ redis: {{ url: \"{url}\", deadline: 5s }} }}\n")
    });
    let stores = stores.each_ref().map(String::as_str);
    compare_with_off(report, "redis-history", stores, &half_denied());
}

/// Returns limits that the load exceeds about twice.
fn half_denied() -> String {
    http::CONFIG.replace("capacity: 1000", "capacity: 40")
}

fn compare_with_off(report: &mut Report, name: &str, stores: [&str; 2], rules: &str) {
    let dirs = [TempDir::new("history-on"), TempDir::new("history-off")];
    let script = wrk::script(&dirs[0], http::SCRIPT);
    let [on, off] = [
        format!("{}history: true\n{rules}", stores[0]),
        format!("{}history: false\n{rules}", stores[1]),
    ];
    let (Some(on), Some(off)) = (
        service::start(&dirs[0], &["api"], &on),
        service::start(&dirs[1], &["api"], &off),
    ) else {
        return;
    };
    compare(
        report,
        name,
        "the same service with `history: false`",
        || wrk::ask(on.address("api"), &script),
        || wrk::ask(off.address("api"), &script),
    );
}
