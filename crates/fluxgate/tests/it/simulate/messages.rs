//! The options that print to standard error: `--summary`, `--against` and `--lenient`.

use crate::support::{Dir, Run, TWO_A_SECOND, one_rule};

const GOOD: &str = r#"{"t":0,"user":"a"}"#;

#[test]
fn a_bad_line_ends_the_run_with_exit_65() {
    let dir = Dir::with_rules(TWO_A_SECOND);
    let run = dir.simulate(format!("{GOOD}\n\n{{}}\n{GOOD}\n"), &[]);
    assert_eq!((run.code, run.stdout.lines().count()), (Some(65), 1));
    assert_eq!(
        run.stderr,
        "input.ndjson:3: expected `t` or `time`, found neither\n"
    );
}

#[test]
fn lenient_counts_the_lines_that_it_skips() {
    let dir = Dir::with_rules(TWO_A_SECOND);
    let run = dir.simulate(format!("{GOOD}\n{{}}\n{GOOD}\n"), &["--lenient"]);
    assert_eq!((run.code, run.stdout.lines().count()), (Some(0), 2));
    assert_eq!(run.stderr, "1 bad line(s) skipped\n");
}

#[test]
fn lenient_prints_nothing_if_nothing_was_skipped() {
    let dir = Dir::with_rules(TWO_A_SECOND);
    assert_eq!(dir.simulate(GOOD, &["--lenient"]).lines().len(), 1);
}

#[test]
fn an_access_log_is_read_and_the_rule_set_named() {
    let dir = Dir::with_rules(&format!(
        "{TWO_A_SECOND}  b: {{ rules: [ {{ id: one, scope: per_ip, bands: [ 1/h ] }} ] }}\n"
    ));
    let line = "10.0.0.1 - - [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.1\" 200 0 \"-\" \"-\"\n";
    let more = ["--format", "combined", "--rule-set", "b"];
    assert_eq!(dir.simulate(line.repeat(2), &more).outcomes(), "ad");
}

#[test]
fn the_summary_of_no_requests_has_zeros() {
    let dir = Dir::with_rules(TWO_A_SECOND);
    let run = dir.simulate("", &["--summary", "--lenient"]);
    let expected = "\
rule                requests       allowed        denied  shadow-denied
api/r                      0             0             0              0
(all requests)             0             0             0              0
0 bad line(s) skipped
";
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), expected));
}

#[test]
fn a_bad_line_is_printed_after_the_summary() {
    let dir = Dir::with_rules(TWO_A_SECOND);
    let run = dir.simulate("{\"t\":0,\"user\":\"a\"}\n{}\n", &["--summary"]);
    let expected = "\
rule                requests       allowed        denied  shadow-denied
api/r                      1             1             0              0
(all requests)             1             1             0              0
input.ndjson:2: expected `t` or `time`, found neither
";
    assert_eq!((run.code, run.stderr.as_str()), (Some(65), expected));
}

/// Simulates with `rules.yaml` and `old.yaml`.
fn against(new: &str, old: &str, input: &str, more: &[&str]) -> (Run, Dir) {
    let dir = Dir::with_rules(new);
    dir.write("old.yaml", old);
    let run = dir.simulate(input, &[&["--against", "old.yaml"][..], more].concat());
    (run, dir)
}

fn per_user(capacity: u64) -> String {
    one_rule(&format!(
        "scope: per_user, algorithm: fixed_window, bands: [ {{ capacity: {capacity}, window: 1h }} ]"
    ))
}

/// Returns a request of each user in turn, a second apart.
fn requests_of(users: &str) -> String {
    let users = (0_u64..).zip(users.split_whitespace());
    let lines = users.map(|(second, user)| {
        let t = second * 1_000_000;
        format!("{{\"t\":{t},\"user\":\"{user}\"}}\n")
    });
    lines.collect()
}

#[test]
fn changes_and_warnings_follow_the_summary() {
    let input = requests_of("ann ann ann") + "{\"t\":0,\"rule_set\":\"b\"}\n";
    let (run, _) = against(&per_user(2), &per_user(1), &input, &["--summary"]);
    let expected = "\
rule                requests       allowed        denied  shadow-denied
api/r                      3             2             1              0
(all requests)             4             3             1              0
1 request(s) matched no rule

      denied  most denied identities
           1  api/r  user=ann

rule            newly denied  identities  newly admitted  identities
api/r                      0           0               1           1
(all requests)             0                           1

    requests  newly admitted identities
           1  api/r  user=ann  (first 1970-01-01T00:00:01Z)
there is no rule set `b`; its requests were allowed
the old rules have no rule set `b`; its requests were allowed
";
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), expected));
}

#[test]
fn the_report_has_a_section() {
    let input = requests_of("ann <b> ann <b> ann");
    let more = ["--report", "out.html"];
    let (run, dir) = against(&per_user(1), &per_user(2), &input, &more);
    assert_eq!(run.code, Some(0));
    let page = dir.read("out.html");
    for part in [
        "<h2>Against old.yaml</h2>",
        "2 requests are newly denied and 0 newly admitted.",
        "<svg id=\"changes\"",
        "<tr><td><span class=\"name\">api/r</span></td><td class=\"n\">2</td><td class=\"n\">2</td><td class=\"n\">0</td><td class=\"n\">0</td></tr>",
        "<bdi>user=&lt;b&gt;</bdi></td><td class=\"name\">api/r</td><td class=\"n\">1</td><td class=\"time\">1970-01-01T00:00:03Z</td>",
    ] {
        assert!(page.contains(part), "{part}");
    }
    dir.simulate(&input, &more);
    assert!(!dir.read("out.html").contains("Against"));
}

#[test]
fn the_old_rules_must_be_valid_and_are_not_overwritten() {
    let (run, _) = against(&per_user(1), "rule_sets: 7\n", "", &[]);
    assert_eq!(run.code, Some(78));
    assert!(run.stderr.starts_with("old.yaml:1:12: "), "{run:?}");
    for option in ["--output", "--report"] {
        let (run, dir) = against(&per_user(1), &per_user(2), "", &[option, "old.yaml"]);
        assert_eq!(run.code, Some(74));
        assert!(run.stderr.contains("would be overwritten"), "{run:?}");
        assert_eq!(dir.read("old.yaml"), per_user(2));
    }
}
