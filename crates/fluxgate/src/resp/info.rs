//! `INFO`: the fields that clients rely on.

use quanta::Instant;
use std::fmt::Write as _;
use std::sync::OnceLock;

use super::client::Client;
use crate::telemetry;

/// The Redis version whose protocol this is. Clients choose their commands by it.
pub(super) const REDIS_VERSION: &str = "7.2.0";

static STARTED: OnceLock<Instant> = OnceLock::new();

/// Records the start of the service.
pub(super) fn record_start() {
    STARTED.get_or_init(telemetry::now);
}

/// Returns the given sections, or all if none is given.
pub(super) fn info(sections: &[&[u8]]) -> String {
    let is_all = |section: &&[u8]| {
        [&b"default"[..], b"all", b"everything"]
            .iter()
            .any(|all| section.eq_ignore_ascii_case(all))
    };
    let all = sections.is_empty() || sections.iter().any(is_all);
    let mut text = String::new();
    for (name, fields) in all_sections() {
        let mut wanted = sections.iter();
        if all || wanted.any(|section| section.eq_ignore_ascii_case(name.as_bytes())) {
            let line_before = if text.is_empty() { "" } else { "\r\n" };
            // Writing to memory does not fail.
            let _ = write!(text, "{line_before}# {name}\r\n{fields}");
        }
    }
    text
}

fn all_sections() -> [(&'static str, String); 5] {
    let up = STARTED.get().map_or(0, |started| {
        telemetry::now().duration_since(*started).as_secs()
    });
    let server = format!(
        "redis_version:{REDIS_VERSION}\r\n\
         server_name:fluxgate\r\n\
         fluxgate_version:{}\r\n\
         redis_mode:standalone\r\n\
         os:{}\r\n\
         arch_bits:{}\r\n\
         process_id:{}\r\n\
         uptime_in_seconds:{up}\r\n\
         uptime_in_days:{}\r\n",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::OS,
        usize::BITS,
        std::process::id(),
        up / (24 * 60 * 60),
    );
    let clients = format!("connected_clients:{}\r\n", Client::connected());
    [
        ("Server", server),
        ("Clients", clients),
        ("Persistence", "loading:0\r\n".into()),
        (
            "Replication",
            "role:master\r\nconnected_slaves:0\r\n".into(),
        ),
        ("Cluster", "cluster_enabled:0\r\n".into()),
    ]
}
