//! Invalid configurations: each fault is reported with its position.

use fluxgate_core::RulesError;
use fluxgate_import::{Format, ImportError};

use super::import;

/// A format, a text, and its fault.
const REJECTED: &[(Format, &str, &str)] = &[
    (
        Format::EnvoyRatelimit,
        "domain: [",
        "1:10: not valid YAML: …",
    ),
    (
        Format::EnvoyRatelimit,
        "",
        "1:1: a configuration must be a mapping, not nothing",
    ),
    (
        Format::EnvoyRatelimit,
        "descriptors: []",
        "1:1: a configuration needs a `domain`",
    ),
    (
        Format::EnvoyRatelimit,
        "domain: d\ndescriptors: 7",
        "2:14: `descriptors` must be a list, not a single value",
    ),
    (
        Format::EnvoyRatelimit,
        "domain: d\ndescriptors: [ { value: x } ]",
        "2:16: a descriptor needs a `key`",
    ),
    (
        Format::EnvoyRatelimit,
        "domain: d\ndescriptors: [ { key: k, rate_limit: { unit: fortnight, requests_per_unit: 1 } } ]",
        "2:46: `unit` must be one of second, minute, hour, day, week, month, year; `fortnight` is not",
    ),
    (
        Format::EnvoyRatelimit,
        "domain: d\ndescriptors: [ { key: k, rate_limit: { unit: day, requests_per_unit: -1 } } ]",
        "2:70: `requests_per_unit` must be a whole number from 0 to 4294967295, not `-1`",
    ),
    (
        Format::EnvoyRatelimit,
        "domain: d\ndescriptors: [ { key: k, rate_limit: { unit: day } } ]",
        "2:38: `rate_limit` needs a `unit` and `requests_per_unit`",
    ),
    (
        Format::EnvoyRatelimit,
        "domain: d\ndescriptors: [ { key: k }, { key: k } ]",
        "2:28: `k` with `(any value)` is in this list twice",
    ),
    (
        Format::EnvoyRatelimit,
        "domain: d\ndescriptors: [ { key: k, rate_limits: {} } ]",
        "2:26: unknown field `rate_limits` in a descriptor; did you mean `rate_limit`? allowed are …",
    ),
    (
        Format::Nginx,
        "http {",
        "1:1: the block of `http` is not closed",
    ),
    (Format::Nginx, "http { }\n}", "2:1: `}` closes no block"),
    (
        Format::Nginx,
        "http { limit_req zone=a }",
        "1:25: `limit_req` is not followed by `;`",
    ),
    (
        Format::Nginx,
        "limit_req zone=a",
        "1:17: `limit_req` is not followed by `;`",
    ),
    (Format::Nginx, "a 'b;\n", "1:3: a quoted text is not closed"),
    (Format::Nginx, "a; ;", "1:4: `;` without a directive"),
    (Format::Nginx, "{ }", "1:1: `{` without a directive"),
    (
        Format::Nginx,
        "limit_req zone=a;",
        "1:1: zone `a` is not defined",
    ),
    (
        Format::Nginx,
        "limit_req burst=1;",
        "1:1: `limit_req` needs `zone=NAME`",
    ),
    (
        Format::Nginx,
        "limit_req_zone $uri zone=z:1m rate=10x/s;",
        "1:31: `rate=10x/s` must be a whole number of requests from 1 to 1000000000 per second or minute, such as rate=10r/s or rate=30r/m",
    ),
    (
        Format::Nginx,
        "limit_req_zone $uri zone=z:1m rate=0r/s;",
        "1:31: `rate=0r/s` must be …",
    ),
    (
        Format::Nginx,
        "limit_req_zone $uri zone=z:1m rate=1.5r/s;",
        "1:31: `rate=1.5r/s` must be …",
    ),
    (
        Format::Nginx,
        "limit_req_zone $uri zone=z rate=1r/s;",
        "1:1: `limit_req_zone` needs a key, `zone=NAME:SIZE` and `rate=RATE`",
    ),
    (
        Format::Nginx,
        "limit_req_zone $uri zone=z:1m rate=1r/s;\nlimit_req zone=z burst=x;",
        "2:18: `burst=x` must have a whole number after `=`",
    ),
    (
        Format::Nginx,
        "limit_req_zone $uri zone=z:1m rate=1r/s;\nlimit_req zone=z speed=1;",
        "2:18: `speed=1` is not a parameter of `limit_req`",
    ),
    (
        Format::Nginx,
        "limit_req_dry_run maybe;",
        "1:1: `limit_req_dry_run` must be on or off, not `maybe`",
    ),
    (
        Format::Kong,
        "services: []",
        "1:1: a declarative configuration needs `_format_version`",
    ),
    (
        Format::Kong,
        "_format_version: '3.0'\nplugins: {}",
        "2:10: `plugins` must be a list, not a mapping",
    ),
    (
        Format::Kong,
        "_format_version: '3.0'\nplugins: [ { config: {} } ]",
        "2:12: a plugin needs a `name`",
    ),
    (
        Format::Kong,
        "_format_version: '3.0'\nplugins: [ { name: rate-limiting, config: { minute: many } } ]",
        "2:53: `minute` must be a whole number of at least 1, not `many`",
    ),
    (
        Format::Kong,
        "_format_version: '3.0'\nplugins: [ { name: rate-limiting, config: { minute: 1, limit_by: moon } } ]",
        "2:66: `limit_by` must be one of consumer, credential, ip, service, route, header, path, consumer-group; `moon` is not",
    ),
    (
        Format::Kong,
        "_format_version: '3.0'\nplugins: [ { name: rate-limiting, config: { minute: 1, limit_by: header } } ]",
        "2:66: `limit_by: header` needs a `header_name`",
    ),
    (
        Format::Kong,
        "_format_version: '3.0'\nplugins: [ { name: rate-limiting-advanced, config: { limit: [1, 2], window_size: [60] } } ]",
        "2:61: `limit` and `window_size` must have the same length, not 2 and 1",
    ),
    (
        Format::Kong,
        "_format_version: '3.0'\nplugins: [ { name: rate-limiting, service: ghost, config: { minute: 1 } } ]",
        "2:44: there is no service `ghost`",
    ),
    (
        Format::OpenFluxgate,
        "fluxgate.redis.uri=redis://a\nfluxgate.mongo.enabled=true\n",
        "1:1: this is not YAML but a .properties file; convert it to application.yml",
    ),
    (
        Format::Bucket4j,
        "bucket4j: { filters: [] }\nbucket4j.enabled: false\n",
        "2:1: `bucket4j.enabled` must be written as `enabled` below `bucket4j`",
    ),
    (
        Format::Bucket4j,
        "bucket4j: { filters: [ { rate-limits: [ { tokens-inheritance-strategy: MOON, bandwidths: [ { capacity: 1, time: 1, unit: days } ] } ] } ] }",
        "1:72: `tokens-inheritance-strategy` must be one of RESET, AS_IS, ADDITIVE, PROPORTIONALLY; `MOON` is not",
    ),
    (
        Format::Bucket4j,
        "spring: {}",
        "1:1: a configuration needs `bucket4j`",
    ),
    (
        Format::Bucket4j,
        "bucket4j.enabled=true\nbucket4j.filters[0].url=.*\n",
        "1:1: this is not YAML but a .properties file; convert it to application.yml",
    ),
    (
        Format::Bucket4j,
        "bucket4j: { filters: [ { rate-limits: [ { cache-key: '1' } ] } ] }",
        "1:41: a rate limit needs `bandwidths`",
    ),
    (
        Format::Bucket4j,
        "bucket4j: { filters: [ { rate-limits: [ { bandwidths: [ { capacity: 1, time: 1, unit: moons } ] } ] } ] }",
        "1:87: `unit` must be one of millis, seconds, minutes, hours, half_days, days, weeks; `moons` is not",
    ),
    (
        Format::Bucket4j,
        "bucket4j: { filters: [ { rate-limits: [ { bandwidths: [ { capacity: 0, time: 1, unit: days } ] } ] } ] }",
        "1:69: `capacity` must be a whole number of at least 1, not `0`",
    ),
    (
        Format::Bucket4j,
        "bucket4j: { filters: [ { rate-limits: [ { bandwidths: [ { capacity: 1 } ] } ] } ] }",
        "1:57: a bandwidth needs `capacity`, `time` and `unit`",
    ),
    (
        Format::Bucket4j,
        "bucket4j: { filters: [ { strategy: some } ] }",
        "1:36: `strategy` must be one of first, all, FIRST, ALL; `some` is not",
    ),
    (
        Format::Bucket4j,
        "",
        "1:1: a configuration needs `bucket4j`",
    ),
    (
        Format::Bucket4j,
        "bucket4j: { enabled: '${RL}' }",
        "1:22: `enabled` must be true or false, not `${RL}`",
    ),
    (
        Format::Bucket4j,
        "bucket4j: { filters: [ { rate-limits: [ { bandwidths: [ { capacity: '${C}', time: 1, unit: days } ] } ] } ] }",
        "1:69: `capacity` must be a whole number of at least 1, not `${C}`",
    ),
    (
        Format::Bucket4j,
        "bucket4j: {}\n---\nbucket4j: {}\nbucket4j: {}\n",
        "4:1: `bucket4j` appears twice in a configuration",
    ),
    (
        Format::Kong,
        "_format_version: '3.0'\nplugins: [ { <<: 7, name: rate-limiting } ]",
        "2:18: `<<` must be a mapping or a list of mappings, not a single value",
    ),
    (
        Format::Kong,
        "_format_version: '3.0'\n---\n_format_version: '3.0'\n",
        "3:1: only one document is allowed",
    ),
    (
        Format::OpenFluxgate,
        "7",
        "1:1: the rules must be a list, not a single value",
    ),
    (
        Format::OpenFluxgate,
        "[ { bands: [] } ]",
        "1:3: a rule needs an `id`",
    ),
    (
        Format::OpenFluxgate,
        "[ { id: r } ]",
        "1:3: a rule needs `bands`",
    ),
    (
        Format::OpenFluxgate,
        "[ { id: r, scope: PER_MOON, bands: [ { windowSeconds: 1, capacity: 1 } ] } ]",
        "1:19: `scope` must be one of GLOBAL, PER_IP, PER_USER, PER_API_KEY, CUSTOM; `PER_MOON` is not",
    ),
    (
        Format::OpenFluxgate,
        "[ { id: r, bands: [ { windowSeconds: 0, capacity: 1 } ] } ]",
        "1:38: `windowSeconds` must be a whole number of at least 1, not `0`",
    ),
    (
        Format::OpenFluxgate,
        "[ { id: r, bands: [ { window: P1W, capacity: 1 } ] } ]",
        "1:31: `window` must be a duration such as PT1S, PT1M or PT1H",
    ),
    (
        Format::OpenFluxgate,
        "[ { id: r, deniedIps: [here], bands: [ { windowSeconds: 1, capacity: 1 } ] } ]",
        "1:24: `here` is not an address or a range such as 10.0.0.0/8",
    ),
];

#[test]
fn faults_have_a_position() {
    for (format, text, expected) in REJECTED {
        let Err(ImportError::Invalid(RulesError(faults))) = import(*format, text) else {
            panic!("{text} is valid");
        };
        assert_eq!(faults.len(), 1, "{text}: {faults:?}");
        let given = faults[0].to_string();
        match expected.strip_suffix('…') {
            Some(begin) => assert!(given.starts_with(begin), "{text}: {given}"),
            None => assert_eq!(given, *expected, "{text}"),
        }
    }
}

#[test]
fn nesting_has_a_bound() {
    let levels = 100_000;
    let fault = import(Format::Nginx, &"location / { ".repeat(levels)).unwrap_err();
    assert_eq!(
        fault.to_string(),
        "1:428: blocks are nested more than 32 levels deep"
    );
    for (levels, expected) in [(100, "nested too deeply"), (levels, "recursion limit")] {
        let yaml = "[".repeat(levels);
        for format in [
            Format::EnvoyRatelimit,
            Format::Kong,
            Format::Bucket4j,
            Format::OpenFluxgate,
        ] {
            let fault = import(format, &yaml).unwrap_err().to_string();
            assert!(fault.contains(expected), "{format:?}: {fault}");
        }
    }
    let groups = format!("location ~ {} {{ limit_req zone=z; }}", "(".repeat(levels));
    let text = format!("limit_req_zone $uri zone=z:1m rate=1r/s;\n{groups}");
    let nothing = import(Format::Nginx, &text).unwrap_err();
    assert!(matches!(nothing, ImportError::Nothing(_)), "{nothing}");
}

/// Names and texts of the source stay inside comments and scalars.
#[test]
fn hostile_names_give_a_valid_file() {
    let key = r#"\"evil\\ \u2028 \n: [x\"#;
    let text = format!(
        "{{\"domain\":\"a\\nb: {{\",\"descriptors\":[{{\"key\":\"k\",\"value\":\"{}\",\"rate_limit\":{{\"unit\":\"day\",\"requests_per_unit\":1,\"name\":\"x\\n- y\"}}}}]}}",
        key.trim_end_matches('\\')
    );
    super::rules(Format::EnvoyRatelimit, &text);
    let text = "limit_req_zone $uri zone=\"z\n: #{\":1m rate=1r/s;\nlimit_req zone=\"z\n: #{\";\nlimit_req_status \"5\n- id: x\";\n";
    // A quote inside a word is part of it.
    assert!(import(Format::Nginx, text).is_err());
    let text = "limit_req_zone $uri zone=z:1m rate=1r/s;\nlimit_req zone=z;\nlimit_req_status \"5\n- id: x\";\n";
    let rules = super::rules(Format::Nginx, text);
    super::assert_lines(
        &rules,
        &[
            "# not carried over: `limit_req_status 5 - id: x`: a denied request is answered with 429 (line 3)",
        ],
    );
}
