//! Access logs of Apache and nginx.

use fluxgate_simulate::{Format, Options};

use crate::support::{Run, allowed, denied, one_rule, simulate_with, unreported};

/// Ten minutes past nine on the first day of 2026, in UTC.
const T: u64 = 1_767_258_600_000_000;
const ONE: &str = "bands: [ { capacity: 1, window: 1h } ]";
const HOUR: u64 = 3_600_000_000;

fn simulate(rule: &str, log: &[&str]) -> Run {
    let rules = &one_rule(rule);
    simulate_with(
        rules,
        log.join("\n"),
        Options {
            format: Format::Combined,
            ..Options::default()
        },
    )
}

/// Returns a line with this request and this agent.
fn line(request: &str, agent: &str) -> String {
    format!(r#"10.0.0.1 - ann [01/Jan/2026:09:10:00 +0000] "{request}" 200 2326 "-" "{agent}""#)
}

/// Returns whether a rule for `path` matches each of these requests.
#[track_caller]
fn matches(path: &str, requests: &[&str]) -> Vec<bool> {
    let rule = format!(
        "scope: global, match: {{ path: ['{path}'] }}, bands: [ {{ capacity: 100, window: 1h }} ]"
    );
    let log: Vec<_> = requests.iter().map(|request| line(request, "-")).collect();
    let log: Vec<_> = log.iter().map(String::as_str).collect();
    let run = simulate(&rule, &log);
    let lines = run.lines();
    lines
        .iter()
        .map(|line| !line.contains("\"no_rule\""))
        .collect()
}

#[test]
fn a_line_gives_time_address_user_method_path_referer_and_agent() {
    let rule = format!(
        "key: [ip, user, method, path, 'header:Referer', 'header:User-Agent'], on_missing_key: deny, {ONE}"
    );
    let whole = r#"2001:db8::1 - ann [01/Jan/2026:10:10:00 +0100] "GET /a/b?c=d HTTP/1.1" 200 2326 "http://x/?q" "Mozilla/5.0 (X11)""#;
    let other_agent = whole.replace("X11", "X12");
    let other_referer = whole.replace("?q", "?r");
    let run = simulate(&rule, &[whole, whole, &other_agent, &other_referer]);
    assert_eq!(
        run.lines(),
        [
            allowed(T, ("r/b0", 1, 0), HOUR),
            denied(T, ("r/b0", 1, 0), HOUR, HOUR, &["r/b0"]),
            allowed(T, ("r/b0", 1, 0), HOUR),
            allowed(T, ("r/b0", 1, 0), HOUR),
        ]
    );
}

#[test]
fn the_path_ends_before_the_query() {
    let requests = [
        "GET /a HTTP/1.1",
        "GET /a?b HTTP/1.1",
        "GET /a?b=/c?d HTTP/2.0",
        "GET /a? HTTP/1.1",
        "GET /a",
        "GET /a/ HTTP/1.1",
        "GET /a%3Fb HTTP/1.1",
    ];
    assert_eq!(
        matches("/a", &requests),
        [true, true, true, true, true, false, false]
    );
}

#[test]
fn the_path_starts_after_the_host() {
    let requests = [
        "GET http://h/a?b HTTP/1.1",
        "GET https://h:8443/a HTTP/1.1",
        "GET http://a/b HTTP/1.1",
        "GET /http://h/a HTTP/1.1",
    ];
    assert_eq!(matches("/a", &requests), [true, true, false, false]);
    assert_eq!(matches("/", &["GET http://h HTTP/1.1"]), [true]);
}

#[test]
fn a_target_may_contain_spaces() {
    assert_eq!(
        matches("/a b", &["GET /a b HTTP/1.1", "GET /a HTTP/1.1"]),
        [true, false]
    );
}

#[test]
fn a_malformed_request_line_has_neither_method_nor_path() {
    let requests = ["-", "", r"\x16\x03\x01", "GET", "hello world"];
    assert_eq!(matches("/**", &requests), [false; 5]);
    let rule = format!("scope: global, match: {{ methods: [GET, hello] }}, {ONE}");
    for request in requests {
        let run = simulate(&rule, &[&line(request, "-")]);
        assert_eq!(run.lines(), [unreported(T, "no_rule", "")], "{request}");
    }
}

#[test]
fn a_dash_is_a_missing_value() {
    let dashes = r#"- - - [01/Jan/2026:09:10:00 +0000] "-" - - "-" "-""#;
    for part in [
        "ip",
        "user",
        "method",
        "path",
        "'header:Referer'",
        "'header:User-Agent'",
    ] {
        let run = simulate(
            &format!("key: [{part}], on_missing_key: skip, {ONE}"),
            &[dashes],
        );
        assert_eq!(run.lines(), [unreported(T, "no_rule", "")], "{part}");
    }
}

#[test]
fn escapes_in_quotes_are_decoded() {
    let agents = [
        (r#"say \"hi\""#, r#"say "hi""#),
        (r"back\\slash", r"back\slash"),
        (r"\x41\x22\xc3\xa9", "A\"é"),
        (r"\xZZ", "xZZ"),
    ];
    for (written, meant) in agents {
        let meant = meant.replace('\'', "''");
        let rule =
            format!("scope: global, match: {{ headers: {{ User-Agent: '{meant}' }} }}, {ONE}");
        let run = simulate(&rule, &[&line("GET / HTTP/1.1", written)]);
        assert_eq!(run.lines(), [allowed(T, ("r/b0", 1, 0), HOUR)], "{written}");
    }
}

#[test]
fn a_user_name_may_contain_spaces() {
    let log = [
        r#"10.0.0.1 - ann lee [01/Jan/2026:09:10:00 +0000] "GET / HTTP/1.1" 200 1 "-" "-""#,
        r#"10.0.0.1 - ann [01/Jan/2026:09:10:00 +0000] "GET / HTTP/1.1" 200 1 "-" "-""#,
        r#"10.0.0.2 - ann lee [01/Jan/2026:09:10:00 +0000] "GET / HTTP/1.1" 200 1 "-" "-""#,
    ];
    assert_eq!(
        simulate(&format!("scope: per_user, {ONE}"), &log).outcomes(),
        "aad"
    );
}

#[test]
fn time_stands_still_where_it_would_go_back() {
    let at = |minute: &str| {
        format!(r#"10.0.0.1 - - [01/Jan/2026:09:{minute}:00 +0000] "GET / HTTP/1.1" 200 1 "-" "-""#)
    };
    let log = [at("10"), at("11"), at("10"), at("12")];
    let log: Vec<_> = log.iter().map(String::as_str).collect();
    let run = simulate(
        "scope: per_ip, bands: [ { capacity: 2, window: 2m } ]",
        &log,
    );
    let minute = 60_000_000;
    assert_eq!(
        run.lines(),
        [
            allowed(T, ("r/b0", 2, 1), minute),
            allowed(T + minute, ("r/b0", 2, 1), minute),
            allowed(T + minute, ("r/b0", 2, 0), 2 * minute),
            allowed(T + 2 * minute, ("r/b0", 2, 0), 2 * minute),
        ]
    );
}

#[test]
fn the_common_format_has_no_referer_and_agent() {
    let log = [
        r#"10.0.0.1 - - [01/Jan/2026:09:10:00 +0000] "GET / HTTP/1.1" 200 2326"#,
        r#"10.0.0.1 - - [01/Jan/2026:09:10:00 +0000] "GET / HTTP/1.1" 200"#,
        r#"10.0.0.2 - - [01/Jan/2026:09:10:00 +0000] "GET / HTTP/1.1" 200 0 "-" "-" "more" 0.123"#,
    ];
    assert_eq!(
        simulate(&format!("scope: per_ip, {ONE}"), &log).outcomes(),
        "ada"
    );
}

#[test]
fn a_bad_line_of_a_log_ends_the_run() {
    let good = line("GET / HTTP/1.1", "-");
    let bad = [
        ("x", "nothing after the address"),
        ("10.0.0.1 - ann", "no time in brackets after the user"),
        (
            "10.0.0.1 - - [01/Jan/2026:09:10:00 +0000",
            "no `]` after the time",
        ),
        (
            r#"10.0.0.1 - - [2026-01-01] "GET / HTTP/1.1" 200 1 "-" "-""#,
            "expected a time such as 31/Jan/2026:23:59:59 +0000, found [2026-01-01]",
        ),
        (
            r#"10.0.0.1 - - [31/Feb/2026:09:10:00 +0000] "GET / HTTP/1.1" 200 1 "-" "-""#,
            "expected a time such as 31/Jan/2026:23:59:59 +0000, found [31/Feb/2026:09:10:00 +0000]",
        ),
        (
            "10.0.0.1 - - [01/Jan/2026:09:10:00 +0000] GET / 200",
            "no request in quotes after the time",
        ),
        (
            r#"10.0.0.1 - - [01/Jan/2026:09:10:00 +0000] "GET / HTTP/1.1"#,
            "no request in quotes after the time",
        ),
        (
            r#"10.0.0.1 - - [01/Jan/2026:09:10:00 +0000] "GET / HTTP/1.1""#,
            "no status after the request",
        ),
        (
            r#"www.example.com - - [01/Jan/2026:09:10:00 +0000] "GET / HTTP/1.1" 200 1 "-" "-""#,
            "expected an IP address, found `www.example.com`",
        ),
        (r#"{"t":0}"#, "nothing after the address"),
    ];
    for (line, what) in bad {
        let run = simulate(&format!("scope: global, {ONE}"), &[&good, line, &good]);
        assert_eq!(run.decisions.lines().count(), 1, "{line}");
        assert_eq!(run.error(), format!("line 2: {what}"));
    }
}

#[test]
fn lenient_skips_the_bad_lines_of_a_log() {
    let rules = &one_rule(&format!("scope: per_ip, {ONE}"));
    let good = line("GET / HTTP/1.1", "-");
    let log = format!("{good}\nx\n\n{good}\n\u{feff}\n");
    let run = simulate_with(
        rules,
        log,
        Options {
            format: Format::Combined,
            lenient: true,
            ..Options::default()
        },
    );
    assert!(run.result.is_ok());
    assert_eq!(run.decisions.lines().count(), 2);
    assert_eq!(run.simulation.skipped(), 2);
}

#[test]
fn a_log_is_decided_by_the_rule_set_option() {
    let rules = "
rule_sets:
  one: { rules: [ { id: r1, scope: global, bands: [ { capacity: 1, window: 1h } ] } ] }
  two: { rules: [ { id: r2, scope: global, bands: [ { capacity: 1, window: 1h } ] } ] }
";
    let log = line("GET / HTTP/1.1", "-");
    let run = simulate_with(
        rules,
        &log,
        Options {
            format: Format::Combined,
            rule_set: Some("two".into()),
            ..Options::default()
        },
    );
    assert_eq!(run.lines(), [allowed(T, ("r2/b0", 1, 0), HOUR)]);
    let run = simulate_with(
        rules,
        &log,
        Options {
            format: Format::Combined,
            ..Options::default()
        },
    );
    assert_eq!(
        run.error(),
        "line 1: `rule_set` is missing, and the rules do not have exactly one"
    );
}
