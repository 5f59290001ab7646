//! `POST /v1/check` beside nginx, which answers a constant to the same requests.
//! `wrk` asks both.

use crate::load::compare;
use crate::nginx::Nginx;
use crate::report::Report;
use crate::service::TempDir;
use crate::{service, wrk};

pub(crate) const CONFIG: &str = "
rule_sets:
  api-limits:
    rules:
      - id: per-user
        match: { path: [\"/api/**\"] }
        scope: per_user
        bands: [ { id: burst, capacity: 1000, window: 1s } ]
";

/// The same requests for both.
pub(crate) const SCRIPT: &str = r#"
local users = {}
init = function()
    local headers = { ["Content-Type"] = "application/json", ["Host"] = wrk.host }
    for user = 0, 999 do
        local body = string.format('{"rule_set":"api-limits","user":"user-%08d","path":"/api/x","method":"GET"}', user)
        users[user] = wrk.format("POST", "/v1/check", headers, body)
    end
end
"#;

/// As long as our answer.
const ANSWER: &str = r#"{"allowed":true,"outcome":"allowed","rule":"per-user","band":"burst","limit":1000,"remaining":999,"retry_after_ms":0,"reset_after_ms":1,"delay_ms":0,"violated":[]}"#;

pub(crate) fn run(report: &mut Report) {
    let dir = TempDir::new("http");
    let script = wrk::script(&dir, SCRIPT);
    let Some(ours) = service::start(&dir, &["api"], CONFIG) else {
        return;
    };
    let nginx = Nginx::start(&dir, "", "application/json", ANSWER);
    compare(
        report,
        "http-check",
        "nginx, a constant to the same POST",
        || wrk::ask(ours.address("api"), &script),
        || wrk::ask(nginx.address(), &script),
    );
}
