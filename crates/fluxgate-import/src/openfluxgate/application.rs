//! The `application.yml` of an application with OpenFluxGate's starter: its filter, its Redis
//! and where its rules are.

use fluxgate_core::yaml::{Faults, Node, Value};

use crate::config_draft::{ConfigDraft, FilterDraft, MongoDraft, RedisDraft};
use crate::draft::{Draft, Remark};
use crate::path_patterns;
use crate::spring::Properties;

/// The name of the filter.
const FILTER: &str = "main";
/// The header that a filter of FluxGate reads from trusted proxies, and OpenFluxGate from all.
const CLIENT_IP: &str = "X-Forwarded-For";
/// How keys begin in a Redis that OpenFluxGate uses, too. It may delete those of `fluxgate:*`.
const KEY_PREFIX: &str = "fluxgate2";
/// The most requests of a filter that may wait.
const MAX_WAITS: u64 = 1_000_000;

/// Returns whether a document is not a rule but the configuration of an application.
pub(super) fn is_application(node: &Node) -> bool {
    let Value::Map(pairs) = &node.value else {
        return false;
    };
    let mut names = pairs.iter().filter_map(|(key, _)| key.as_text());
    names.any(|name| name == "fluxgate" || name.starts_with("fluxgate."))
}

/// Reads the properties of an application.
pub(super) fn read(properties: &Properties, remarks: Vec<Remark>, faults: &mut Faults) -> Draft {
    let mut lost = Vec::new();
    let mut config = ConfigDraft {
        redis: redis(properties, &mut lost, faults),
        mongodb: mongodb(properties, faults),
        ..ConfigDraft::default()
    };
    config.remarks.append(&mut lost);
    let mut draft = Draft {
        remarks,
        ..Draft::default()
    };
    filter(properties, &mut config, faults);
    if config.mongodb.is_none() {
        let line = properties.line("fluxgate.mongo");
        let text = "where the rules are: add `rule_sets` or `rules_from`";
        config.remarks.push(Remark::lost(line, text));
    }
    failures(properties, &mut config, faults);
    replaced(properties, &mut config);
    config.remarks.extend(properties.unread("fluxgate"));
    config.remarks.sort_by_key(|remark| remark.line);
    draft.config = Some(config);
    draft
}

fn redis(
    properties: &Properties,
    lost: &mut Vec<Remark>,
    faults: &mut Faults,
) -> Option<RedisDraft> {
    let is_enabled = properties.boolean("fluxgate.redis.enabled", faults);
    let uri = properties.text("fluxgate.redis.uri", faults);
    let mode = properties.text("fluxgate.redis.mode", faults);
    let timeout = properties.get("fluxgate.redis.timeout-ms");
    if is_enabled == Some(false) || (is_enabled.is_none() && uri.is_none()) {
        if properties.has("fluxgate.redis") {
            let text = "Redis, which is not enabled: limits are counted in the process";
            lost.push(Remark::lost(properties.line("fluxgate.redis"), text));
        }
        return None;
    }
    let mut draft = RedisDraft {
        key_prefix: Some(KEY_PREFIX),
        ..RedisDraft::default()
    };
    let uri = uri.unwrap_or("redis://localhost:6379");
    let line = properties.line("fluxgate.redis.uri");
    for url in crate::spring::words(uri) {
        let (url, query) = url.split_once('?').unwrap_or((url, ""));
        if !query.is_empty() {
            let text = format!("`?{query}` of the URL of Redis");
            draft.remarks.push(Remark::lost(line, text));
        }
        draft.urls.push(if url.contains("://") {
            url.to_owned()
        } else {
            format!("redis://{url}")
        });
    }
    draft.mode = match mode.map(str::to_ascii_lowercase).as_deref() {
        Some("cluster") => Some("cluster"),
        Some("standalone") => Some("standalone"),
        None | Some("auto") if draft.urls.len() > 1 => Some("cluster"),
        None | Some("auto") => None,
        Some(other) => {
            let text = format!("the mode `{other}` of Redis: it is detected");
            let line = properties.line("fluxgate.redis.mode");
            draft.remarks.push(Remark::lost(line, text));
            None
        }
    };
    if draft.urls.iter().any(|url| url.contains('@')) {
        let text = "the URL of Redis has a password: `password_file` names a file with it instead";
        draft.remarks.push(Remark::changed(line, text));
    }
    let text = format!(
        "keys begin with `{KEY_PREFIX}:`, because OpenFluxGate deletes those that begin with \
         `fluxgate:` when it reloads all rules"
    );
    draft.remarks.push(Remark::changed(line, text));
    if let Some(property) = timeout {
        let text = "`timeout-ms` of Redis: a decision takes at most `deadline`, 50ms";
        draft.remarks.push(Remark::lost(property.line(), text));
    }
    Some(draft)
}

fn mongodb(properties: &Properties, faults: &mut Faults) -> Option<MongoDraft> {
    let prefix = "fluxgate.mongo";
    let is_enabled = properties.boolean(&format!("{prefix}.enabled"), faults);
    let mut text = |name: &str| properties.text(&format!("{prefix}.{name}"), faults);
    let (uri, database) = (text("uri"), text("database"));
    let collection = text("rule-collection");
    let (events, ddl) = (text("event-collection"), text("ddl-auto"));
    if is_enabled == Some(false) || (is_enabled.is_none() && uri.is_none()) {
        return None;
    }
    let mut draft = MongoDraft {
        url: uri
            .unwrap_or("mongodb://localhost:27017/fluxgate")
            .to_owned(),
        database: database.unwrap_or("fluxgate").to_owned(),
        collection: collection.unwrap_or("rate_limit_rules").to_owned(),
        ..MongoDraft::default()
    };
    let mut remark = |is_lost: bool, name: &str, text: &str| {
        let line = properties.line(&format!("{prefix}.{name}"));
        let text = text.to_owned();
        draft.remarks.push(if is_lost {
            Remark::lost(line, text)
        } else {
            Remark::changed(line, text)
        });
    };
    if draft.url.contains('@') {
        let text =
            "the URL of MongoDB has a password: `url_file` names a file with the URL instead";
        remark(false, "uri", text);
    }
    if draft.url.starts_with("mongodb+srv:") {
        let text = "`mongodb+srv`: write `mongodb://` and the names of the hosts";
        remark(true, "uri", text);
    }
    if events.is_some() {
        let text = "`event-collection`: FluxGate keeps denials itself, see `history`";
        remark(true, "event-collection", text);
    }
    if let Some(ddl) = ddl {
        let text = format!("`ddl-auto: {ddl}`: FluxGate only reads the collection");
        remark(true, "ddl-auto", &text);
    }
    reload(properties, &mut draft, faults);
    Some(draft)
}

fn reload(properties: &Properties, draft: &mut MongoDraft, faults: &mut Faults) {
    const POLLING: &str =
        "with `strategy: POLLING` OpenFluxGate only polls; FluxGate also listens for messages";
    const PUBSUB: &str =
        "with `strategy: PUBSUB` OpenFluxGate only listens for messages; FluxGate also polls";
    const NONE: &str = "FluxGate always watches its rules, though `reload` is off";
    let prefix = "fluxgate.reload";
    let is_enabled = properties.boolean(&format!("{prefix}.enabled"), faults);
    let strategies = [
        ("AUTO", None),
        ("POLLING", Some(POLLING)),
        ("PUBSUB", Some(PUBSUB)),
        ("NONE", Some(NONE)),
    ];
    let strategy = properties.one_of(&format!("{prefix}.strategy"), &strategies, faults);
    let remark = match (is_enabled, strategy.flatten()) {
        (Some(false), _) => Some(("enabled", NONE)),
        (_, only) => only.map(|text| ("strategy", text)),
    };
    if let Some((property, text)) = remark {
        let line = properties.line(&format!("{prefix}.{property}"));
        draft.remarks.push(Remark::changed(line, text));
    }
    draft.poll = properties.duration(&format!("{prefix}.polling.interval"), faults);
    let channel = format!("{prefix}.pubsub.channel");
    if let Some(name) = properties.text(&channel, faults)
        && name != "fluxgate:rule-reload"
    {
        let text = format!("the channel `{name}`: FluxGate listens on `fluxgate:rule-reload`");
        draft
            .remarks
            .push(Remark::lost(properties.line(&channel), text));
    }
    let mut others = properties.below(prefix);
    let is_known = |name: &str| {
        let known = ["enabled", "strategy", "polling.interval", "pubsub.channel"];
        known.contains(&name)
    };
    others.retain(|(name, _)| !is_known(name));
    for (_, property) in others {
        let text = format!("`{}`: FluxGate reads rules when they change", property.name);
        draft.remarks.push(Remark::lost(property.line(), text));
    }
}

fn filter(properties: &Properties, config: &mut ConfigDraft, faults: &mut Faults) {
    let name = |name: &str| format!("fluxgate.ratelimit.{name}");
    let line = |it: &str| properties.line(&name(it));
    let mut filter = FilterDraft {
        name: FILTER.into(),
        ..FilterDraft::default()
    };
    let rule_set = properties.text(&name("default-rule-set-id"), faults);
    filter.rule_set = rule_set.map(str::to_owned);
    let is_enabled = properties.boolean(&name("enabled"), faults) != Some(false);
    let is_filtering = properties.boolean(&name("filter-enabled"), faults);
    if !is_enabled || (is_filtering == Some(false) && rule_set.is_some()) {
        let off = if is_enabled {
            "filter-enabled"
        } else {
            "enabled"
        };
        let text = format!("`{off}: false`: the filter has no rule set, so all requests pass");
        filter.remarks.push(Remark::changed(line(off), text));
        filter.rule_set = None;
    } else if rule_set.is_none() {
        let text = "the rule set of the filter is in Java code: name it in `rule_set`";
        filter.remarks.push(Remark::lost(line("enabled"), text));
    }
    for (property, is_include) in [("include-patterns", true), ("exclude-patterns", false)] {
        for (pattern, line) in properties.texts(&name(property), faults) {
            let (converted, remark) = path(&pattern, is_include);
            let list = if is_include {
                &mut filter.include
            } else {
                &mut filter.exclude
            };
            list.extend(converted);
            filter.remarks.extend(remark.map(|it| it.at(line)));
        }
    }
    let header = properties.text(&name("client-ip-header"), faults);
    let is_trusted = properties.boolean(&name("trust-client-ip-header"), faults);
    let header = header.unwrap_or(CLIENT_IP);
    if !header.eq_ignore_ascii_case(CLIENT_IP) {
        filter.client_ip = Some(header.to_owned());
    }
    if is_trusted != Some(false) {
        let at = ["trust-client-ip-header", "client-ip-header"];
        let at = at.into_iter().find(|it| properties.has(&name(it)));
        let at = at.map_or_else(|| properties.line("fluxgate.ratelimit"), line);
        let text = format!(
            "OpenFluxGate believes `{header}` of every client; FluxGate believes it only of \
             `trusted_proxies`, and there are none: add your proxies"
        );
        filter.remarks.push(Remark::changed(at, text));
    }
    filter.hides_headers = properties.boolean(&name("include-headers"), faults) == Some(false);
    if let Some(property) = properties.get(&name("filter-order")) {
        let text = "`filter-order`: a route names its filters in their order";
        filter.remarks.push(Remark::lost(property.line(), text));
    }
    waits(properties, &mut filter, faults);
    let behaviors = [("ALLOW", false), ("DENY", true)];
    let denies = properties.one_of(&name("missing-rule-behavior"), &behaviors, faults);
    config.denies_without_rules = denies.unwrap_or(false);
    config.filters.push(filter);
}

/// Reads `wait-for-refill`. Without it, rules that wait deny.
fn waits(properties: &Properties, filter: &mut FilterDraft, faults: &mut Faults) {
    let name = |name: &str| format!("fluxgate.ratelimit.wait-for-refill.{name}");
    let is_enabled = properties.boolean(&name("enabled"), faults) == Some(true);
    let most = properties.number(&name("max-concurrent-waits"), 0, faults);
    let longest = properties.number(&name("max-wait-time-ms"), 0, faults);
    filter.max_concurrent_waits = Some(if is_enabled {
        most.unwrap_or(100).min(MAX_WAITS)
    } else {
        0
    });
    if let Some(most) = most.filter(|it| is_enabled && *it > MAX_WAITS) {
        let text = format!("{most} concurrent waits are reduced to {MAX_WAITS}, the maximum");
        let line = properties.line(&name("max-concurrent-waits"));
        filter.remarks.push(Remark::changed(line, text));
    }
    if !is_enabled && (most.is_some() || longest.is_some()) {
        let text = "`wait-for-refill`, which is not enabled: rules that wait deny";
        let line = properties.line("fluxgate.ratelimit.wait-for-refill");
        filter.remarks.push(Remark::lost(line, text));
    }
    if let Some(longest) = longest.filter(|it| is_enabled && *it != 5_000) {
        let text = format!(
            "`max-wait-time-ms: {longest}`: rules have their own `max_wait`, 5s unless they say \
             otherwise"
        );
        let line = properties.line(&name("max-wait-time-ms"));
        filter.remarks.push(Remark::lost(line, text));
    }
}

/// A remark without its line.
enum PathRemark {
    Lost(String),
    Changed(String),
}

impl PathRemark {
    fn at(self, line: usize) -> Remark {
        match self {
            Self::Lost(text) => Remark::lost(line, text),
            Self::Changed(text) => Remark::changed(line, text),
        }
    }
}

fn path(pattern: &str, is_include: bool) -> (Option<String>, Option<PathRemark>) {
    let converted = path_patterns::ant(pattern);
    if is_include && converted.as_deref() == Some("/*") {
        let text = "`/*` includes paths of any depth, as a servlet's pattern does";
        return (Some("/**".into()), Some(PathRemark::Changed(text.into())));
    }
    let remark = match (&converted, is_include) {
        (Some(_), _) => None,
        (None, true) => Some(PathRemark::Lost(format!("the inclusion of `{pattern}`"))),
        (None, false) => Some(PathRemark::Lost(format!("the exclusion of `{pattern}`"))),
    };
    (converted, remark)
}

/// Reads what happens if Redis fails.
fn failures(properties: &Properties, config: &mut ConfigDraft, faults: &mut Faults) {
    let breaker = "fluxgate.resilience.circuit-breaker";
    let fallback = properties.text(&format!("{breaker}.fallback"), faults);
    let is_closed = fallback.is_some_and(|it| it.eq_ignore_ascii_case("fail_closed"));
    let (on_error, does) = if is_closed {
        ("deny", "denies requests")
    } else {
        ("allow", "lets requests pass")
    };
    if config.redis.is_some() || fallback.is_some() {
        let line = match fallback {
            Some(_) => properties.line(&format!("{breaker}.fallback")),
            None => properties.line("fluxgate.redis"),
        };
        let text = format!(
            "OpenFluxGate {does} if Redis fails; FluxGate goes on counting in the process, \
             unless the rule set says `on_error: {on_error}`"
        );
        config.remarks.push(Remark::changed(line, text));
    }
    let mut others = properties.below("fluxgate.resilience.retry");
    others.extend(properties.below(breaker));
    others.retain(|(name, _)| name != "fallback");
    for (_, property) in others {
        let text = format!("`{}`: FluxGate has a breaker of its own", property.name);
        config.remarks.push(Remark::lost(property.line(), text));
    }
}

/// Adds remarks on what FluxGate has in another place.
fn replaced(properties: &Properties, config: &mut ConfigDraft) {
    for (prefix, instead) in [
        (
            "fluxgate.metrics",
            "metrics are at `/metrics` of the API listener",
        ),
        (
            "fluxgate.actuator",
            "`/livez` and `/readyz` of the API listener",
        ),
        (
            "fluxgate.api",
            "the application asks the API listener instead",
        ),
        (
            "fluxgate.services",
            "the application asks the API listener instead",
        ),
        (
            "fluxgate.control",
            "rules are written through the admin API or MongoDB",
        ),
    ] {
        for (_, property) in properties.below(prefix) {
            let text = format!("`{}`: {instead}", property.name);
            config.remarks.push(Remark::lost(property.line(), text));
        }
    }
}
