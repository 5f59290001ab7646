//! Lists, and conditions on users and API keys.

use fluxgate_core::rules::RequestSource;
use fluxgate_core::{RequestContext, RuleSets};

use crate::rules::refused;
use crate::support::{Gate, parse};

fn gate(lists: &str, matches: &str) -> Gate {
    let rules = format!(
        "rule_sets: {{ s: {{ lists: {{ {lists} }}, rules: [ \
         {{ id: r, scope: global, match: {{ {matches} }}, bands: [1000/h] }} ] }} }}"
    );
    Gate::new(&rules)
}

fn matches(gate: &Gate, context: &RequestContext<'_>) -> bool {
    gate.check(context).rule().is_some()
}

#[test]
fn users_and_keys_are_compared_like_headers() {
    let user = |name: &'static str| RequestContext::builder().user(name).build();
    let key = |name: &'static str| RequestContext::builder().api_key(name).build();
    let nobody = RequestContext::default();
    for (form, fitting, others, fits_nobody) in [
        ("ann", &["ann"][..], &["bob", "", "Ann"][..], false),
        ("[ann, bob]", &["ann", "bob"], &["eve"], false),
        ("{ not: ann }", &["bob", ""], &["ann"], true),
        ("{ not: [ann, bob] }", &["eve"], &["ann", "bob"], true),
        ("{ present: true }", &["ann", ""], &[], false),
        ("{ present: false }", &[], &["ann", ""], true),
        ("{ in: l }", &["ann", "x"], &["eve", ""], false),
        ("{ not_in: l }", &["eve", ""], &["ann", "x"], true),
    ] {
        for (field, context) in [
            (
                "user",
                &user as &dyn Fn(&'static str) -> RequestContext<'static>,
            ),
            ("api_key", &key),
        ] {
            let gate = gate("l: [ann, x]", &format!("{field}: {form}"));
            for name in fitting {
                assert!(matches(&gate, &context(name)), "{field}: {form} {name}");
            }
            for name in others {
                assert!(!matches(&gate, &context(name)), "{field}: {form} {name}");
            }
            assert_eq!(matches(&gate, &nobody), fits_nobody, "{field}: {form}");
        }
    }
}

#[test]
fn headers_and_attributes_are_in_lists_or_not() {
    let header = gate("l: [a, \"1\"]", "headers: { X-A: { in: l } }");
    let not_header = gate("l: [a, \"1\"]", "headers: { X-A: { not_in: l } }");
    let attribute = gate("l: [a, \"1\"]", "attributes: { a: { in: l } }");
    for (value, is_in) in [
        (Some("a"), true),
        (Some("1"), true),
        (Some("b"), false),
        (None, false),
    ] {
        let mut context = RequestContext::builder();
        if let Some(value) = value {
            context = context.header("x-a", value).attribute("a", value);
        }
        let context = context.build();
        assert_eq!(matches(&header, &context), is_in, "{value:?}");
        assert_eq!(matches(&not_header, &context), !is_in, "{value:?}");
        assert_eq!(matches(&attribute, &context), is_in, "{value:?}");
    }
}

#[test]
fn addresses_are_in_lists_or_not() {
    let office = "office: [192.0.2.0/24, 10.1.2.3, \"2001:db8::/32\"]";
    let inside = gate(office, "ip: { in: office }");
    let outside = gate(office, "not_ip: { in: office }");
    for (ip, is_in) in [
        (Some("192.0.2.255"), true),
        (Some("::ffff:192.0.2.1"), true),
        (Some("10.1.2.3"), true),
        (Some("10.1.2.4"), false),
        (Some("2001:db8:ffff::1"), true),
        (Some("2001:db9::1"), false),
        (None, false),
    ] {
        let mut context = RequestContext::builder();
        if let Some(ip) = ip {
            context = context.ip(ip.parse::<std::net::IpAddr>().unwrap());
        }
        let context = context.build();
        assert_eq!(matches(&inside, &context), is_in, "{ip:?}");
        assert_eq!(matches(&outside, &context), !is_in, "{ip:?}");
    }
}

/// `printf %s secret | sha256sum`.
const SECRET: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

#[test]
fn a_key_may_be_written_as_its_hash() {
    let key = |name: &'static str| RequestContext::builder().api_key(name).build();
    let upper = SECRET.to_ascii_uppercase();
    for (lists, form) in [
        ("l: [x]", format!("\"sha256:{SECRET}\"")),
        ("l: [x]", format!("[\"sha256:{upper}\", plain]")),
        (
            &*format!("l: [plain, \"sha256:{SECRET}\"]"),
            "{ in: l }".into(),
        ),
    ] {
        let gate = gate(lists, &format!("api_key: {form}"));
        assert!(matches(&gate, &key("secret")), "{form}");
        assert_eq!(
            matches(&gate, &key("plain")),
            form != format!("\"sha256:{SECRET}\"")
        );
        for other in ["Secret", "", SECRET, "x"] {
            assert!(!matches(&gate, &key(other)), "{form} {other}");
        }
    }
    let not = gate(
        "l: [x]",
        &format!("api_key: {{ not: \"sha256:{SECRET}\" }}"),
    );
    assert!(!matches(&not, &key("secret")) && matches(&not, &key("other")));
    let literal = gate("l: [x]", &format!("user: \"sha256:{SECRET}\""));
    assert!(!matches(
        &literal,
        &RequestContext::builder().user("secret").build()
    ));
}

#[test]
fn faults_of_lists_have_their_places() {
    let rules = |lists: &str, matches: &str| {
        format!(
            "rule_sets:\n  s:\n    lists:\n      {lists}\n    rules:\n    - id: r\n      \
             action: deny\n      match: {matches}\n"
        )
    };
    for (lists, matches, pieces) in [
        (
            "a: [x]",
            "{ user: { in: §b } }",
            &["there is no list `b`; there are a"][..],
        ),
        (
            "a: [x]",
            "{ user: { not_in: §b } }",
            &["there is no list `b`"],
        ),
        (
            "a: [x]",
            "{ headers: { X-A: { in: §b } } }",
            &["there is no list `b`"],
        ),
        (
            "a: [x]",
            "{ attributes: { q: { in: §b } } }",
            &["there is no list `b`"],
        ),
        (
            "a: [x]",
            "{ api_key: { in: §b } }",
            &["there is no list `b`"],
        ),
        ("a: [x]", "{ ip: { in: §b } }", &["there is no list `b`"]),
        (
            "a: [10.0.0.0/8, §office, §10.0.0.1/8]",
            "{ ip: { in: a } }",
            &["`office` is not a network", "bits set beyond its prefix"],
        ),
        (
            "a: [§ok, §x]",
            "{ not_ip: { in: a } }",
            &["`ok` is not a network", "`x` is not a network"],
        ),
        (
            "a: [x, §[y]]",
            "{ user: { in: a } }",
            &["a value of a list must be a text"],
        ),
        (
            "a: §[]",
            "{ user: { in: a } }",
            &["list `a` must not be an empty list"],
        ),
        ("a: §x", "{ user: { in: a } }", &["list `a` must be a list"]),
        (
            "a: [x, §\"sha256:12\"]",
            "{ api_key: { in: a } }",
            &["`sha256:` and 64 hexadecimal digits"],
        ),
        (
            "a: [x]",
            "{ user: { in: a }, api_key: [x, §\"sha256:zz\"] }",
            &["64 hexadecimal digits"],
        ),
        (
            "a: [x]",
            "{ user: { in: a }, api_key: { not: §\"sha256:zz\" } }",
            &["64 hexadecimal digits"],
        ),
        (
            "a: [x]",
            "{ user: §{ in: a, not: b } }",
            &["one of `not`, `present`, `in`"],
        ),
        (
            "a: [x]",
            "{ user: { in: a }, ip: §{} }",
            &["`in` with the name of a list"],
        ),
        (
            "a: [x]",
            "{ user: { in: a }, ip: { §not_in: a } }",
            &["unknown field `not_in`"],
        ),
    ] {
        refused(&rules(lists, matches), pieces);
    }
}

#[test]
fn a_list_has_at_most_100_000_values() {
    let list = |count: usize| {
        let values: Vec<_> = (0..count).map(|number| format!("u{number}")).collect();
        format!(
            "rule_sets: {{ s: {{ lists: {{ l: [{}] }}, rules: [ \
             {{ id: no, action: deny, match: {{ user: {{ in: l }} }} }} ] }} }}",
            values.join(",")
        )
    };
    let gate = Gate::new(&list(100_000));
    for (user, outcome) in [
        ("u0", "forbidden"),
        ("u99999", "forbidden"),
        ("u100000", "no_rule"),
    ] {
        assert_eq!(gate.user(user).outcome().name(), outcome);
    }
    let error = RuleSets::from_yaml(&list(100_001)).unwrap_err();
    assert_eq!(error.0.len(), 1);
    assert!(
        error.0[0]
            .message
            .contains("100001 values; a list may have 100000"),
        "{error}"
    );
}

#[test]
fn a_list_that_no_rule_uses_is_a_warning() {
    let rules = parse(
        "rule_sets: { s: { lists: { a: [x], b: [10.0.0.1], c: [y], d: [z] }, rules: [ \
         { id: r, action: deny, match: { user: { in: a }, not_ip: { in: b } } }, \
         { id: off, enabled: false, action: deny, match: { headers: { h: { not_in: d } } } } ] } }",
    );
    let warnings = rules.only().unwrap().warnings();
    let warnings: Vec<_> = warnings.iter().map(ToString::to_string).collect();
    assert_eq!(warnings, ["s.lists[\"c\"]: no rule uses the list `c`"]);
}

#[test]
fn changed_lists_are_changes_of_the_set() {
    let rules = |values: &[String]| {
        parse(&format!(
            "rule_sets: {{ s: {{ lists: {{ l: [{}] }}, rules: [ \
             {{ id: r, action: deny, match: {{ user: {{ in: l }} }} }} ] }} }}",
            values.join(", ")
        ))
    };
    let changes = |before: &[String], after: &[String]| {
        let changes = rules(after).changes_since(&rules(before));
        let changes: Vec<_> = changes.iter().map(ToString::to_string).collect();
        changes.join("\n")
    };
    let names =
        |range: std::ops::Range<usize>| range.map(|it| format!("u{it}")).collect::<Vec<_>>();
    assert_eq!(changes(&names(0..2), &names(0..2)), "");
    assert_eq!(
        changes(&names(0..1), &names(0..2)),
        "s: lists.l changed from [u0] to [u0, u1]"
    );
    assert_eq!(
        changes(&names(0..50), &names(1..52)),
        "s: lists.l changed from 50 values, with [u0] to 51 values, with [u50, u51]"
    );
    assert!(changes(&names(0..50), &names(0..100)).ends_with("u59] and 40 more"));
}

#[test]
fn an_action_on_an_attribute_that_a_source_never_sets_is_a_warning() {
    let rules = parse(
        "rule_sets: { s: { lists: { l: [a] }, rules: [ \
         { id: no, action: deny, match: { attributes: { plan: { in: l } } } }, \
         { id: others, action: allow, match: { attributes: { plan: { not_in: l } } } } ] } }",
    );
    let source = RequestSource {
        name: "filter `main`",
        attributes: &[],
        include: &[],
    };
    let warnings = rules.only().unwrap().warnings_for(&source);
    let warnings: Vec<_> = warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [
            "s.rules[0].match.attributes[\"plan\"]: rule `no` never matches: requests of filter \
             `main` have no attribute `plan`"
        ]
    );
}
