//! The sections without sections of their own: `keys`, `call_limits`, `admin`, `telemetry` and
//! `shutdown`.

use std::path::PathBuf;
use std::time::Duration;

use fluxgate_core::OnError;
use fluxgate_core::rules::RuleOptions;
use fluxgate_core::yaml::Value;
use fluxgate_redis::HashKeys;
use tracing::level_filters::LevelFilter;

use super::listen::Listen;
use super::section::Section;
use super::url::HttpUrl;

/// How identities are counted and stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    /// Which parts of identities are stored as a keyed hash.
    pub hash_keys: HashKeys,
    /// The file with the secret of that hash.
    pub hash_secret_file: Option<PathBuf>,
    /// How many leading bits of an IPv6 address identify a client: 1 to 128.
    pub ipv6_prefix: u8,
}

impl Keys {
    pub(super) fn read(root: &mut Section<'_, '_>) -> Self {
        const HASH_KEYS: [(&str, HashKeys); 3] = [
            ("api_keys", HashKeys::ApiKeys),
            ("all", HashKeys::All),
            ("none", HashKeys::None),
        ];
        const FIELDS: &[&str] = &["hash_keys", "hash_secret_file", "ipv6_prefix"];
        let ipv6_prefix = RuleOptions::default().ipv6_prefix;
        root.section("keys", FIELDS, |section| Self {
            hash_keys: section.one_of("hash_keys", &HASH_KEYS, HashKeys::default()),
            hash_secret_file: section.path("hash_secret_file"),
            ipv6_prefix: section.whole("ipv6_prefix", 1..=128, ipv6_prefix),
        })
    }
}

/// How limits that come with the call (`/v1/consume`, `CL.THROTTLE`) behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallLimits {
    /// The decision if the store fails.
    pub on_error: OnError,
}

impl CallLimits {
    pub(super) fn read(root: &mut Section<'_, '_>) -> Self {
        root.section("call_limits", &["on_error"], |section| Self {
            on_error: section.one_of("on_error", &OnError::NAMES, OnError::default()),
        })
    }
}

/// Access to the admin API. Without tokens, it is served only on loopback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// A file with a line `name:role:sha256` for each token.
    pub tokens_file: Option<PathBuf>,
    /// States that access without tokens is intended. Allowed only on loopback.
    pub open: bool,
    /// Whether the last requests are kept, to try changed rules on.
    pub record: bool,
}

impl Admin {
    pub(super) fn read(root: &mut Section<'_, '_>, listen: &Listen) -> Self {
        root.section("admin", &["tokens_file", "open", "record"], |section| {
            let open = section.boolean("open", false);
            if let Some(node) = section.get("open").filter(|_| open) {
                if section.get("tokens_file").is_some() {
                    section.fault(node, "`open: true` and `tokens_file` exclude each other");
                }
                let api = listen.api.as_ref().map(|api| api.address);
                if let Some(api) = api.filter(|api| !api.ip().to_canonical().is_loopback()) {
                    let message = format!(
                        "`open: true` is allowed only where the API listens on loopback; \
                         `listen.api` is {api}"
                    );
                    section.fault(node, message);
                }
            }
            Self {
                tokens_file: section.path("tokens_file"),
                open,
                record: section.boolean("record", false),
            }
        })
    }
}

/// Logs and traces.
#[derive(Clone, Debug)]
pub struct Telemetry {
    /// The format of logs.
    pub log: LogFormat,
    /// The lowest level that is logged.
    pub level: LevelFilter,
    /// The collector of spans and metrics, if there is one.
    pub otlp: Option<Otlp>,
    /// Whether logs may contain identities.
    pub identities: bool,
}

/// Where spans and metrics are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Otlp {
    /// The collector.
    pub url: HttpUrl,
    /// How often metrics are sent, if they are.
    pub metrics: Option<Duration>,
}

impl Otlp {
    /// How often metrics are sent by default, as OpenTelemetry's programs do.
    const INTERVAL: Duration = Duration::from_secs(60);

    /// Reads a URL, or a mapping with one.
    fn read(telemetry: &mut Section<'_, '_>) -> Option<Self> {
        let node = telemetry.get("otlp")?;
        if !matches!(node.value, Value::Map(_)) {
            let url = telemetry.parsed("otlp", parse_collector)?;
            let metrics = Some(Self::INTERVAL);
            return Some(Self { url, metrics });
        }
        let otlp = telemetry.optional_section("otlp", &["url", "metrics", "interval"], |section| {
            if section.get("url").is_none() {
                section.missing("`otlp` needs a `url`");
            }
            let url = section.parsed("url", parse_collector);
            let is_on = section.boolean("metrics", true);
            let interval = section.duration("interval", Self::INTERVAL);
            let metrics = is_on.then_some(interval);
            Some(Self { url: url?, metrics })
        });
        otlp.flatten()
    }
}

fn parse_collector(text: &str) -> Result<HttpUrl, String> {
    const NO_HTTPS: &str =
        "must be http://HOST:PORT (https is not supported: send to a collector on this host)";
    match HttpUrl::parse(text)? {
        url if url.is_secure() => Err(NO_HTTPS.into()),
        url => Ok(url),
    }
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

impl Default for Telemetry {
    fn default() -> Self {
        Self {
            log: LogFormat::default(),
            level: LevelFilter::INFO,
            otlp: None,
            identities: false,
        }
    }
}

impl Telemetry {
    pub(super) fn read(root: &mut Section<'_, '_>) -> Self {
        const FORMATS: [(&str, LogFormat); 2] =
            [("json", LogFormat::Json), ("text", LogFormat::Text)];
        const LEVELS: [(&str, LevelFilter); 5] = [
            ("error", LevelFilter::ERROR),
            ("warn", LevelFilter::WARN),
            ("info", LevelFilter::INFO),
            ("debug", LevelFilter::DEBUG),
            ("trace", LevelFilter::TRACE),
        ];
        const FIELDS: &[&str] = &["log", "level", "otlp", "identities"];
        let default = Self::default();
        root.section("telemetry", FIELDS, |section| Self {
            log: section.one_of("log", &FORMATS, default.log),
            level: section.one_of("level", &LEVELS, default.level),
            otlp: Otlp::read(section),
            identities: section.boolean("identities", default.identities),
        })
    }
}

/// How the service ends after SIGTERM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shutdown {
    /// How long it still accepts connections while it reports that it is not ready.
    pub delay: Duration,
    /// How long requests in flight may take after that.
    pub grace: Duration,
}

impl Shutdown {
    pub(super) fn read(root: &mut Section<'_, '_>) -> Self {
        const GRACE: Duration = Duration::from_secs(25);
        root.section("shutdown", &["delay", "grace"], |section| Self {
            delay: section.short_duration("delay", Duration::ZERO),
            grace: section.short_duration("grace", GRACE),
        })
    }
}
