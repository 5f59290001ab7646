//! Matching rules, compared with a matcher that tries everything.

mod model;

use fluxgate_core::RequestContext;
use fluxgate_core::path::RequestPath;
use proptest::prelude::*;

use crate::support::{Gate, cases, set_of};
use model::{
    ADDRESSES, Addresses, Asked, LISTS, METHODS, NETWORK_LISTS, NETWORKS, Request, VALUES, Wanted,
    lists, path_fits,
};

fn pattern() -> impl Strategy<Value = String> {
    let segment = prop_oneof![
        3 => "[abä?]{0,3}",
        2 => "[ab]{0,2}\\*[ab?]{0,2}",
        1 => "\\*[ab]\\*",
        2 => Just("*".to_owned()),
        1 => Just("{id}".to_owned()),
        3 => Just("**".to_owned()),
    ];
    prop::collection::vec(segment, 1..7).prop_map(|segments| format!("/{}", segments.join("/")))
}

fn path() -> impl Strategy<Value = String> {
    prop_oneof![9 => "(/[abä]{0,3}){1,8}", 1 => "[ab/]{0,4}", 1 => Just("/*".to_owned())]
}

/// Names and values; each name once.
fn pairs(names: usize, most: usize) -> impl Strategy<Value = Vec<(usize, &'static str)>> {
    let pair = (0..names, prop::sample::select(&VALUES[..]));
    prop::collection::vec(pair, 0..=most).prop_map(|mut pairs| {
        pairs.sort_by_key(|(name, _)| *name);
        pairs.dedup_by_key(|(name, _)| *name);
        pairs
    })
}

/// Names with the values that match; each name once.
fn wanted(names: usize, most: usize) -> impl Strategy<Value = Vec<(usize, Wanted)>> {
    prop::collection::vec((0..names, wanted_values()), 0..=most).prop_map(|mut pairs| {
        pairs.sort_by_key(|(name, _)| *name);
        pairs.dedup_by_key(|(name, _)| *name);
        pairs
    })
}

fn wanted_values() -> impl Strategy<Value = Wanted> {
    let values = || prop::sample::subsequence(&VALUES[..], 1..=VALUES.len());
    prop_oneof![
        3 => prop::sample::select(&VALUES[..]).prop_map(|value| Wanted::OneOf(vec![value])),
        2 => values().prop_map(Wanted::OneOf),
        2 => values().prop_map(Wanted::NoneOf),
        1 => any::<bool>().prop_map(Wanted::Present),
        2 => (0..LISTS.len()).prop_map(Wanted::In),
        1 => (0..LISTS.len()).prop_map(Wanted::NotIn),
    ]
}

/// `names` is the number of different headers and attributes.
fn asked(names: usize) -> impl Strategy<Value = Asked> {
    let methods = prop::sample::subsequence(&METHODS[..], 0..=2);
    (
        prop_oneof![3 => Just(100), 1 => -2..200_i32],
        prop::collection::vec(pattern(), 0..3),
        prop::collection::vec(pattern(), 0..2),
        prop_oneof![2 => Just(Vec::new()), 1 => methods],
        prop_oneof![1 => Just(Vec::new()), 1 => wanted(names, 4)],
        prop_oneof![1 => Just(Vec::new()), 1 => wanted(names, 4)],
        (
            prop::option::weighted(0.3, wanted_values()),
            prop::option::weighted(0.3, wanted_values()),
        ),
        (networks(), networks(), prop::option::weighted(0.3, 0..3_u8)),
    )
        .prop_map(
            |(
                priority,
                paths,
                not_paths,
                methods,
                headers,
                attributes,
                (user, api_key),
                (ips, not_ips, group),
            )| {
                Asked {
                    priority,
                    paths,
                    not_paths,
                    methods,
                    headers,
                    attributes,
                    user,
                    api_key,
                    ips,
                    not_ips,
                    group,
                }
            },
        )
}

fn networks() -> impl Strategy<Value = Addresses> {
    let all: Vec<_> = (0..NETWORKS.len()).collect();
    prop_oneof![
        4 => Just(Addresses::Networks(Vec::new())),
        1 => prop::sample::subsequence(all, 1..=3).prop_map(Addresses::Networks),
        1 => (0..NETWORK_LISTS.len()).prop_map(Addresses::List),
    ]
}

fn incoming(names: usize) -> impl Strategy<Value = Request> {
    (
        prop::option::weighted(0.9, path()),
        prop::option::weighted(0.3, path()),
        prop::option::of(prop::sample::select(&METHODS[..])),
        pairs(names, 3),
        pairs(names, 4),
        prop::option::weighted(0.8, 0..ADDRESSES.len()),
        prop::option::weighted(0.8, prop::sample::select(&VALUES[..])),
        prop::option::weighted(0.8, prop::sample::select(&VALUES[..])),
    )
        .prop_map(
            |(path, normal, method, headers, attributes, ip, user, api_key)| Request {
                ip,
                path,
                normal,
                method,
                headers,
                attributes,
                user,
                api_key,
            },
        )
}

fn agrees(rules: &[Asked], requests: &[Request]) -> Result<(), TestCaseError> {
    let written: Vec<_> = rules
        .iter()
        .enumerate()
        .map(|(id, asked)| asked.rule(id))
        .collect();
    let gate = Gate::new(&format!(
        "rule_sets: {{ s: {{ lists: {}, rules: [ {} ] }} }}",
        lists(),
        written.join(",\n")
    ));
    let mut order: Vec<_> = (0..rules.len()).collect();
    order.sort_by_key(|id| rules[*id].priority);
    for request in requests {
        let decision = gate.peek(&request.context());
        let found: Vec<_> = decision
            .rules()
            .map(|(rule, _)| rule.id().to_owned())
            .collect();
        let expected = order.iter().filter(|id| rules[**id].applies(request));
        // Of each group, the first one.
        let mut groups = Vec::new();
        let expected = expected.filter(|id| match rules[**id].group {
            Some(group) if groups.contains(&group) => false,
            group => {
                groups.extend(group);
                true
            }
        });
        let expected: Vec<_> = expected.map(|id| format!("r{id}")).collect();
        prop_assert_eq!(&found, &expected, "{:?}", request);
        let outcome = if expected.is_empty() {
            "no_rule"
        } else {
            "allowed"
        };
        prop_assert_eq!(decision.outcome().name(), outcome);
    }
    Ok(())
}

/// Compares rules with conditions on the path only.
fn globs_agree(patterns: &[String], paths: Vec<String>) -> Result<(), TestCaseError> {
    let alone = |pattern: &String| Asked {
        priority: 100,
        paths: vec![pattern.clone()],
        not_paths: vec![],
        methods: vec![],
        headers: vec![],
        attributes: vec![],
        user: None,
        api_key: None,
        ips: Addresses::Networks(vec![]),
        not_ips: Addresses::Networks(vec![]),
        group: None,
    };
    let rules: Vec<_> = patterns.iter().map(alone).collect();
    let request = |path| Request {
        ip: None,
        path: Some(path),
        normal: None,
        method: None,
        headers: vec![],
        attributes: vec![],
        user: None,
        api_key: None,
    };
    agrees(&rules, &paths.into_iter().map(request).collect::<Vec<_>>())
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn globs_agree_with_a_matcher_that_tries_everything(
        patterns in prop::collection::vec(pattern(), 1..12), paths in prop::collection::vec(path(), 1..40)
    ) {
        globs_agree(&patterns, paths)?;
    }

    // So many are found by their fragments.
    #[test]
    fn many_globs_agree_with_a_matcher_that_tries_everything(
        patterns in prop::collection::vec(pattern(), 40..120), paths in prop::collection::vec(path(), 1..60)
    ) {
        globs_agree(&patterns, paths)?;
    }

    #[test]
    fn all_conditions_together_agree_with_a_matcher_that_tries_everything(
        rules in prop::collection::vec(asked(3), 1..12), requests in prop::collection::vec(incoming(3), 1..20)
    ) {
        agrees(&rules, &requests)?;
    }

    #[test]
    fn many_names_agree_with_a_matcher_that_tries_everything(
        rules in prop::collection::vec(asked(40), 20..60), requests in prop::collection::vec(incoming(40), 1..20)
    ) {
        agrees(&rules, &requests)?;
    }
}

#[test]
fn patterns_match_as_documented() {
    for (pattern, fitting, others) in [
        (
            "/api/**",
            &["/api", "/api/", "/api/x", "/api/x/y/"][..],
            &["/", "/apix", "/v1/api", "api", "/API", "/api?x"][..],
        ),
        ("/**", &["/", "/a", "/a/b"], &["", "a"]),
        (
            "/a/*/c",
            &["/a/b/c", "/a//c", "/a/bbb/c"],
            &["/a/c", "/a/b/b/c", "/a/b/c/"],
        ),
        ("/a?c", &["/abc", "/aäc"], &["/ac", "/abbc", "/a/c"]),
        ("/a*", &["/a", "/ab", "/a*"], &["/a/", "/b", "/a/b"]),
        ("/a/", &["/a/"], &["/a", "/a//"]),
        (
            "/a/**/z",
            &["/a/z", "/a/b/z", "/a/b/c/z", "/a/z/z"],
            &["/a", "/az", "/a/z/"],
        ),
        (
            "/users/{id}",
            &["/users/7", "/users/a.b", "/users/{id}", "/users/ä"],
            &["/users", "/users/", "/users/7/", "/users/7/x", "/users//"],
        ),
        (
            "/{a}/{b-c}/**",
            &["/1/2", "/1/2/", "/1/2/3"],
            &["/1", "/1/", "//2"],
        ),
        ("/**/{id}", &["/7", "/a/7"], &["/", "/a/"]),
        ("/", &["/"], &["", "//", "/a"]),
        ("/*.json", &["/x.json", "/.json"], &["/x.jso", "/x/y.json"]),
    ] {
        let rule = format!(
            "{{ id: r, scope: global, match: {{ path: [\"{pattern}\"] }}, bands: [{{ capacity: 1000, window: 1h }}] }}"
        );
        let gate = Gate::new(&set_of(&rule));
        let matches = |path: &str| {
            gate.check(&RequestContext::builder().path(path).build())
                .rule()
                .is_some()
        };
        for path in fitting {
            assert!(
                matches(path) && path_fits(pattern, path),
                "{pattern} {path}"
            );
        }
        for path in others {
            assert!(
                !matches(path) && !path_fits(pattern, path),
                "{pattern} {path}"
            );
        }
    }
}

#[test]
fn conditions_on_missing_parts_do_not_hold() {
    let rule = |part: &str| {
        format!(
            "{{ id: r, scope: global, match: {{ {part} }}, bands: [{{ capacity: 1000, window: 1h }}] }}"
        )
    };
    let nothing = RequestContext::default();
    for part in [
        "path: [\"/**\"]",
        "methods: [GET]",
        "headers: { X: \"\" }",
        "attributes: { x: \"\" }",
    ] {
        assert!(
            Gate::new(&set_of(&rule(part)))
                .check(&nothing)
                .rule()
                .is_none(),
            "{part}"
        );
    }
    assert!(
        Gate::new(&set_of(&rule("not_path: [\"/**\"]")))
            .check(&nothing)
            .rule()
            .is_some()
    );
}

#[test]
fn a_disabled_rule_does_not_match() {
    let gate = Gate::new(&set_of(
        "{ id: r, scope: global, enabled: false, bands: [{ capacity: 1, window: 1h }] }",
    ));
    assert_eq!(gate.take(1).outcome().name(), "no_rule");
}

/// A rule that matches in both forms is charged once.
#[test]
fn a_rule_counts_once_for_both_forms() {
    let rule = "{ id: r, scope: global, match: { path: [\"/api/**\", \"/%61pi/**\"] }, bands: [{ capacity: 3, window: 1h }] }";
    let gate = Gate::new(&set_of(rule));
    for remaining in [2, 1, 0] {
        let path = RequestPath::read("/%61pi/x").unwrap();
        let context = RequestContext::builder().request_path(path).build();
        let decision = gate.check(&context);
        assert_eq!(decision.remaining(), Some(remaining));
        assert_eq!(decision.violated().count(), 0);
    }
}

/// Frameworks route `/login/` as `/login`; with `ignore_case` `/LOGIN` too.
#[test]
fn a_rule_matches_with_a_slash_at_the_end_and_without_case() {
    let set = |path: &str| {
        let rule = format!(
            "{{ id: r, scope: global, match: {{ path: [\"{path}\"], not_path: [\"/Log*/Off\"] }}, bands: [{{ capacity: 9, window: 1h }}] }}"
        );
        Gate::new(&set_of(&rule))
    };
    for (pattern, path, plain, ignoring_case) in [
        ("/login", "/login", true, true),
        ("/login", "/login/", true, true),
        ("/login", "/%6cogin//", true, true),
        ("/login/", "/login/", true, true),
        ("/login/", "/%6cogin/", true, true),
        ("/login/", "/login", false, false),
        ("/login", "/Login", false, true),
        ("/Login", "/login", false, true),
        ("/LOG?N/*", "/login/X", false, true),
        ("/**/X", "/login/x", false, true),
        ("/Log*/**", "/Login/Off", false, false),
        ("/Log*/**", "/Login/Off/", true, true),
        ("/Log*/**", "/Login/off", true, false),
        ("/log*/**", "/login/off", true, false),
        ("/log*/**", "/login/OFF/", true, true),
    ] {
        let gate = set(pattern);
        for (ignores_case, expected) in [(false, plain), (true, ignoring_case)] {
            let mut read = RequestPath::read(path).unwrap();
            if ignores_case {
                read = read.ignoring_case();
            }
            let context = RequestContext::builder().request_path(read).build();
            let matched = gate.check(&context).outcome().name() == "allowed";
            assert_eq!(matched, expected, "{pattern} {path} {ignores_case}");
        }
    }
}
