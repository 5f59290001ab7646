//! `POST /v1/check` with a hold and `POST /v1/release`, in turn, beside as many plain checks.
//! `wrk` reads all answers, since it needs the ids.

use fluxgate_testkit::RedisServer;

use crate::load::compare;
use crate::report::Report;
use crate::service::TempDir;
use crate::{service, wrk};

const RULES: &str = "
rule_sets:
  slots:
    rules:
      - { id: per-user, scope: per_user, algorithm: concurrency, bands: [ { capacity: 1000 } ] }
  rates:
    rules:
      - { id: per-user, scope: per_user, bands: [ { id: burst, capacity: 1000, window: 1s } ] }
";

/// Releases every hold before it checks again, so half of the requests are releases. Without
/// holds there is nothing to release.
const SCRIPT: &str = r#"
local headers, checks, held = nil, {}, {}
init = function()
    headers = { ["Content-Type"] = "application/json", ["Host"] = wrk.host }
    for user = 0, 999 do
        local body = string.format('{"rule_set":"RULE_SET","user":"user-%08d","path":"/api/x"HOLD}', user)
        checks[user] = wrk.format("POST", "/v1/check", headers, body)
    end
end
response = function(status, headers, body)
    held[#held + 1] = string.match(body, '"hold":"(%w+)"')
end
local users = setmetatable({}, { __index = function(_, user)
    local id = table.remove(held)
    if id then
        return wrk.format("POST", "/v1/release", headers, '{"hold":"' .. id .. '"}')
    end
    return checks[user]
end })
"#;

/// In memory.
pub(crate) fn run(report: &mut Report) {
    compare_with_checks(report, "http-hold", RULES);
}

/// On Redis.
pub(crate) fn on_redis(report: &mut Report) {
    let server = RedisServer::start();
    let url = server.url();
    let store = format!(
        "store: {{ redis: {{ url: \"{url}\", near_cache: false, deadline: 5s }} }}\n{RULES}"
    );
    compare_with_checks(report, "http-hold-redis", &store);
}

fn compare_with_checks(report: &mut Report, name: &str, config: &str) {
    let dirs = [TempDir::new("http-hold"), TempDir::new("http-checks")];
    let script = |dir, rule_set, hold| {
        let script = SCRIPT.replace("RULE_SET", rule_set);
        wrk::script(dir, &script.replace("HOLD", hold))
    };
    let holds = script(&dirs[0], "slots", r#","hold":"60s""#);
    let checks = script(&dirs[1], "rates", "");
    let Some(service) = service::start(&dirs[0], &["api"], config) else {
        return;
    };
    let address = service.address("api");
    compare(
        report,
        name,
        "as many plain checks",
        || wrk::ask(address, &holds),
        || wrk::ask(address, &checks),
    );
}
