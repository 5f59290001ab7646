//! Rules that a program builds: they mean what the same rules mean in YAML, and their
//! faults have the same messages.

use std::time::Duration;

use fluxgate_core::{
    Algorithm, Band, Calendar, CalendarUnit, Cost, KeyPart, Lease, Limit, OnError, OnMissingKey,
    OnMissingRuleSet, Percent, Quota, Rollout, Rule, RuleSet, RuleSets, Timestamp, Tokens,
    ValueMatch,
};
use proptest::collection::vec;
use proptest::prelude::*;

fn set(rules: impl IntoIterator<Item = Rule>) -> RuleSets {
    let builder = RuleSet::builder("api");
    let builder = rules.into_iter().fold(builder, |set, rule| set.rule(rule));
    builder.build().unwrap().into()
}

/// Every field of a rule file.
const EVERY_FIELD: &str = include_str!("../../../../spec/rules/every_field.yaml");

/// Slots that are held for 90 seconds.
fn slots(capacity: u64) -> Quota {
    let limit = Limit::concurrency(capacity).hold(Duration::from_secs(90));
    Quota::from(limit.build().unwrap())
}

fn every_field() -> RuleSets {
    let leaky = Algorithm::LeakyBucket;
    let second = Limit::builder(leaky, 100, Duration::from_secs(60))
        .refill(7)
        .period(Duration::from_millis(1_500))
        .shape(true);
    let fifth = Quota::per(5, Duration::from_secs(2 * 86_400));
    let seoul = "Asia/Seoul".parse().unwrap();
    let seoul = Calendar::new(CalendarUnit::Month).in_time_zone(seoul);
    let set = RuleSet::builder("api")
        .on_error(OnError::Deny)
        .ipv6_prefix(48)
        .rule(
            Rule::new("everything")
                .name("Per user, \"quoted\"")
                .enabled(false)
                .shadow()
                .priority(-5)
                .match_path("/api/**")
                .match_path("/v?/*")
                .match_not_path("/api/health")
                .match_method("GET")
                .match_method("POST")
                .match_header("X-Debug", ValueMatch::absent())
                .match_header("X-Plan", "free")
                .match_attribute("plan", "null")
                .match_attribute("region", ["eu", "us"])
                .match_attribute("team", ValueMatch::not(["a"]))
                .match_attribute("tenant", ValueMatch::not(["b", "c"]))
                .match_attribute("user", ValueMatch::present())
                .match_ip("10.0.0.0/8")
                .match_ip("2001:db8::/32")
                .match_not_ip("10.0.0.1")
                .key([
                    KeyPart::Ip,
                    KeyPart::Header("X-Tenant-Id".into()),
                    KeyPart::Attribute("team".into()),
                ])
                .group("plan")
                .rollout(Rollout::percent(10))
                .on_missing_key(OnMissingKey::Deny)
                .band(Band::new(
                    "burst",
                    Quota::per_second(10).algorithm(leaky).shaped(),
                ))
                .band(Quota::from(second.build().unwrap()))
                .cost(Cost::Header("X-Cost".into()))
                .override_for(["10.0.0.1", "a", "b"], [fifth.algorithm(leaky).shaped()])
                .reset_on_change()
                .attribute("tier", "standard"),
        )
        .rule(
            Rule::new("waiting")
                .global()
                .band(Quota::per_second(1))
                .cost(2)
                .wait_up_to(Duration::from_secs(90)),
        )
        .rule(
            Rule::new("calendar")
                .per_user()
                .band(Quota::per_calendar(100, Calendar::new(CalendarUnit::Day)))
                .band(Band::new("monthly", Quota::per_calendar(1_000, seoul)))
                .notify([Percent::new(100), "99.5%".parse().unwrap()]),
        )
        .rule(
            Rule::new("slots")
                .per_user()
                .band(slots(3))
                .band(Band::new("more", slots(5))),
        )
        .rule(
            Rule::new("tokens")
                .per_api_key()
                .band(Quota::per_minute(1_000))
                .cost(Cost::Tokens(Tokens::Total))
                .clamp(),
        )
        .rule(
            Rule::new("leased")
                .per_api_key()
                .band(Quota::per_second(1_000))
                .lease(Lease::new(
                    "12.5%".parse().unwrap(),
                    Duration::from_millis(500),
                ))
                .override_for(["a"], [Quota::per_second(2_000)])
                .override_until(
                    ["b"],
                    [Quota::per_second(3_000)],
                    Timestamp::from_micros(1_798_761_600_000_000).unwrap(),
                ),
        );
    RuleSets::from(set.build().unwrap()).with_on_missing(OnMissingRuleSet::Deny)
}

#[test]
fn a_program_can_say_everything_that_yaml_can() {
    assert_eq!(every_field().to_yaml(), EVERY_FIELD);
    let read = RuleSets::from_yaml(EVERY_FIELD).unwrap();
    assert_eq!(read.to_yaml(), EVERY_FIELD);
    assert_eq!(read, every_field());
}

/// Checks that a rule of a program and the same rule in YAML have the same fault.
#[track_caller]
fn same_fault(rule: Rule, place: &str, yaml: &str, message: &str) {
    let built = RuleSet::builder("s").rule(rule).build().unwrap_err();
    let lines: Vec<_> = built.faults().iter().map(ToString::to_string).collect();
    assert_eq!(lines, [format!("s.rules[0]{place}: {message}")]);
    let yaml = format!("rule_sets: {{ s: {{ rules: [ {{ id: r, {yaml} }} ] }} }}");
    let read = RuleSets::from_yaml(&yaml).unwrap_err();
    let messages: Vec<_> = read.0.iter().map(|fault| &fault.message).collect();
    assert_eq!(messages, [message]);
}

#[test]
fn faults_have_the_messages_of_a_rule_file() {
    let second = || Quota::per_second(1);
    let rule = || Rule::new("r").per_user().band(second());
    const REST: &str = "scope: per_user, bands: [ { capacity: 1, window: 1s } ]";
    let with = |more: &str| format!("{REST}, {more}");
    same_fault(
        Rule::new("r").band(second()),
        ".scope",
        "bands: [ { capacity: 1, window: 1s } ]",
        "a rule needs a `scope` or a `key`",
    );
    same_fault(
        Rule::new("r").key([]).band(second()),
        ".key",
        "key: [], bands: [ { capacity: 1, window: 1s } ]",
        "`key` must not be an empty list",
    );
    same_fault(
        Rule::new("r")
            .key([KeyPart::Attribute("".into())])
            .band(second()),
        ".key[0]",
        "key: [ \"attr:\" ], bands: [ { capacity: 1, window: 1s } ]",
        "`attr:` is not a part of a key; allowed are \
         ip, user, api_key, method, path, header:NAME, attr:NAME, mcp:method, mcp:name",
    );
    same_fault(
        Rule::new("r")
            .key([KeyPart::Header("a b".into())])
            .band(second()),
        ".key[0]",
        "key: [ \"header:a b\" ], bands: [ { capacity: 1, window: 1s } ]",
        "`a b` cannot be the name of a header",
    );
    same_fault(
        Rule::new("r")
            .key([
                KeyPart::Header("X-A".into()),
                KeyPart::Ip,
                KeyPart::Header("x-a".into()),
            ])
            .band(second()),
        ".key[2]",
        "key: [ \"header:X-A\", ip, \"header:x-a\" ], bands: [ { capacity: 1, window: 1s } ]",
        "`header:x-a` appears twice in `key`",
    );
    same_fault(
        Rule::new("r").per_user(),
        ".bands",
        "scope: per_user",
        "a rule needs `bands`",
    );
    same_fault(
        rule().band(Band::new("b0", second())),
        ".bands[1].id",
        "scope: per_user, bands: [ { capacity: 1, window: 1s }, { id: b0, capacity: 1, window: 1s } ]",
        "this rule already has a band `b0` (without an `id`, a band is b0, b1, … by its position)",
    );
    same_fault(
        rule().match_path("api"),
        ".match.path[0]",
        &with("match: { path: [ api ] }"),
        "a path pattern must begin with `/`; `api` does not",
    );
    same_fault(
        rule().match_header("X-A", "1").match_header("x-a", "2"),
        ".match.headers[\"x-a\"]",
        &with("match: { headers: { X-A: 1, x-a: 2 } }"),
        "header `x-a` appears twice (their case does not matter)",
    );
    same_fault(
        rule().match_header("X-A", Vec::<String>::new()),
        ".match.headers[\"X-A\"]",
        &with("match: { headers: { X-A: [] } }"),
        "a header's value must not be an empty list",
    );
    same_fault(
        rule().match_attribute("a", ValueMatch::not(Vec::<String>::new())),
        ".match.attributes[\"a\"]",
        &with("match: { attributes: { a: { not: [] } } }"),
        "an attribute's value must not be an empty list",
    );
    same_fault(
        rule().match_ip("10.0.0.0/33"),
        ".match.ip[0]",
        &with("match: { ip: [10.0.0.0/33] }"),
        "`10.0.0.0/33` is not a network, such as 10.0.0.0/8 or 2001:db8::/32",
    );
    same_fault(
        rule().match_not_ip("10.0.0.1/8"),
        ".match.not_ip[0]",
        &with("match: { not_ip: [10.0.0.1/8] }"),
        "`10.0.0.1/8` has bits set beyond its prefix; did you mean 10.0.0.0/8?",
    );
    same_fault(
        rule().group(""),
        ".group",
        &with("group: \"\""),
        "`group` must have 1 to 200 bytes and no control character",
    );
    same_fault(
        Rule::new("r")
            .global()
            .rollout(Rollout::percent(1))
            .band(second()),
        ".rollout",
        "scope: global, rollout: 1%, bands: [ 1/s ]",
        "a global rule has no identities that `rollout` could choose from",
    );
    let lease = |share, millis| Lease::new(Percent::new(share), Duration::from_millis(millis));
    for share in [0, 51] {
        same_fault(
            rule().lease(lease(share, 1_000)),
            ".lease.share",
            &with(&format!("lease: {{ share: {share}%, for: 1s }}")),
            &format!(
                "`share` must be from 1% to 50% with up to two decimals, such as 20% or 12.5%, \
                 not {share}%"
            ),
        );
    }
    for (millis, text) in [(99, "99ms"), (61_000, "61s")] {
        same_fault(
            rule().lease(lease(20, millis)),
            ".lease.for",
            &with(&format!("lease: {{ share: 20%, for: {text} }}")),
            &format!(
                "`for` must be a whole number of milliseconds from 100ms to 1m, such as 500ms or \
                 1s, not {text}"
            ),
        );
    }
    let hourly = || Rule::new("r").per_user().band(Quota::per_hour(1));
    let shares = |shares: &[u8]| shares.iter().map(|share| Percent::new(*share)).collect();
    let notify: [(Vec<Percent>, _, _, _); 3] = [
        (
            shares(&[80, 0]),
            "[1]",
            "80%, 0%",
            "a share of `notify` must be above 0%, up to 100%, such as 80% or 99.5%",
        ),
        (
            shares(&[80, 90, 80]),
            "[2]",
            "80%, 90%, 80.00%",
            "`80%` appears twice in `notify`",
        ),
        (
            (1..=11).map(Percent::new).collect(),
            "",
            "1%, 2%, 3%, 4%, 5%, 6%, 7%, 8%, 9%, 10%, 11%",
            "`notify` has at most 10 shares",
        ),
    ];
    for (given, place, yaml, message) in notify {
        same_fault(
            hourly().notify(given),
            &format!(".notify{place}"),
            &format!("scope: per_user, bands: [ 1/h ], notify: [ {yaml} ]"),
            message,
        );
    }
    let needs_band = "`notify` needs a band whose window, or time to fill, is a minute or more; \
                      shorter bands and `algorithm: concurrency` give no events";
    same_fault(
        rule().notify([Percent::new(80)]),
        ".notify",
        &with("notify: [ 80% ]"),
        needs_band,
    );
    same_fault(
        Rule::new("r")
            .per_user()
            .band(slots(1))
            .notify([Percent::new(80)]),
        ".notify",
        "scope: per_user, algorithm: concurrency, hold: 90s, bands: [ { capacity: 1 } ], \
         notify: [ 80% ]",
        needs_band,
    );
    same_fault(
        rule().cost(0),
        ".cost",
        &with("cost: 0"),
        "`cost` must be a whole number from 1 to 1000000000, header:NAME, attr:NAME, \
         llm:total_tokens, llm:prompt_tokens or llm:completion_tokens",
    );
    same_fault(
        Rule::new("r")
            .per_user()
            .band(second().algorithm(Algorithm::LeakyBucket).shaped())
            .wait_up_to(Duration::from_secs(1)),
        ".shape",
        &with("algorithm: leaky_bucket, shape: true, on_exceed: wait"),
        "`shape: true` cannot be combined with `on_exceed: wait`",
    );
    same_fault(
        rule().override_for(["a", "b"], [second()]),
        ".overrides[0].identity",
        &with("overrides: [ { identity: [ a, b ], bands: [ { capacity: 1, window: 1s } ] } ]"),
        "the key has 1 part(s), the identity 2 value(s)",
    );
    same_fault(
        rule()
            .override_for(["a"], [second()])
            .override_for(["a"], [second()]),
        ".overrides[1].identity",
        &with(
            "overrides: [ { identity: a, bands: [ { capacity: 1, window: 1s } ] }, \
             { identity: a, bands: [ { capacity: 1, window: 1s } ] } ]",
        ),
        "there is an override for this identity already",
    );
    same_fault(
        rule().override_for(["a"], Vec::<Quota>::new()),
        ".overrides[0].bands",
        &with("overrides: [ { identity: a } ]"),
        "an override needs `bands`",
    );
}

#[test]
fn faults_that_yaml_cannot_have_are_reported_too() {
    let second = Quota::per_second(1);
    let window = second.algorithm(Algorithm::FixedWindow);
    let faults = RuleSet::builder("")
        .ipv6_prefix(0)
        .rule(Rule::new("Bad").per_ip().band(second).band(window))
        .rule(
            Rule::new("r")
                .per_ip()
                .band(second)
                .wait_up_to(Duration::from_micros(1))
                .lease(Lease::new(Percent::new(1), Duration::from_micros(100_500)))
                .attribute("a", "1")
                .attribute("a", "2"),
        )
        .rule(Rule::new("r").global().band(second))
        .build()
        .unwrap_err();
    let lines = faults.to_string();
    let lines: Vec<_> = lines.lines().collect();
    assert_eq!(
        lines,
        [
            ".ipv6_prefix: `ipv6_prefix` must be a whole number from 1 to 128, not 0",
            ": a rule set's name must have 1 to 200 bytes and no control character",
            ".rules[0].id: `Bad` is not a rule id; allowed is [a-z0-9][a-z0-9_-]* up to 200 characters",
            ".rules[0].bands[1]: all bands of a rule must use the same algorithm",
            ".rules[1].max_wait: `max_wait` must be a whole number of milliseconds from 1ms to 366d",
            ".rules[1].lease.for: `for` must be a whole number of milliseconds from 100ms to 1m, such as 500ms or 1s, not 100.5ms",
            ".rules[1].attributes: `a` appears twice in `attributes`",
            ".rules[2].id: rule set `` already has a rule `r`",
        ]
    );
    let empty = RuleSet::builder("s").build().unwrap_err();
    assert_eq!(empty.to_string(), "s.rules: rule set `s` has no `rules`");
}

fn texts() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[ -~]{0,8}",
        Just("null".into()),
        Just("1e3".into()),
        Just(" a: b #c".into()),
        Just("line\nbreak\u{2028}\u{85}\u{feff}".into()),
    ]
}

fn quotas(algorithm: Algorithm) -> impl Strategy<Value = Vec<Quota>> {
    let span = 1..=31_622_400_000_u64;
    let numbers = (1..=100_000_u32, span, any::<bool>(), 1..=1_000_000_u32);
    let quota = numbers.prop_map(move |(units, millis, has_rate, burst)| {
        if algorithm == Algorithm::Concurrency {
            let limit = Limit::concurrency(units.into()).hold(Duration::from_secs(90));
            return limit.build().unwrap().into();
        }
        let quota = Quota::per(units, Duration::from_millis(millis)).algorithm(algorithm);
        // A burst of up to ten times as much returns in time.
        let burst = burst.min(units * 10);
        match has_rate && algorithm.is_bucket() && millis < 31_622_400_000 {
            true => quota.burst(burst),
            false => quota,
        }
    });
    vec(quota, 1..4)
}

fn rules() -> impl Strategy<Value = Rule> {
    let algorithms = Algorithm::NAMES.map(|(_, algorithm)| algorithm);
    let bands = proptest::sample::select(algorithms.to_vec())
        .prop_flat_map(|algorithm| (quotas(algorithm), quotas(algorithm)));
    let parts = prop_oneof![
        Just(KeyPart::Ip),
        Just(KeyPart::User),
        Just(KeyPart::ApiKey),
        Just(KeyPart::Method),
        Just(KeyPart::Path),
        "[A-Za-z-]{1,8}".prop_map(|name| KeyPart::Header(name.into())),
        texts()
            .prop_filter("a name", |name| !name.is_empty())
            .prop_map(|name| KeyPart::Attribute(name.into())),
    ];
    let request = (vec(texts(), 0..3), vec(texts(), 1..3), texts(), texts());
    let options = (
        any::<bool>(),
        any::<i32>(),
        proptest::option::of(1..=31_622_400_000_u64),
        proptest::option::of((100..=5_000_u64, 100..=60_000_u64)),
    );
    let differ = |parts: &Vec<KeyPart>| {
        let mut names: Vec<_> = { parts.iter() }
            .map(|part| match part {
                KeyPart::Header(_) => part.to_string().to_ascii_lowercase(),
                other => other.to_string(),
            })
            .collect();
        names.sort();
        names.windows(2).all(|pair| pair[0] != pair[1])
    };
    let keys = vec(parts, 0..4).prop_filter("no part appears twice", differ);
    let parts = (keys, 1..=1_000_000_000_u64);
    (bands, parts, request, options).prop_map(
        |((bands, other_bands), (key, cost), (paths, methods, name, value), options)| {
            let (enabled, priority, max_wait, lease) = options;
            let mut rule = Rule::new("r")
                .enabled(enabled)
                .priority(priority)
                .cost(cost);
            rule = rule
                .name(name.clone())
                .attribute(value.clone(), name.clone());
            rule = rule.match_attribute(name.clone(), value.clone());
            rule = rule.match_header("X-A", value);
            rule = rule.match_header("X-B", ValueMatch::not(methods.clone()));
            rule = rule.match_header("X-C", methods.clone());
            rule = rule.match_user(ValueMatch::not(methods.clone()));
            rule = rule.match_api_key(ValueMatch::present());
            for path in paths {
                // Two stars and braces are valid only as a whole segment.
                let path = path.replace(['{', '}'], "");
                let words: Vec<_> = path.split('*').filter(|word| !word.is_empty()).collect();
                rule = rule.match_path(format!("/{}", words.join("*")));
            }
            for method in methods {
                rule = rule.match_method(method);
            }
            if let Some((share, millis)) = lease {
                let share = format!("{}.{:02}%", share / 100, share % 100);
                let span = Duration::from_millis(millis);
                rule = rule.lease(Lease::new(share.parse().unwrap(), span));
            }
            let identity: Vec<_> = key.iter().map(|_| "1.2.3.4").collect();
            rule = match key.is_empty() {
                true => rule.global(),
                false => rule.key(key).override_for(identity, other_bands),
            };
            let algorithm = Limit::from(bands[0]).algorithm();
            rule = bands.into_iter().fold(rule, Rule::band);
            match max_wait.filter(|_| algorithm != Algorithm::Concurrency) {
                Some(millis) => rule.wait_up_to(Duration::from_millis(millis)),
                None => rule,
            }
        },
    )
}

proptest! {
    #[test]
    fn rules_survive_the_way_through_yaml(rule in rules()) {
        let built = set([rule]);
        let yaml = built.to_yaml();
        let read = RuleSets::from_yaml(&yaml);
        prop_assert_eq!(read.as_ref(), Ok(&built), "{}", yaml);
    }
}
