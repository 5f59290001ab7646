//! Writes a draft as a rule file or as a configuration, with comments.

use std::fmt::Write as _;
use std::time::Duration;

use fluxgate_core::RuleSets;
use fluxgate_core::text::{duration_text, yaml_scalar};

use crate::config_draft::{
    ConfigDraft, FilterDraft, MongoDraft, RedisDraft, RouteDraft, UpstreamDraft,
};
use crate::draft::{Draft, InvalidDraft};
use crate::remark::{Remark, on_one_line};

/// The cache of the rules that a comment proposes. The directory may have to be made.
const CACHE_FILE: &str = "/var/lib/fluxgate/rules.yaml";

/// Returns the rule file of a draft. The remarks on a set or a rule are comments before it.
pub(crate) fn to_yaml(draft: &Draft, origin: &str) -> Result<String, InvalidDraft> {
    let mut text = header(draft, origin);
    write_rule_sets(draft, true, &mut text)?;
    Ok(text)
}

/// Returns the configuration of a draft.
pub(crate) fn to_config(
    draft: &Draft,
    config: &ConfigDraft,
    origin: &str,
) -> Result<String, InvalidDraft> {
    let mut text = header(draft, origin);
    write_comments(&config.remarks, "", &mut text);
    if let Some(redis) = &config.redis {
        write_redis(redis, &mut text);
    }
    write_listen(config, &mut text);
    if !config.filters.is_empty() {
        text.push_str("filters:\n");
    }
    for filter in &config.filters {
        write_filter(filter, &mut text);
    }
    write_gateway(config, &mut text);
    if config.denies_without_rules {
        text.push_str("on_missing_rule_set: deny\n");
    }
    match &config.mongodb {
        Some(mongodb) => write_mongodb(mongodb, &mut text),
        None if draft.sets.is_empty() => text.push_str("rule_sets: {}\n"),
        None => write_rule_sets(draft, false, &mut text)?,
    }
    Ok(text)
}

fn header(draft: &Draft, origin: &str) -> String {
    let mut text = format!("# Imported from {}\n", on_one_line(origin));
    write_comments(&draft.remarks, "", &mut text);
    text
}

fn write_rule_sets(
    draft: &Draft,
    has_selections: bool,
    text: &mut String,
) -> Result<(), InvalidDraft> {
    text.push_str("rule_sets:\n");
    for set in &draft.sets {
        if has_selections {
            write_comments(set.selection.as_slice(), "  ", text);
        }
        write_comments(&set.remarks, "  ", text);
        let mut rules = set.rules.iter();
        let yaml = RuleSets::from(set.to_rule_set()?).to_yaml();
        // Each set is written by itself, to keep their order. The first line is `rule_sets:`.
        for line in yaml.lines().skip(1) {
            if line.starts_with("      - ") {
                let remarks = rules.next().map_or(&[][..], |rule| &rule.remarks);
                write_comments(remarks, "      ", text);
            }
            text.push_str(line);
            text.push('\n');
        }
    }
    Ok(())
}

fn write_redis(redis: &RedisDraft, text: &mut String) {
    text.push_str("store:\n");
    write_comments(&redis.remarks, "  ", text);
    text.push_str("  redis:\n");
    let mut fields = Fields::default();
    match redis.urls.as_slice() {
        [url] => fields.add("url", yaml_scalar(url)),
        urls => fields.add("urls", list(urls)),
    }
    fields.add_some("mode", redis.mode.map(str::to_owned));
    let master = redis.sentinel_master.as_deref().map(yaml_scalar);
    let sentinel = master.map(|master| format!("{{ master: {master} }}"));
    fields.add_some("sentinel", sentinel);
    fields.add_some("username", redis.username.as_deref().map(yaml_scalar));
    fields.add_some("key_prefix", redis.key_prefix.map(yaml_scalar));
    fields.write("    ", text);
}

fn write_listen(config: &ConfigDraft, text: &mut String) {
    // The port of the API must differ from that of the gateway.
    let is_taken = |port: &str| {
        let gateway = config.gateway.as_deref();
        gateway.is_some_and(|address| address.ends_with(port))
    };
    let api = if is_taken(":8081") { 8082 } else { 8081 };
    let mut listeners = Vec::new();
    if let Some(address) = config.gateway.as_ref().filter(|_| has_routes(config)) {
        listeners.push(format!("gateway: {}", yaml_scalar(address)));
    }
    listeners.push(format!("api: \"127.0.0.1:{api}\""));
    let _ = writeln!(text, "listen: {{ {} }}", listeners.join(", "));
}

fn has_routes(config: &ConfigDraft) -> bool {
    !config.routes.is_empty()
}

fn write_filter(filter: &FilterDraft, text: &mut String) {
    write_comments(&filter.remarks, "  ", text);
    let mut fields = Fields::default();
    fields.add_some("rule_set", filter.rule_set.as_deref().map(yaml_scalar));
    fields.add_list("include", &filter.include);
    fields.add_list("exclude", &filter.exclude);
    fields.add_map("attributes", &filter.attributes);
    let client_ip = filter.client_ip.as_ref();
    let client_ip = client_ip.map(|name| yaml_scalar(&format!("header:{name}")));
    fields.add_some("client_ip", client_ip);
    if filter.hides_headers {
        fields.add("headers", "{ legacy: false, ietf: false }".into());
    }
    let waits = filter.max_concurrent_waits;
    fields.add_some("max_concurrent_waits", waits.map(|it| it.to_string()));
    let name = yaml_scalar(&filter.name);
    if fields.0.is_empty() {
        let _ = writeln!(text, "  {name}: {{}}");
    } else {
        let _ = writeln!(text, "  {name}:");
        fields.write("    ", text);
    }
}

fn write_gateway(config: &ConfigDraft, text: &mut String) {
    if !has_routes(config) {
        return;
    }
    text.push_str("gateway:\n  routes:\n");
    for route in &config.routes {
        write_route(route, text);
    }
    let mut fields = Fields::default();
    fields.add_timeouts(&config.timeouts);
    fields.add_max_body(config.max_body);
    if let Some((cert, key)) = &config.tls {
        let (cert, key) = (yaml_scalar(cert), yaml_scalar(key));
        fields.add("tls", format!("{{ cert: {cert}, key: {key} }}"));
    }
    fields.write("  ", text);
}

fn write_route(route: &RouteDraft, text: &mut String) {
    write_comments(&route.remarks, "    ", text);
    let mut matches = Fields::default();
    matches.add_list("path", &route.path);
    matches.add_list("host", &route.host);
    matches.add_list("methods", &route.methods);
    matches.add_map("headers", &route.headers);
    let mut fields = Fields::default();
    fields.add_section("match", &matches);
    let upstreams: Vec<_> = route.upstreams.iter().map(upstream).collect();
    fields.add("upstreams", format!("[{}]", upstreams.join(", ")));
    write_forwarding(route, &mut fields);
    fields.add_list("filters", &route.filters);
    let _ = writeln!(text, "    - id: {}", yaml_scalar(&route.id));
    fields.write("      ", text);
}

fn upstream(upstream: &UpstreamDraft) -> String {
    let url = yaml_scalar(&upstream.url);
    match upstream.weight {
        Some(weight) => format!("{{ url: {url}, weight: {weight} }}"),
        None => url,
    }
}

fn write_forwarding(route: &RouteDraft, fields: &mut Fields) {
    let draft = &route.forwarding;
    let mut rewrite = Fields::default();
    let scalar = |text: &Option<String>| text.as_deref().map(yaml_scalar);
    rewrite.add_some("strip_prefix", scalar(&route.strip_prefix));
    rewrite.add_some("add_prefix", scalar(&route.add_prefix));
    rewrite.add_some("host", scalar(&draft.host));
    fields.add_section("rewrite", &rewrite);
    let [mut headers, mut request, mut response] = [(); 3].map(|()| Fields::default());
    request.add_map("set", &draft.set_headers);
    request.add_list("remove", &draft.removed_headers);
    response.add_list("remove", &draft.hidden_headers);
    headers.add_section("request", &request);
    headers.add_section("response", &response);
    fields.add_section("headers", &headers);
    fields.add_timeouts(&draft.timeouts);
    fields.add_max_body(draft.max_body);
}

fn write_mongodb(mongodb: &MongoDraft, text: &mut String) {
    text.push_str("rules_from:\n");
    write_comments(&mongodb.remarks, "  ", text);
    text.push_str("  mongodb:\n");
    let mut fields = Fields::default();
    fields.add("url", yaml_scalar(&mongodb.url));
    fields.add("database", yaml_scalar(&mongodb.database));
    fields.add("collection", yaml_scalar(&mongodb.collection));
    fields.write("    ", text);
    let hint = "keeps the last good rules, for a start without MongoDB";
    let _ = writeln!(text, "    # cache_file: {CACHE_FILE}  # {hint}");
    if let Some(poll) = mongodb.poll {
        let _ = writeln!(text, "  poll: {}", duration_text(poll));
    }
}

/// The fields of a mapping, whose values are YAML already.
#[derive(Default)]
struct Fields(Vec<(String, String)>);

impl Fields {
    fn add(&mut self, name: &str, value: String) {
        self.0.push((name.to_owned(), value));
    }

    fn add_some(&mut self, name: &str, value: Option<String>) {
        if let Some(value) = value {
            self.add(name, value);
        }
    }

    fn add_list(&mut self, name: &str, items: &[String]) {
        if !items.is_empty() {
            self.add(name, list(items));
        }
    }

    fn add_map(&mut self, name: &str, pairs: &[(String, String)]) {
        if !pairs.is_empty() {
            let pairs = pairs
                .iter()
                .map(|(name, value)| (yaml_scalar(name), yaml_scalar(value)));
            self.add(name, Self(pairs.collect()).flow());
        }
    }

    /// Adds a mapping, unless it is empty.
    fn add_section(&mut self, name: &str, fields: &Self) {
        if !fields.0.is_empty() {
            self.add(name, fields.flow());
        }
    }

    fn add_timeouts(&mut self, timeouts: &[(&str, Duration)]) {
        let times = timeouts.iter();
        let times = times.map(|(name, time)| ((*name).to_owned(), duration_text(*time)));
        self.add_section("timeouts", &Self(times.collect()));
    }

    fn add_max_body(&mut self, bytes: Option<u64>) {
        let limit = bytes.map(|bytes| format!("{{ body_bytes: {bytes} }}"));
        self.add_some("limits", limit);
    }

    fn flow(&self) -> String {
        let fields = self.0.iter();
        let fields: Vec<_> = fields
            .map(|(name, value)| format!("{name}: {value}"))
            .collect();
        format!("{{ {} }}", fields.join(", "))
    }

    fn write(&self, indent: &str, text: &mut String) {
        for (name, value) in &self.0 {
            let _ = writeln!(text, "{indent}{name}: {value}");
        }
    }
}

fn list(items: &[String]) -> String {
    let items: Vec<_> = items.iter().map(|item| yaml_scalar(item)).collect();
    format!("[{}]", items.join(", "))
}

fn write_comments(remarks: &[Remark], indent: &str, text: &mut String) {
    for remark in remarks {
        let (sentence, line) = (remark.sentence(), remark.line);
        let _ = writeln!(text, "{indent}# {sentence} (line {line})");
    }
}
