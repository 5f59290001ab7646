//! The settings of a plugin.

use std::time::Duration;

use fluxgate_core::rules::values;
use fluxgate_core::yaml::{Faults, Node};
use fluxgate_core::{Algorithm, Calendar, CalendarUnit, KeyPart};

use super::entities::{NAMES, Plugin};
use crate::draft::{BandDraft, BandWindow, MAX_UNITS, MAX_WINDOW, Remark, RuleDraft};
use crate::fields::{Fields, whole_number};
use crate::path_patterns;

/// The fields of `rate-limiting` that are read.
const BASIC: &str = "second minute hour day month year limit_by header_name path fault_tolerant \
    error_code error_message hide_client_headers";

/// The fields of `rate-limiting-advanced` that are read.
const ADVANCED: &str = "limit window_size window_type identifier header_name path \
    disable_penalty error_code error_message hide_client_headers enforce_consumer_groups \
    throttling retry_after_jitter_max";

/// The fields that say where and how counters are stored.
const STORAGE: &str = "policy strategy sync_rate namespace dictionary_name lock_dictionary_name \
    redis redis_database redis_host redis_password redis_port redis_server_name redis_ssl \
    redis_ssl_verify redis_timeout redis_username";

/// The settings of a plugin that a rule can have.
#[derive(Debug)]
pub(super) struct Settings {
    algorithm: Algorithm,
    bands: Vec<BandDraft>,
    pub(super) identifier: Identifier,
    /// Its value and its line.
    pub(super) fault_tolerant: Option<(bool, usize)>,
    pub(super) namespace: Option<String>,
    /// The fields that say where and how counters are stored, and their lines.
    pub(super) storage: Vec<(String, usize)>,
    remarks: Vec<Remark>,
}

/// The part of a request that a plugin counts by.
#[derive(Debug)]
pub(super) enum Identifier {
    Consumer,
    Service,
    Route,
    /// Requests for this path together, others by their address.
    Path(String),
    /// A part of a key.
    Part(KeyPart),
}

impl Settings {
    /// Reads the settings, or adds a remark if they cannot become a rule.
    pub(super) fn read(
        plugin: &Plugin<'_>,
        remarks: &mut Vec<Remark>,
        faults: &mut Faults,
    ) -> Option<Self> {
        let Some(config) = plugin.config else {
            let text = format!("the plugin `{}` without a `config`", plugin.kind);
            remarks.push(Remark::lost(plugin.line, text));
            return None;
        };
        let is_advanced = plugin.kind == NAMES[1];
        let fields = Fields::read(config, "`config`", faults);
        let limit_by = if is_advanced {
            "identifier"
        } else {
            "limit_by"
        };
        let known = [if is_advanced { ADVANCED } else { BASIC }, STORAGE];
        let identifier = identifier(&fields, limit_by, plugin, remarks, faults)?;
        let mut own = Vec::new();
        let (algorithm, bands) = if is_advanced {
            advanced_bands(&fields, &mut own, faults)
        } else {
            (Algorithm::FixedWindow, bands(&fields, &mut own, faults))
        };
        if bands.is_empty() {
            if faults.count() == 0 {
                remarks.extend(own);
                remarks.extend(fields.unread("`config`", &known));
                let text = format!("the plugin `{}`: it has no limit", plugin.kind);
                remarks.push(Remark::lost(plugin.line, text));
            }
            return None;
        }
        if algorithm == Algorithm::SlidingWindow
            && !fields.boolean("disable_penalty", false, faults)
        {
            let text = "denied requests are not counted";
            own.push(Remark::changed(plugin.line, text));
        }
        remark_on_answers(&fields, &mut own, faults);
        own.extend(fields.unread("`config`", &known));
        let by = fields.get(limit_by).and_then(Node::as_text);
        for (name, needed) in [("header_name", "header"), ("path", "path")] {
            if by != Some(needed) && fields.get(name).is_some() {
                let text = format!("`{name}`: only `{limit_by}: {needed}` reads it");
                own.push(Remark::lost(fields.line(name), text));
            }
        }
        let is_storage = |name: &str| STORAGE.split(' ').any(|it| it == name);
        let storage = fields.names().filter(|(name, _)| is_storage(name));
        let storage = storage.map(|(name, line)| (name.to_owned(), line));
        let fault_tolerant = fields.get("fault_tolerant").and_then(|node| {
            let tolerant = node.boolean("`fault_tolerant`", faults)?;
            Some((tolerant, fields.line("fault_tolerant")))
        });
        let namespace = fields.text("namespace", faults).filter(|_| is_advanced);
        Some(Self {
            algorithm,
            bands,
            identifier,
            fault_tolerant,
            namespace: namespace.map(str::to_owned),
            storage: storage.collect(),
            remarks: own,
        })
    }

    /// Returns the rule without id, conditions and key.
    pub(super) fn rule(&self, plugin: &Plugin<'_>) -> RuleDraft {
        let mut rule = RuleDraft::new(String::new(), self.algorithm);
        rule.bands.clone_from(&self.bands);
        rule.remarks.clone_from(&plugin.remarks);
        rule.remarks.extend(self.remarks.iter().cloned());
        rule.enabled = plugin.enabled;
        rule.group = Some(plugin.kind.to_owned());
        rule
    }
}

fn identifier(
    fields: &Fields<'_>,
    name: &str,
    plugin: &Plugin<'_>,
    remarks: &mut Vec<Remark>,
    faults: &mut Faults,
) -> Option<Identifier> {
    let Some(node) = fields.get(name) else {
        return Some(Identifier::Consumer);
    };
    match node.text(&format!("`{name}`"), faults)? {
        "consumer" => Some(Identifier::Consumer),
        "credential" => Some(Identifier::Part(KeyPart::ApiKey)),
        "ip" => Some(Identifier::Part(KeyPart::Ip)),
        "service" => Some(Identifier::Service),
        "route" => Some(Identifier::Route),
        "header" => {
            let Some(header) = fields.get("header_name") else {
                faults.add(
                    node.position,
                    format!("`{name}: header` needs a `header_name`"),
                );
                return None;
            };
            let text = header.text("`header_name`", faults)?;
            values::header_name(text, header.position, faults)?;
            Some(Identifier::Part(KeyPart::Header(text.into())))
        }
        "path" => {
            let Some(path) = fields.get("path") else {
                faults.add(node.position, format!("`{name}: path` needs a `path`"));
                return None;
            };
            let text = path.text("`path`", faults)?;
            let pattern = path_patterns::literal(text);
            if pattern.is_none() {
                let text =
                    format!("`{text}` must begin with `/` and have no `*`, `?`, `{{` or `}}`");
                faults.add(path.position, text);
            }
            pattern.map(Identifier::Path)
        }
        "consumer-group" => {
            let text = format!("the plugin `{}`: it counts by consumer group", plugin.kind);
            remarks.push(Remark::lost(plugin.line, text));
            None
        }
        other => {
            faults.add(
                node.position,
                format!(
                    "`{name}` must be one of consumer, credential, ip, service, route, header, path, \
                     consumer-group; `{other}` is not"
                ),
            );
            None
        }
    }
}

/// Reads the limits of `rate-limiting`. Its windows begin with the second, minute, hour, day,
/// month or year in UTC.
fn bands(fields: &Fields<'_>, remarks: &mut Vec<Remark>, faults: &mut Faults) -> Vec<BandDraft> {
    let span = |seconds| BandWindow::Span(Duration::from_secs(seconds));
    let calendar = |unit| BandWindow::Calendar(Calendar::new(unit));
    let windows = [
        ("second", span(1)),
        ("minute", span(60)),
        ("hour", span(3_600)),
        ("day", span(86_400)),
        ("month", calendar(CalendarUnit::Month)),
        ("year", calendar(CalendarUnit::Year)),
    ];
    let bands = windows.into_iter().filter_map(|(unit, window)| {
        Some(BandDraft {
            id: Some(unit.to_owned()),
            capacity: limit(fields.get(unit)?, unit, remarks, faults)?,
            window,
            refill: None,
        })
    });
    bands.collect()
}

/// Reads the limits and windows of `rate-limiting-advanced`.
fn advanced_bands(
    fields: &Fields<'_>,
    remarks: &mut Vec<Remark>,
    faults: &mut Faults,
) -> (Algorithm, Vec<BandDraft>) {
    let types = [
        ("sliding", Algorithm::SlidingWindow),
        ("fixed", Algorithm::FixedWindow),
    ];
    let algorithm = fields.one_of("window_type", &types, faults);
    let limits = fields.list("limit", faults);
    let sizes = fields.list("window_size", faults);
    if limits.len() != sizes.len() {
        let at = fields.get("limit").or(fields.get("window_size"));
        faults.add(
            at.map_or(fields.position, |node| node.position),
            format!(
                "`limit` and `window_size` must have the same length, not {} and {}",
                limits.len(),
                sizes.len()
            ),
        );
    }
    let mut bands = Vec::new();
    for (number, size) in limits.iter().zip(sizes) {
        let capacity = limit(number, "limit", remarks, faults);
        let seconds = whole_number(size, "`window_size`", 1..=u64::MAX, faults);
        let (Some(capacity), Some(seconds)) = (capacity, seconds) else {
            continue;
        };
        let window = Duration::from_secs(seconds);
        if window <= MAX_WINDOW {
            bands.push(BandDraft::new(capacity, window));
        } else {
            let text = format!("{capacity} requests per {seconds} s: a window has at most 366 d");
            remarks.push(Remark::lost(size.position.line, text));
        }
    }
    (algorithm.unwrap_or(Algorithm::SlidingWindow), bands)
}

fn limit(node: &Node, name: &str, remarks: &mut Vec<Remark>, faults: &mut Faults) -> Option<u64> {
    let limit = whole_number(node, &format!("`{name}`"), 1..=u64::MAX, faults)?;
    if limit > MAX_UNITS {
        let text = format!("{limit} requests are reduced to {MAX_UNITS}, the maximum");
        remarks.push(Remark::changed(node.position.line, text));
    }
    Some(limit.min(MAX_UNITS))
}

/// Adds remarks on the settings that no rule has: answers to denied requests and details of
/// counting.
fn remark_on_answers(fields: &Fields<'_>, remarks: &mut Vec<Remark>, faults: &mut Faults) {
    let mut lost = |name: &str, text: String| remarks.push(Remark::lost(fields.line(name), text));
    if let Some(code) = fields.text("error_code", faults)
        && code != "429"
    {
        let text = format!("`error_code: {code}`: a denied request is answered with 429");
        lost("error_code", text);
    }
    if fields.get("error_message").is_some() {
        lost("error_message", "`error_message`".into());
    }
    if fields.boolean("hide_client_headers", false, faults) {
        let text = "`hide_client_headers`: see `headers` of the filter";
        lost("hide_client_headers", text.into());
    }
    for name in [
        "enforce_consumer_groups",
        "throttling",
        "retry_after_jitter_max",
    ] {
        let node = fields.get(name);
        let is_set = node.is_some_and(|it| !matches!(it.as_text(), Some("false" | "0")));
        if is_set {
            lost(name, format!("`{name}`"));
        }
    }
}
