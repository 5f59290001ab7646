//! wrk, which asks over 64 connections.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::load::Run;
use crate::service::TempDir;
use crate::tls::Tls;

pub(crate) const SECONDS: u32 = 2;

/// Sends the requests of 1,000 `users` in turn, and has wrk tell what we read.
const IN_TURN: &str = r#"
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

/// 1,000 users ask for the same path.
pub(crate) const USERS: &str = r#"
local users = {}
init = function()
    for user = 0, 999 do
        local headers = { ["Host"] = wrk.host, ["X-User-Id"] = string.format("user-%08d", user) }
        users[user] = wrk.format("GET", "/api/x", headers)
    end
end
"#;

/// Requests the same path for `count` users. `tokens` are the elements of a Lua table, one for
/// each user.
pub(crate) fn with_tokens(tokens: &str, count: usize) -> String {
    format!(
        r#"
local tokens = {{ {tokens} }}
local users = {{}}
init = function()
    for index = 0, 999 do
        local user = index % {count}
        local headers = {{ ["Host"] = wrk.host, ["X-User-Id"] = string.format("user-%08d", user),
            ["Authorization"] = "Bearer " .. tokens[user + 1] }}
        users[index] = wrk.format("GET", "/api/x", headers)
    end
end
"#
    )
}

/// Writes a script for wrk that sends these requests in turn.
pub(crate) fn script(dir: &TempDir, requests: &str) -> PathBuf {
    dir.file("wrk.lua", format!("{requests}{IN_TURN}"))
}

/// One run.
pub(crate) fn ask(address: SocketAddr, script: &Path) -> Run {
    run(&mut Command::new("wrk"), "http", address, script)
}

/// One run over TLS.
pub(crate) fn ask_over_tls(address: SocketAddr, script: &Path, tls: &Tls) -> Run {
    let mut wrk = Command::new("wrk");
    wrk.env("OPENSSL_CONF", tls.openssl());
    run(&mut wrk, "https", address, script)
}

#[expect(clippy::unwrap_used, reason = "a benchmark that cannot run has failed")]
fn run(wrk: &mut Command, scheme: &str, address: SocketAddr, script: &Path) -> Run {
    let run = wrk
        .args(["-t", "2", "-c", "64", "-d", &format!("{SECONDS}s"), "-s"])
        .arg(script)
        .arg(format!("{scheme}://{address}"))
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
