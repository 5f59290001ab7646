//! Bad lines: their messages, and how a run continues or ends.

use fluxgate_simulate::Options;

use crate::support::{TWO_A_SECOND, simulate, simulate_with};

const GOOD: &str = r#"{"t":0,"user":"a"}"#;
const NO_TIME: &str = "`t` must be a whole number of microseconds from 0 to 253402300799999999";
const NO_RFC: &str = "`time` must be RFC 3339, from 1970 on, such as 2026-01-31T23:59:59.5Z";
const NO_COST: &str = "`cost` must be a whole number from 0";

/// Every kind of bad line, with the start of its message.
const BAD: &[(&str, &str)] = &[
    // Not a JSON object.
    ("x", "not a JSON object"),
    ("[1]", "not a JSON object"),
    ("null", "not a JSON object"),
    ("7", "not a JSON object"),
    ("\"{}\"", "not a JSON object"),
    ("{", "EOF while parsing"),
    (r#"{"t":0"#, "EOF while parsing"),
    (r#"{"t":0,}"#, "trailing comma"),
    (r#"{"t":0} {"t":0}"#, "trailing characters"),
    (r#"{t:0}"#, "key must be a string"),
    (r#"{"t":00}"#, "invalid number"),
    (r#"{"t":0,"user":"a"#, "EOF while parsing a string"),
    (r#"{"t":0,"user":"\ud800"}"#, "unexpected end of hex escape"),
    (
        r#"{"t":0,"headers":{"a":"\ud800"}}"#,
        "unexpected end of hex escape",
    ),
    // An unknown field, or one twice.
    (
        r#"{"t":0,"peek":true}"#,
        "unknown field `peek`, expected one of `t`, ",
    ),
    (r#"{"t":0,"User":"a"}"#, "unknown field `User`"),
    (r#"{"t":0,"t":0}"#, "duplicate field `t`"),
    // An address.
    (
        r#"{"t":0,"ip":"localhost"}"#,
        "`ip` must be an IP address, found \"localhost\"",
    ),
    (
        r#"{"t":0,"ip":""}"#,
        "`ip` must be an IP address, found \"\"",
    ),
    (
        r#"{"t":0,"ip":"10.0.0.1:80"}"#,
        "`ip` must be an IP address",
    ),
    (r#"{"t":0,"ip":"10.0.0.0/8"}"#, "`ip` must be an IP address"),
    (
        r#"{"t":0,"ip":1}"#,
        "invalid type: integer `1`, expected a string",
    ),
    // A cost.
    (r#"{"t":0,"cost":-1}"#, NO_COST),
    (r#"{"t":0,"cost":1.5}"#, NO_COST),
    (r#"{"t":0,"cost":"1"}"#, NO_COST),
    (r#"{"t":0,"cost":true}"#, NO_COST),
    (r#"{"t":0,"cost":[1]}"#, NO_COST),
    // A time.
    (r#"{"t":-1}"#, NO_TIME),
    (r#"{"t":0.5}"#, NO_TIME),
    (r#"{"t":"0"}"#, NO_TIME),
    (r#"{"t":253402300800000000}"#, NO_TIME),
    (r#"{"t":99999999999999999999999999}"#, NO_TIME),
    (r#"{"time":"yesterday"}"#, NO_RFC),
    (r#"{"time":"1969-12-31T23:59:59Z"}"#, NO_RFC),
    (r#"{"time":"2026-01-31T23:59:59"}"#, NO_RFC),
    (r#"{"time":"2026-02-29T00:00:00Z"}"#, NO_RFC),
    (
        r#"{"time":5}"#,
        "invalid type: integer `5`, expected a string",
    ),
    (
        r#"{"t":0,"time":"1970-01-01T00:00:00Z"}"#,
        "expected `t` or `time`, found both",
    ),
    ("{}", "expected `t` or `time`, found neither"),
    (r#"{"t":null}"#, "expected `t` or `time`, found neither"),
    // Headers and attributes.
    (
        r#"{"t":0,"headers":{"a":"1","a":"2"}}"#,
        "header \"a\" appears twice",
    ),
    (
        r#"{"t":0,"headers":{"X-A":"1","x-a":"1"}}"#,
        "header \"x-a\" appears twice",
    ),
    (
        r#"{"t":0,"attributes":{"a":"1","a":"1"}}"#,
        "attribute \"a\" appears twice",
    ),
    (
        r#"{"t":0,"headers":{"a":["1"]}}"#,
        "the value of \"a\" must be a string, number or boolean",
    ),
    (
        r#"{"t":0,"attributes":{"a":{}}}"#,
        "the value of \"a\" must be a string",
    ),
    (
        r#"{"t":0,"headers":[]}"#,
        "invalid type: sequence, expected an object",
    ),
    (
        r#"{"t":0,"headers":"a"}"#,
        "invalid type: string \"a\", expected an object",
    ),
    // Other texts.
    (
        r#"{"t":0,"user":7}"#,
        "invalid type: integer `7`, expected a string",
    ),
    (
        r#"{"t":0,"path":true}"#,
        "invalid type: boolean `true`, expected a string",
    ),
    (
        r#"{"t":0,"rule_set":[]}"#,
        "invalid type: sequence, expected a string",
    ),
];

#[test]
fn a_bad_line_ends_the_run_after_the_decisions_before_it() {
    let rules = TWO_A_SECOND;
    for (line, what) in BAD {
        let run = simulate(rules, format!("{GOOD}\n\n{line}\n{GOOD}\n"));
        assert_eq!(run.decisions.lines().count(), 1, "{line}");
        let error = run.error();
        let message = error.strip_prefix("line 3: ").unwrap();
        // The message on the value of a field comes after its name.
        let message = match message.split_once("`: ") {
            Some((name, message)) if line.contains(&name.replace('`', "\"")) => message,
            _ => message,
        };
        assert!(message.starts_with(what), "{line}: {error}");
        assert_eq!(error.lines().count(), 1, "{line}: {error}");
    }
}

#[test]
fn lenient_skips_bad_lines_and_counts_them() {
    let rules = TWO_A_SECOND;
    let bad: Vec<_> = BAD.iter().map(|(line, _)| *line).collect();
    let input = format!("{GOOD}\n{}\n{GOOD}\n{GOOD}\n", bad.join("\n"));
    let run = simulate_with(
        rules,
        input,
        Options {
            lenient: true,
            ..Options::default()
        },
    );
    assert!(run.result.is_ok());
    assert_eq!(run.decisions.lines().count(), 3);
    assert!(run.decisions.lines().last().unwrap().contains("\"denied\""));
    assert_eq!(run.simulation.skipped(), BAD.len() as u64);
}

#[test]
fn a_line_that_is_not_utf_8_is_bad() {
    let rules = TWO_A_SECOND;
    let run = simulate(rules, b"{\"t\":0,\"user\":\"\xff\"}\n");
    assert_eq!(run.error(), "line 1: not UTF-8");
}

#[test]
fn a_line_that_is_too_long_is_bad_and_the_next_is_read() {
    let rules = TWO_A_SECOND;
    let long = "x".repeat(4 * 1024 * 1024 + 1);
    let input = format!("{GOOD}\n{long}\n{GOOD}\n");
    let run = simulate(rules, &input);
    assert_eq!(run.error(), "line 2: longer than 4194304 bytes");
    let run = simulate_with(
        rules,
        &input,
        Options {
            lenient: true,
            ..Options::default()
        },
    );
    assert!(run.result.is_ok());
    assert_eq!(run.decisions.lines().count(), 2);
    assert_eq!(run.simulation.skipped(), 1);
}

#[test]
fn the_column_is_that_of_the_line() {
    let rules = TWO_A_SECOND;
    let run = simulate(rules, r#"{"t":0,"headers":{"a":"b","c":"\ud800"}}"#);
    assert_eq!(
        run.error(),
        "line 1: `headers`: unexpected end of hex escape (column 40)"
    );
}

#[test]
fn control_characters_of_a_bad_line_are_escaped() {
    let rules = TWO_A_SECOND;
    let run = simulate(rules, r#"{"t":0,"\u001b[2J\n at line 9":1}"#);
    let expected = "line 1: unknown field `\\u{1b}[2J\\n at line 9`, expected one of";
    assert!(run.error().starts_with(expected), "{}", run.error());
    assert_eq!(run.error().lines().count(), 1);
}
