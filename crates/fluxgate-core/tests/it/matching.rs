//! Matching rules, compared with a matcher that tries everything.

use std::net::IpAddr;

use fluxgate_core::RequestContext;
use fluxgate_core::internals::RequestPath;
use proptest::prelude::*;

use crate::support::{Gate, cases, set_of};

/// Matches segments one by one, `**` by trying every length.
fn path_fits(pattern: &str, path: &str) -> bool {
    fn segments_fit(patterns: &[&str], segments: &[&str]) -> bool {
        match patterns {
            [] => segments.is_empty(),
            ["**", rest @ ..] => {
                (0..=segments.len()).any(|from| segments_fit(rest, &segments[from..]))
            }
            [first, rest @ ..] => segments.split_first().is_some_and(|(segment, segments)| {
                let (first, segment): (Vec<_>, Vec<_>) =
                    (first.chars().collect(), segment.chars().collect());
                segment_fits(&first, &segment) && segments_fit(rest, segments)
            }),
        }
    }
    fn segment_fits(pattern: &[char], text: &[char]) -> bool {
        match pattern {
            [] => text.is_empty(),
            ['*', rest @ ..] => (0..=text.len()).any(|from| segment_fits(rest, &text[from..])),
            ['?', rest @ ..] => !text.is_empty() && segment_fits(rest, &text[1..]),
            [char, rest @ ..] => text.first() == Some(char) && segment_fits(rest, &text[1..]),
        }
    }
    let Some(path) = path.strip_prefix('/') else {
        return false;
    };
    let patterns: Vec<_> = pattern[1..].split('/').collect();
    segments_fit(&patterns, &path.split('/').collect::<Vec<_>>())
}

/// The conditions of a rule, for the model and as a rule.
#[derive(Clone, Debug)]
struct Asked {
    priority: i32,
    paths: Vec<String>,
    not_paths: Vec<String>,
    methods: Vec<&'static str>,
    headers: Vec<(usize, Wanted)>,
    attributes: Vec<(usize, Wanted)>,
    ips: Vec<usize>,
    not_ips: Vec<usize>,
    group: Option<u8>,
}

/// The values of a header or an attribute that match.
#[derive(Clone, Debug)]
enum Wanted {
    OneOf(Vec<&'static str>),
    NoneOf(Vec<&'static str>),
    Present(bool),
}

impl Wanted {
    fn yaml(&self) -> String {
        match self {
            Self::OneOf(values) if values.len() == 1 => format!("{:?}", values[0]),
            Self::OneOf(values) => format!("{values:?}"),
            Self::NoneOf(values) if values.len() == 1 => format!("{{ not: {:?} }}", values[0]),
            Self::NoneOf(values) => format!("{{ not: {values:?} }}"),
            Self::Present(present) => format!("{{ present: {present} }}"),
        }
    }

    fn fits(&self, value: Option<&&'static str>) -> bool {
        match self {
            Self::OneOf(values) => value.is_some_and(|value| values.contains(value)),
            Self::NoneOf(values) => value.is_none_or(|value| !values.contains(value)),
            Self::Present(present) => value.is_some() == *present,
        }
    }
}

/// Networks, each with the addresses among [`ADDRESSES`] that it contains.
const NETWORKS: [(&str, &[usize]); 6] = [
    ("10.0.0.0/8", &[0, 1]),
    ("10.1.0.0/16", &[1]),
    ("10.1.2.3", &[1]),
    ("192.0.2.0/31", &[2]),
    ("2001:db8::/32", &[3]),
    ("::/0", &[3, 4]),
];
const ADDRESSES: [&str; 5] = [
    "10.0.0.1",
    "::ffff:10.1.2.3",
    "192.0.2.1",
    "2001:db8::1",
    "::1",
];

#[derive(Clone, Debug)]
struct Request {
    ip: Option<usize>,
    path: Option<String>,
    /// Its normal form, if it has another.
    normal: Option<String>,
    method: Option<&'static str>,
    headers: Vec<(usize, &'static str)>,
    attributes: Vec<(usize, &'static str)>,
}

const METHODS: [&str; 3] = ["GET", "get", "POST"];
const VALUES: [&str; 3] = ["1", "2", ""];

impl Asked {
    fn rule(&self, id: usize) -> String {
        let list = |name: &str, items: Vec<String>| {
            if items.is_empty() {
                String::new()
            } else {
                format!("{name}: [{}], ", items.join(", "))
            }
        };
        let quoted = |items: &[String]| items.iter().map(|item| format!("{item:?}")).collect();
        let pairs = |prefix: &str, pairs: &[(usize, Wanted)]| {
            let pairs: Vec<_> = pairs
                .iter()
                .map(|(name, value)| format!("{prefix}{name}: {}", value.yaml()))
                .collect();
            format!("{{ {} }}", pairs.join(", "))
        };
        let mut parts =
            list("path", quoted(&self.paths)) + &list("not_path", quoted(&self.not_paths));
        parts += &list(
            "methods",
            self.methods.iter().map(ToString::to_string).collect(),
        );
        parts += &format!("headers: {}, ", pairs("X-H", &self.headers));
        parts += &format!("attributes: {}, ", pairs("a", &self.attributes));
        let networks = |chosen: &[usize]| {
            let chosen = chosen.iter();
            chosen
                .map(|network| format!("{:?}", NETWORKS[*network].0))
                .collect()
        };
        parts += &list("ip", networks(&self.ips));
        parts += &list("not_ip", networks(&self.not_ips));
        let priority = self.priority;
        let group = self.group.map(|group| format!("group: g{group}, "));
        let group = group.unwrap_or_default();
        format!(
            "{{ id: r{id}, scope: global, {group}priority: {priority}, match: {{ {parts} }}, \
             bands: [{{ capacity: 1000, window: 1h }}] }}"
        )
    }

    fn applies(&self, request: &Request) -> bool {
        let any_fits = |patterns: &[String], path: &String| {
            let mut patterns = patterns.iter();
            patterns.any(|pattern| path_fits(pattern, path))
        };
        let forms: Vec<_> = match &request.path {
            Some(path) => std::iter::once(path).chain(&request.normal).collect(),
            None => Vec::new(),
        };
        let either = |patterns: &[String]| forms.iter().any(|path| any_fits(patterns, path));
        let both = |patterns: &[String]| {
            !forms.is_empty() && forms.iter().all(|path| any_fits(patterns, path))
        };
        // Of several headers with one name the first counts.
        fn value(pairs: &[(usize, &'static str)], name: usize) -> Option<&'static str> {
            let found = pairs.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| *value)
        }
        let is_in = |networks: &[usize]| {
            let mut networks = networks.iter();
            let ip = request.ip;
            ip.is_some_and(|ip| networks.any(|network| NETWORKS[*network].1.contains(&ip)))
        };
        (self.paths.is_empty() || either(&self.paths))
            && !both(&self.not_paths)
            && (self.methods.is_empty()
                || request
                    .method
                    .is_some_and(|method| self.methods.contains(&method)))
            && self
                .headers
                .iter()
                .all(|(name, wanted)| wanted.fits(value(&request.headers, *name).as_ref()))
            && self
                .attributes
                .iter()
                .all(|(name, wanted)| wanted.fits(value(&request.attributes, *name).as_ref()))
            && (self.ips.is_empty() || is_in(&self.ips))
            && !is_in(&self.not_ips)
    }
}

impl Request {
    fn context(&self) -> RequestContext<'static> {
        let mut builder = RequestContext::builder();
        if let Some(path) = &self.path {
            let path = RequestPath::as_given(path.clone());
            builder = builder.request_path(match &self.normal {
                Some(normal) => path.with_normal(normal.clone()),
                None => path,
            });
        }
        if let Some(method) = self.method {
            builder = builder.method(method);
        }
        if let Some(ip) = self.ip {
            builder = builder.ip(ADDRESSES[ip].parse::<IpAddr>().unwrap());
        }
        for (name, value) in &self.headers {
            builder = builder.header(format!("x-h{name}"), *value);
        }
        for (name, value) in &self.attributes {
            builder = builder.attribute(format!("a{name}"), *value);
        }
        builder.build()
    }
}

fn pattern() -> impl Strategy<Value = String> {
    let segment = prop_oneof![
        3 => "[abä?]{0,3}",
        2 => "[ab]{0,2}\\*[ab?]{0,2}",
        1 => "\\*[ab]\\*",
        2 => Just("*".to_owned()),
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
    let values = || prop::sample::subsequence(&VALUES[..], 1..=VALUES.len());
    let wanted = prop_oneof![
        3 => prop::sample::select(&VALUES[..]).prop_map(|value| Wanted::OneOf(vec![value])),
        2 => values().prop_map(Wanted::OneOf),
        2 => values().prop_map(Wanted::NoneOf),
        1 => any::<bool>().prop_map(Wanted::Present),
    ];
    prop::collection::vec((0..names, wanted), 0..=most).prop_map(|mut pairs| {
        pairs.sort_by_key(|(name, _)| *name);
        pairs.dedup_by_key(|(name, _)| *name);
        pairs
    })
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
        (networks(), networks(), prop::option::weighted(0.3, 0..3_u8)),
    )
        .prop_map(
            |(priority, paths, not_paths, methods, headers, attributes, (ips, not_ips, group))| {
                Asked {
                    priority,
                    paths,
                    not_paths,
                    methods,
                    headers,
                    attributes,
                    ips,
                    not_ips,
                    group,
                }
            },
        )
}

fn networks() -> impl Strategy<Value = Vec<usize>> {
    let all: Vec<_> = (0..NETWORKS.len()).collect();
    prop_oneof![3 => Just(Vec::new()), 1 => prop::sample::subsequence(all, 1..=3)]
}

fn incoming(names: usize) -> impl Strategy<Value = Request> {
    (
        prop::option::weighted(0.9, path()),
        prop::option::weighted(0.3, path()),
        prop::option::of(prop::sample::select(&METHODS[..])),
        pairs(names, 3),
        pairs(names, 4),
        prop::option::weighted(0.8, 0..ADDRESSES.len()),
    )
        .prop_map(|(path, normal, method, headers, attributes, ip)| Request {
            ip,
            path,
            normal,
            method,
            headers,
            attributes,
        })
}

fn agrees(rules: &[Asked], requests: &[Request]) -> Result<(), TestCaseError> {
    let written: Vec<_> = rules
        .iter()
        .enumerate()
        .map(|(id, asked)| asked.rule(id))
        .collect();
    let gate = Gate::new(&set_of(&written.join(",\n")));
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
        ips: vec![],
        not_ips: vec![],
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
