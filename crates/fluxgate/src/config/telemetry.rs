//! Logs and traces.

use fluxgate_core::yaml::{Faults, Node};

use super::read::Section;
use super::tree;
use super::url::HttpUrl;

const NO_HTTPS: &str =
    "must be http://HOST:PORT (https is not supported: send to a collector on this host)";

/// Logs and traces.
#[derive(Clone, Debug, Default)]
pub struct Telemetry {
    /// The format of logs.
    pub log: LogFormat,
    /// The lowest level that is logged.
    pub level: LogLevel,
    /// The OTLP endpoint for traces.
    pub otlp: Option<HttpUrl>,
    /// Whether logs may contain identities.
    pub identities: bool,
}

/// The format of logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object per line.
    #[default]
    Json,
    /// Text for people.
    Text,
}

/// The level of a log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Failures.
    Error,
    /// Suspicious events.
    Warn,
    /// Rare events.
    #[default]
    Info,
    /// Frequent events.
    Debug,
    /// Everything.
    Trace,
}

impl LogFormat {
    const NAMES: [(&str, Self); 2] = [("json", Self::Json), ("text", Self::Text)];
}

impl LogLevel {
    const NAMES: [(&str, Self); 5] = [
        ("error", Self::Error),
        ("warn", Self::Warn),
        ("info", Self::Info),
        ("debug", Self::Debug),
        ("trace", Self::Trace),
    ];
}

impl Telemetry {
    pub(super) fn read(node: Option<&Node>, faults: &mut Faults) -> Self {
        const FIELDS: &[&str] = &["log", "level", "otlp", "identities"];
        let section = Section::read(node, "`telemetry`", FIELDS, faults);
        let log = section.one_of("log", &LogFormat::NAMES, faults);
        let level = section.one_of("level", &LogLevel::NAMES, faults);
        let otlp = section.get("otlp").and_then(|node| {
            let url = HttpUrl::parse(node.text("`otlp`", faults)?).and_then(|url| {
                if url.is_secure() {
                    Err(NO_HTTPS.into())
                } else {
                    Ok(url)
                }
            });
            url.map_err(|why| faults.add(node.position, format!("`otlp` {why}")))
                .ok()
        });
        Self {
            log: log.unwrap_or_default(),
            level: level.unwrap_or_default(),
            otlp,
            identities: section.boolean("identities", false, faults),
        }
    }

    pub(super) fn node(&self) -> Node {
        let otlp = self.otlp.as_ref().map(|url| tree::text(url.to_string()));
        tree::map([
            ("log", Some(tree::name_of(&LogFormat::NAMES, self.log))),
            ("level", Some(tree::name_of(&LogLevel::NAMES, self.level))),
            ("otlp", otlp),
            ("identities", Some(tree::plain(self.identities))),
        ])
    }
}
