//! Random configs never panic, and the effective form of a valid config prints itself.

use std::path::Path;

use fluxgate::config::{Overrides, RawConfig, effective_yaml};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::WHOLE;

/// Paths in a config, including those of [`WHOLE`].
const PATHS: &[&str] = &[
    "store",
    "store.memory",
    "store.memory.max_keys",
    "store.memory.max_log_events",
    "store.redis",
    "store.redis.url",
    "store.redis.urls",
    "store.redis.mode",
    "store.redis.sentinel",
    "store.redis.sentinel.master",
    "store.redis.username",
    "store.redis.password_file",
    "store.redis.deadline",
    "store.redis.key_prefix",
    "store.redis.near_cache",
    "store.redis.max_cluster_waits",
    "store.redis.tls",
    "store.redis.tls.ca",
    "keys",
    "keys.hash_keys",
    "keys.ipv6_prefix",
    "listen",
    "listen.gateway",
    "listen.api",
    "listen.api.address",
    "listen.api.tls",
    "listen.api.tls.client_ca",
    "history",
    "history.keep",
    "history.denials",
    "shutdown.delay",
    "webhooks",
    "webhooks.0",
    "webhooks.0.url",
    "webhooks.0.kinds",
    "filters",
    "filters.main",
    "filters.other",
    "filters.main.rule_set",
    "filters.main.include",
    "filters.main.exclude",
    "filters.main.ignore_case",
    "filters.main.identity.user",
    "filters.main.attributes",
    "filters.main.attributes.plan",
    "filters.main.jwt",
    "filters.main.jwt.from",
    "filters.main.jwt.jwks_file",
    "filters.main.jwt.jwks_url",
    "filters.main.jwt.issuer",
    "filters.main.jwt.leeway",
    "filters.main.trusted_proxies",
    "filters.main.headers.reset",
    "filters.main.client_ip",
    "gateway",
    "gateway.routes",
    "gateway.routes.0",
    "gateway.routes.0.id",
    "gateway.routes.0.match",
    "gateway.routes.0.match.host",
    "gateway.routes.0.match.headers",
    "gateway.routes.0.upstreams",
    "gateway.routes.0.filters",
    "gateway.timeouts.idle",
    "gateway.limits.body_bytes",
    "gateway.limits.streams",
    "gateway.llm",
    "gateway.llm.buffer",
    "gateway.tls",
    "rule_sets",
    "rules_from",
    "rules_from.dir",
    "rules_from.redis",
    "rules_from.mongodb",
    "rules_from.mongodb.url",
    "on_missing_rule_set",
    "call_limits",
    "call_limits.on_error",
    "admin.open",
    "admin.tokens_file",
    "telemetry",
    "telemetry.level",
    "telemetry.otlp",
    "x",
];

const VALUES: &[&str] = &[
    "",
    "null",
    "{}",
    "[]",
    "true",
    "false",
    "0",
    "1",
    "-1",
    "9999999999999999999",
    "x",
    "/",
    "/a/**",
    "'*'",
    "memory",
    "redis://a",
    "rediss://u:p@h:1/2",
    "unix:///s",
    "['redis://a', 'redis://b']",
    "auto",
    "cluster",
    "sentinel",
    "1s",
    "127.0.0.1:1",
    "0.0.0.0:0",
    "'[::1]:9'",
    "[/a, '/b c']",
    "['10.0.0.0/8', '::1']",
    "header:Forwarded",
    "epoch",
    "delta",
    "[echo]",
    "['http://a:1']",
    "[main]",
    "{ a: b }",
    "{ a: { b: [c] } }",
    "{ master: m }",
    "{ redis: {} }",
    "all",
    "none",
    "deny",
    "info",
    "\"a\\nb\\u0007\"",
    "'yes'",
    "é",
    "{ x: {} }",
    "[{ id: q, upstreams: [echo] }]",
    "{ a: { rules: [ { id: r, scope: global, bands: [ { capacity: 1, window: 1s } ] } ] } }",
];

fn parse(text: &str) -> Option<RawConfig> {
    RawConfig::parse(Path::new("fluxgate.yaml"), text).ok()
}

/// Checks that the effective form of a valid config loads again as the same config.
fn check_round_trip(raw: &RawConfig) -> Result<(), TestCaseError> {
    let shown = match effective_yaml(raw) {
        Ok(shown) => shown,
        Err(error) => {
            prop_assert!(!error.to_string().is_empty());
            return Ok(());
        }
    };
    let again = RawConfig::parse(Path::new("fluxgate.yaml"), &shown);
    let again = again.map_err(|error| TestCaseError::fail(format!("{error}\n{shown}")))?;
    let again = effective_yaml(&again);
    let again = again.map_err(|error| TestCaseError::fail(format!("{error}\n{shown}")))?;
    let bare = |text: &str| {
        let lines = text
            .lines()
            .map(|line| line.split(" # ").next().unwrap_or_default());
        let lines = lines.filter(|line| !line.trim_start().starts_with('#'));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    prop_assert_eq!(bare(&again), bare(&shown));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_text_never_panics(text in "[a-z0-9:{}\\[\\],\"'#&*!|>%@?~\\- \n/]{0,120}") {
        if let Some(raw) = parse(&text) {
            check_round_trip(&raw)?;
        }
    }

    #[test]
    fn random_values_at_known_paths_never_panic(
        whole in any::<bool>(),
        changes in vec((select(PATHS), select(VALUES)), 0..5),
    ) {
        let flags = changes.iter().map(|(path, value)| format!("{path}={value}"));
        let overrides = Overrides::default().and_flags(flags);
        let base = parse(if whole { WHOLE } else { "{}" }).unwrap();
        check_round_trip(&base.with_overrides(&overrides))?;
    }

    #[test]
    fn random_overrides_never_panic(name in "[A-Z_]{0,30}", value in "\\PC{0,40}", flag in "\\PC{0,60}") {
        let variables = [(format!("FLUXGATE__{name}").into(), value.into())];
        let overrides = Overrides::from_env(variables).and_flags([flag]);
        check_round_trip(&RawConfig::demo().with_overrides(&overrides))?;
    }
}
