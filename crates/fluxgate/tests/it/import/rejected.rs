//! Invalid configurations: each fault is reported with its position.

use super::import;

/// A format, a text, and the lines on standard error.
const REJECTED: &[(&str, &str, &str)] = &[
    ("envoy-ratelimit", "domain: [", "1:10: not valid YAML: …"),
    (
        "envoy-ratelimit",
        "",
        "1:1: a configuration must be a mapping, not nothing",
    ),
    (
        "envoy-ratelimit",
        "descriptors: []",
        "1:1: a configuration needs a `domain`",
    ),
    (
        "envoy-ratelimit",
        "domain: d\ndescriptors: 7",
        "2:14: `descriptors` must be a list, not a single value",
    ),
    (
        "envoy-ratelimit",
        "domain: d\ndescriptors: [ { value: x } ]",
        "2:16: a descriptor needs a `key`",
    ),
    (
        "envoy-ratelimit",
        "domain: d\ndescriptors: [ { key: k, rate_limit: { unit: fortnight, requests_per_unit: 1 } } ]",
        "2:46: `unit` must be one of second, minute, hour, day, week, month, year; `fortnight` is not",
    ),
    (
        "envoy-ratelimit",
        "domain: d\ndescriptors: [ { key: k, rate_limit: { unit: day, requests_per_unit: -1 } } ]",
        "2:70: `requests_per_unit` must be a whole number from 0 to 4294967295, not `-1`",
    ),
    (
        "envoy-ratelimit",
        "domain: d\ndescriptors: [ { key: k, rate_limit: { unit: day } } ]",
        "2:38: `rate_limit` needs a `unit` and `requests_per_unit`",
    ),
    (
        "envoy-ratelimit",
        "domain: d\ndescriptors: [ { key: k }, { key: k } ]",
        "2:28: `k` with `(any value)` is in this list twice",
    ),
    (
        "envoy-ratelimit",
        "domain: d\ndescriptors: [ { key: k, rate_limits: {} } ]",
        "2:26: unknown field `rate_limits` in a descriptor; did you mean `rate_limit`? allowed are …",
    ),
    ("nginx", "http {", "1:1: the block of `http` is not closed"),
    ("nginx", "http { }\n}", "2:1: `}` closes no block"),
    (
        "nginx",
        "http { limit_req zone=a }",
        "1:25: `limit_req` is not followed by `;`",
    ),
    (
        "nginx",
        "limit_req zone=a",
        "1:17: `limit_req` is not followed by `;`",
    ),
    ("nginx", "a 'b;\n", "1:3: a quoted text is not closed"),
    ("nginx", "a; ;", "1:4: `;` without a directive"),
    ("nginx", "{ }", "1:1: `{` without a directive"),
    ("nginx", "limit_req zone=a;", "1:1: zone `a` is not defined"),
    (
        "nginx",
        "limit_req burst=1;",
        "1:1: `limit_req` needs `zone=NAME`",
    ),
    (
        "nginx",
        "limit_req_zone $uri zone=z:1m rate=10x/s;",
        "1:31: `rate=10x/s` must be a whole number of requests from 1 to 1000000000 per second or minute, such as rate=10r/s or rate=30r/m",
    ),
    (
        "nginx",
        "limit_req_zone $uri zone=z:1m rate=0r/s;",
        "1:31: `rate=0r/s` must be …",
    ),
    (
        "nginx",
        "limit_req_zone $uri zone=z:1m rate=1.5r/s;",
        "1:31: `rate=1.5r/s` must be …",
    ),
    (
        "nginx",
        "limit_req_zone $uri zone=z rate=1r/s;",
        "1:1: `limit_req_zone` needs a key, `zone=NAME:SIZE` and `rate=RATE`",
    ),
    (
        "nginx",
        "limit_req_zone $uri zone=z:1m rate=1r/s;\nlimit_req zone=z burst=x;",
        "2:18: `burst=x` must have a whole number after `=`",
    ),
    (
        "nginx",
        "limit_req_zone $uri zone=z:1m rate=1r/s;\nlimit_req zone=z speed=1;",
        "2:18: `speed=1` is not a parameter of `limit_req`",
    ),
    (
        "nginx",
        "limit_req_dry_run maybe;",
        "1:1: `limit_req_dry_run` must be on or off, not `maybe`",
    ),
    (
        "kong",
        "services: []",
        "1:1: a declarative configuration needs `_format_version`",
    ),
    (
        "kong",
        "_format_version: '3.0'\nplugins: {}",
        "2:10: `plugins` must be a list, not a mapping",
    ),
    (
        "kong",
        "_format_version: '3.0'\nplugins: [ { config: {} } ]",
        "2:12: a plugin needs a `name`",
    ),
    (
        "kong",
        "_format_version: '3.0'\nplugins: [ { name: rate-limiting, config: { minute: many } } ]",
        "2:53: `minute` must be a whole number of at least 1, not `many`",
    ),
    (
        "kong",
        "_format_version: '3.0'\nplugins: [ { name: rate-limiting, config: { minute: 1, limit_by: moon } } ]",
        "2:66: `limit_by` must be one of consumer, credential, ip, service, header, path, consumer-group; `moon` is not",
    ),
    (
        "kong",
        "_format_version: '3.0'\nplugins: [ { name: rate-limiting, config: { minute: 1, limit_by: header } } ]",
        "2:66: `limit_by: header` needs a `header_name`",
    ),
    (
        "kong",
        "_format_version: '3.0'\nplugins: [ { name: rate-limiting-advanced, config: { limit: [1, 2], window_size: [60] } } ]",
        "2:61: `limit` and `window_size` must have the same length, not 2 and 1",
    ),
    (
        "kong",
        "_format_version: '3.0'\nplugins: [ { name: rate-limiting, service: ghost, config: { minute: 1 } } ]",
        "2:44: there is no service `ghost`",
    ),
    (
        "bucket4j",
        "spring: {}",
        "1:1: a configuration needs `bucket4j`",
    ),
    (
        "bucket4j",
        "bucket4j.enabled=true\nbucket4j.filters[0].url=.*\n",
        "1:1: this is not YAML but a .properties file; convert it to application.yml",
    ),
    (
        "bucket4j",
        "bucket4j: { filters: [ { rate-limits: [ { cache-key: '1' } ] } ] }",
        "1:41: a rate limit needs `bandwidths`",
    ),
    (
        "bucket4j",
        "bucket4j: { filters: [ { rate-limits: [ { bandwidths: [ { capacity: 1, time: 1, unit: moons } ] } ] } ] }",
        "1:87: `unit` must be one of millis, seconds, minutes, hours, half_days, days, weeks; `moons` is not",
    ),
    (
        "bucket4j",
        "bucket4j: { filters: [ { rate-limits: [ { bandwidths: [ { capacity: 0, time: 1, unit: days } ] } ] } ] }",
        "1:69: `capacity` must be a whole number of at least 1, not `0`",
    ),
    (
        "bucket4j",
        "bucket4j: { filters: [ { rate-limits: [ { bandwidths: [ { capacity: 1 } ] } ] } ] }",
        "1:57: a bandwidth needs `capacity`, `time` and `unit`",
    ),
    (
        "bucket4j",
        "bucket4j: { filters: [ { strategy: some } ] }",
        "1:36: `strategy` must be one of first, all, FIRST, ALL; `some` is not",
    ),
    ("bucket4j", "", "1:1: a configuration needs `bucket4j`"),
    (
        "bucket4j",
        "bucket4j: { enabled: '${RL}' }",
        "1:22: `enabled` must be true or false, not `${RL}`",
    ),
    (
        "bucket4j",
        "bucket4j: { filters: [ { rate-limits: [ { bandwidths: [ { capacity: '${C}', time: 1, unit: days } ] } ] } ] }",
        "1:69: `capacity` must be a whole number of at least 1, not `${C}`",
    ),
    (
        "bucket4j",
        "bucket4j: {}\n---\nbucket4j: {}\nbucket4j: {}\n",
        "4:1: `bucket4j` appears twice in a configuration",
    ),
    (
        "kong",
        "_format_version: '3.0'\nplugins: [ { <<: 7, name: rate-limiting } ]",
        "2:18: `<<` must be a mapping or a list of mappings, not a single value",
    ),
    (
        "kong",
        "_format_version: '3.0'\n---\n_format_version: '3.0'\n",
        "3:1: only one document is allowed",
    ),
    (
        "openfluxgate",
        "7",
        "1:1: the rules must be a list, not a single value",
    ),
    (
        "openfluxgate",
        "[ { bands: [] } ]",
        "1:3: a rule needs an `id`",
    ),
    ("openfluxgate", "[ { id: r } ]", "1:3: a rule needs `bands`"),
    (
        "openfluxgate",
        "[ { id: r, scope: PER_MOON, bands: [ { windowSeconds: 1, capacity: 1 } ] } ]",
        "1:19: `scope` must be one of GLOBAL, PER_IP, PER_USER, PER_API_KEY, CUSTOM; `PER_MOON` is not",
    ),
    (
        "openfluxgate",
        "[ { id: r, bands: [ { windowSeconds: 0, capacity: 1 } ] } ]",
        "1:38: `windowSeconds` must be a whole number of at least 1, not `0`",
    ),
    (
        "openfluxgate",
        "[ { id: r, bands: [ { window: P1W, capacity: 1 } ] } ]",
        "1:31: `window` must be a duration such as PT1S, PT1M or PT1H",
    ),
    (
        "openfluxgate",
        "[ { id: r, deniedIps: [here], bands: [ { windowSeconds: 1, capacity: 1 } ] } ]",
        "1:24: `here` is not an address or a range such as 10.0.0.0/8",
    ),
];

#[test]
fn faults_have_a_position() {
    for (format, text, expected) in REJECTED {
        let run = import(format, text);
        assert_eq!(
            (run.code, run.stdout.as_str()),
            (Some(78), ""),
            "{text}: {}",
            run.stderr
        );
        let lines: Vec<_> = run.stderr.lines().collect();
        assert_eq!(lines.len(), 1, "{text}: {lines:?}");
        let given = lines[0].strip_prefix("source:").unwrap_or_default();
        match expected.strip_suffix('…') {
            Some(begin) => assert!(given.starts_with(begin), "{text}: {given}"),
            None => assert_eq!(given, *expected, "{text}"),
        }
    }
}

#[test]
fn nesting_has_a_bound() {
    let levels = 100_000;
    let nginx = "location / { ".repeat(levels);
    let run = import("nginx", &nginx);
    assert_eq!(run.code, Some(78));
    assert_eq!(
        run.stderr,
        "source:1:428: blocks are nested more than 32 levels deep\n"
    );
    for (levels, expected) in [(100, "nested too deeply"), (levels, "recursion limit")] {
        let yaml = "[".repeat(levels);
        for format in ["envoy-ratelimit", "kong", "bucket4j", "openfluxgate"] {
            let run = import(format, &yaml);
            assert_eq!(run.code, Some(78), "{format}");
            assert!(run.stderr.contains(expected), "{format}: {}", run.stderr);
        }
    }
    let groups = format!("location ~ {} {{ limit_req zone=z; }}", "(".repeat(levels));
    let text = format!("limit_req_zone $uri zone=z:1m rate=1r/s;\n{groups}");
    assert!(
        import("nginx", &text)
            .stderr
            .contains("no rule could be carried over")
    );
}

#[test]
fn a_file_that_is_missing_or_too_large_is_refused() {
    let dir = crate::support::Dir::new();
    let run = dir.run(&["import", "kong", "nowhere"]);
    assert_eq!(
        (run.code, run.stderr.as_str()),
        (
            Some(66),
            "nowhere: No such file or directory (os error 2)\n"
        )
    );
    let large = std::fs::File::create(dir.path("large")).unwrap();
    large.set_len((16 << 20) + 1).unwrap();
    assert_eq!(dir.run(&["import", "kong", "large"]).code, Some(66));
    dir.write("bytes", b"a\nb\xff");
    let run = dir.run(&["import", "nginx", "bytes"]);
    assert_eq!(
        (run.code, run.stderr.as_str()),
        (Some(78), "bytes:2:2: not UTF-8\n")
    );
}

/// Names and texts of the source stay inside comments and scalars.
#[test]
fn hostile_names_give_a_valid_file() {
    let key = r#"\"evil\\ \u2028 \n: [x\"#;
    let text = format!(
        "{{\"domain\":\"a\\nb: {{\",\"descriptors\":[{{\"key\":\"k\",\"value\":\"{}\",\"rate_limit\":{{\"unit\":\"day\",\"requests_per_unit\":1,\"name\":\"x\\n- y\"}}}}]}}",
        key.trim_end_matches('\\')
    );
    super::rules("envoy-ratelimit", &text);
    let text = "limit_req_zone $uri zone=\"z\n: #{\":1m rate=1r/s;\nlimit_req zone=\"z\n: #{\";\nlimit_req_status \"5\n- id: x\";\n";
    let run = import("nginx", text);
    // A quote inside a word is part of it.
    assert_eq!(run.code, Some(78), "{}", run.stdout);
    let text = "limit_req_zone $uri zone=z:1m rate=1r/s;\nlimit_req zone=z;\nlimit_req_status \"5\n- id: x\";\n";
    let rules = super::rules("nginx", text);
    super::assert_lines(
        &rules,
        &[
            "# not carried over: `limit_req_status 5 - id: x`: a denied request is answered with 429 (line 3)",
        ],
    );
}
