//! The gateway beside nginx and HAProxy, which limit the same requests and
//! forward them to the same upstream. `wrk` asks all of them.

use fluxgate_testkit::RedisServer;

use crate::folder::Folder;
use crate::haproxy::HaProxy;
use crate::load::{Runs, in_turn};
use crate::nginx::Nginx;
use crate::report::Report;
use crate::service::{self, Service};
use crate::wrk;

/// What the upstream answers.
const ANSWER: &str = "hello, world";

pub(crate) fn run(report: &mut Report) {
    let folder = Folder::new("gateway");
    let script = wrk::script(&folder, wrk::USERS);
    let upstream = Nginx::start(&folder, "", "text/plain", ANSWER);
    let start = |store: &str, filters| {
        let config = config(&upstream, store, filters);
        service::start(&folder, &["gateway"], &config)
    };
    let redis = RedisServer::start();
    let redis = format!("{{ redis: {{ url: \"{}\" }} }}", redis.url());
    let (Some(ours), Some(bare), Some(shared)) = (
        start("memory", "[main]"),
        start("memory", "[]"),
        start(&redis, "[main]"),
    ) else {
        return;
    };
    let nginx = Nginx::limiting(&folder, upstream.address());
    let haproxy = HaProxy::limiting(&folder, upstream.address());
    let ask = |service: &Service| wrk::ask(service.address("gateway"), &script);
    let [by_nginx, limited, passed, by_haproxy] = in_turn([
        &mut || wrk::ask(nginx.address(), &script),
        &mut || ask(&ours),
        &mut || ask(&bare),
        &mut || wrk::ask(haproxy.address(), &script),
    ]);
    // By itself, so that its Redis is idle while the others run.
    let [by_redis] = in_turn([&mut || ask(&shared)]);
    let mut line = |name, ours: &Runs, yardstick, theirs| {
        ours.tell(report, name, yardstick, theirs);
    };
    line("gateway", &limited, "nginx, limit_req", &by_nginx);
    line(
        "gateway-haproxy",
        &limited,
        "HAProxy, stick table",
        &by_haproxy,
    );
    line(
        "gateway-filter",
        &limited,
        "our gateway without a filter",
        &passed,
    );
    line(
        "gateway-redis",
        &by_redis,
        "our gateway on the memory store",
        &limited,
    );
}

/// A rule that counts users and refuses none.
fn config(upstream: &Nginx, store: &str, filters: &str) -> String {
    let upstream = upstream.address();
    format!(
        "store: {store}
filters: {{ main: {{ rule_set: api }} }}
gateway:
  routes:
    - {{ id: all, upstreams: [\"http://{upstream}\"], filters: {filters} }}
rule_sets:
  api:
    rules:
      - {{ id: per-user, scope: per_user, bands: [ {{ id: burst, capacity: 1000000, window: 1s }} ] }}
"
    )
}
