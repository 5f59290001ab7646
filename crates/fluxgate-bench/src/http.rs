//! `POST /v1/check` beside nginx, which answers a constant to the same requests.
//! `wrk` asks both.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use crate::folder::Folder;
use crate::load::{Run, compare};
use crate::nginx::Nginx;
use crate::report::Report;
use crate::service;

const SECONDS: u32 = 4;

const CONFIG: &str = "
rule_sets:
  api-limits:
    rules:
      - id: per-user
        match: { path: [\"/api/**\"] }
        scope: per_user
        bands: [ { id: burst, capacity: 1000, window: 1s } ]
";

/// The same requests for both: 1,000 users in turn.
const SCRIPT: &str = r#"
local users = {}
init = function()
    local headers = { ["Content-Type"] = "application/json", ["Host"] = wrk.host }
    for user = 0, 999 do
        local body = string.format('{"rule_set":"api-limits","user":"user-%08d","path":"/api/x","method":"GET"}', user)
        users[user] = wrk.format("POST", "/v1/check", headers, body)
    end
end
local next_user = 0
request = function()
    next_user = (next_user + 7) % 1000
    return users[next_user]
end
done = function(summary, latency, requests)
    local errors = summary.errors
    local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
    print(string.format("RESULT %.1f %.1f %.1f %d", summary.requests / summary.duration * 1e6,
        latency:percentile(50), latency:percentile(99), failed))
end
"#;

/// As long as our answer.
const ANSWER: &str = r#"{"allowed":true,"outcome":"allowed","rule":"per-user","band":"burst","limit":1000,"remaining":999,"retry_after_ms":0,"reset_after_ms":1,"delay_ms":0,"violated":[]}"#;

pub(crate) fn run(report: &mut Report) {
    let folder = Folder::new("http");
    let script = folder.file("check.lua", SCRIPT);
    let Some(ours) = service::start(&folder, &["api"], CONFIG) else {
        return;
    };
    let nginx = Nginx::start(&folder, "", "application/json", ANSWER);
    compare(
        report,
        "http-check",
        "nginx, a constant to the same POST",
        || ask(ours.address("api"), &script),
        || ask(nginx.address(), &script),
    );
}

/// One run of wrk.
#[expect(clippy::unwrap_used, reason = "a benchmark that cannot run has failed")]
fn ask(address: SocketAddr, script: &Path) -> Run {
    let run = Command::new("wrk")
        .args(["-t", "2", "-c", "64", "-d", &format!("{SECONDS}s"), "-s"])
        .arg(script)
        .arg(format!("http://{address}"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&run.stdout).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix("RESULT "));
    let figures = line.unwrap_or_default().split(' ');
    let figures: Vec<f64> = figures.filter_map(|figure| figure.parse().ok()).collect();
    let &[per_second, p50_micros, p99_micros, failed] = &figures[..] else {
        panic!("wrk said {text} {}", String::from_utf8_lossy(&run.stderr));
    };
    assert!(failed == 0.0, "{failed} requests failed");
    Run {
        per_second,
        p50_micros,
        p99_micros,
    }
}
