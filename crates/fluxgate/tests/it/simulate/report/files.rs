//! The input of a report, and the file it is written to.

use std::fs;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::process::Stdio;

use super::{RULES, report, requests};
use crate::support::{Dir, TWO_A_SECOND, one_rule};

const THREE: &str = "{\"t\":0}\n{\"t\":0}\n{\"t\":0}\n";

/// Returns the names of all files in the directory of a test.
fn names(dir: &Dir) -> Vec<String> {
    let entries = fs::read_dir(dir.path(".")).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn the_same_input_gives_the_same_bytes_in_any_directory() {
    let first = report(&Dir::with_rules(RULES), &requests(), &[]);
    for _ in 0..3 {
        let again = report(&Dir::with_rules(RULES), &requests(), &[]);
        assert!(again == first);
    }
}

#[test]
fn the_decisions_are_the_same_with_and_without_a_report() {
    let dir = Dir::with_rules(RULES);
    let plain = dir.simulate(requests(), &[]);
    let (page, run) = report(&dir, &requests(), &[]);
    assert_eq!(run, plain);
    let (same, run) = report(&dir, &requests(), &["--output", "decisions"]);
    assert_eq!(run.stdout, "");
    assert_eq!(dir.read("decisions"), plain.stdout);
    assert!(same == page);
    let expected = ["decisions", "input.ndjson", "out.html", "rules.yaml"];
    assert_eq!(names(&dir), expected);
}

#[test]
fn requests_may_come_from_standard_input() {
    let dir = Dir::with_rules(RULES);
    let (from_file, _) = report(&dir, &requests(), &[]);
    let arguments = [
        "simulate",
        "--rules",
        "rules.yaml",
        "--input",
        "-",
        "--report",
        "piped.html",
    ];
    let run = dir.run_with_stdin(&arguments, &requests());
    assert_eq!(run.lines().len(), 900);
    let named = from_file.replace("<code>input.ndjson</code>", "<code>standard input</code>");
    assert!(dir.read("piped.html") == named);
}

#[test]
fn access_logs_are_reported_in_the_order_of_time() {
    let dir = Dir::with_rules(&one_rule(
        "scope: per_ip, bands: [ { capacity: 1, window: 1h } ]",
    ));
    let mut log = String::new();
    // The second line goes back in time.
    for second in ["10", "09", "11"] {
        log += &format!(
            "203.0.113.9 - - [01/Jan/2026:09:10:{second} +0000] \"GET /a HTTP/1.1\" 200 5 \"-\" \"curl\"\n"
        );
    }
    let (page, run) = report(&dir, &log, &["--format", "combined"]);
    assert_eq!(run.outcomes(), "add");
    assert!(page.contains("2026-01-01 09:10:10.000 to 2026-01-01 09:10:11.000 UTC"));
    assert!(page.contains("<bdi>ip=203.0.113.9</bdi>"));
}

#[test]
fn an_empty_input_gives_a_page_that_says_so() {
    let (page, run) = report(&Dir::with_rules(TWO_A_SECOND), "", &[]);
    assert_eq!(run.code, Some(0));
    assert!(page.contains("There were no requests."));
    assert!(page.ends_with("</html>\n"));
}

#[test]
fn a_bad_line_leaves_a_report_on_the_lines_before_it() {
    let dir = Dir::with_rules(TWO_A_SECOND);
    let (page, run) = report(&dir, "{\"t\":0}\n{\"<b>\"\n", &[]);
    assert_eq!(run.code, Some(65));
    assert!(page.contains("<title>rules.yaml: 1 requests</title>"));
    assert!(page.contains("the run ended early, this is what came before: input.ndjson:2: "));
    let (page, run) = report(&dir, "{\"t\":0}\nbad\nbad\n", &["--lenient"]);
    assert_eq!(run.code, Some(0));
    assert!(page.contains("<p class=\"warn\">2 bad line(s) were skipped</p>"));
}

#[test]
fn a_report_that_cannot_be_written_fails_before_the_run() {
    let dir = Dir::with_rules(TWO_A_SECOND);
    fs::create_dir(dir.path("folder")).unwrap();
    let cases = [
        (
            "no/such/folder.html",
            "no/such/folder.html: No such file or directory",
        ),
        ("folder", "folder: is a directory"),
        (
            "rules.yaml",
            "rules.yaml: would be overwritten while it is read",
        ),
        (
            "./input.ndjson",
            "./input.ndjson: would be overwritten while it is read",
        ),
        (
            "decisions",
            "decisions: cannot hold both the decisions and the report",
        ),
        ("-", "--report needs a file"),
    ];
    for (path, message) in cases {
        let run = dir.simulate(THREE, &["--report", path, "--output", "decisions"]);
        assert_eq!((run.code, run.stdout.as_str()), (Some(74), ""), "{path}");
        assert!(run.stderr.starts_with(message), "{path}: {}", run.stderr);
        assert_eq!(names(&dir), ["folder", "input.ndjson", "rules.yaml"]);
    }
    assert_eq!(dir.read("rules.yaml"), TWO_A_SECOND);
    assert_eq!(dir.read("input.ndjson"), THREE);
}

#[test]
fn the_decisions_may_not_be_redirected_into_the_report() {
    let dir = Dir::with_rules(TWO_A_SECOND);
    dir.write("input.ndjson", THREE);
    let out = fs::File::create(dir.path("out.html")).unwrap();
    let mut command = dir.command(&[
        "simulate",
        "--rules",
        "rules.yaml",
        "--input",
        "input.ndjson",
        "--report",
        "out.html",
    ]);
    let output = command.stdout(Stdio::from(out)).output().unwrap();
    assert_eq!(output.status.code(), Some(74));
    assert_eq!(dir.read("out.html"), "");
}

/// A reader of the old page never sees half of a new one.
#[test]
fn a_page_is_replaced_as_a_whole_and_a_link_stays_one() {
    let dir = Dir::with_rules(TWO_A_SECOND);
    dir.write("real.html", "old");
    symlink("real.html", dir.path("out.html")).unwrap();
    let old = fs::File::open(dir.path("real.html")).unwrap();
    let (page, _) = report(&dir, THREE, &[]);
    assert_eq!(std::io::read_to_string(old).unwrap(), "old");
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
    assert_eq!(dir.read("real.html"), page);
    assert!(
        fs::symlink_metadata(dir.path("out.html"))
            .unwrap()
            .is_symlink()
    );
}

#[test]
fn a_device_is_written_to_and_not_replaced() {
    let dir = Dir::with_rules(TWO_A_SECOND);
    let run = dir.simulate(THREE, &["--report", "/dev/null"]);
    assert_eq!(run.outcomes(), "aad");
    let null = fs::metadata("/dev/null").unwrap();
    assert!(null.file_type().is_char_device());
}

/// A browser can open the page, however long the stream is and however many rules
/// there are.
#[test]
fn a_page_stays_small() {
    let mut rules = String::from("rule_sets:\n  api:\n    rules:\n");
    for rule in 0..300 {
        rules += &format!(
            "      - {{ id: r{rule}, scope: per_user, match: {{ path: ['/p{rule}'] }}, bands: [ {{ capacity: 1, window: 1h }} ] }}\n"
        );
    }
    let dir = Dir::with_rules(&rules);
    let mut input = String::new();
    for step in 0..20_000_u64 {
        // The gaps grow from milliseconds to centuries.
        let t = step * step * step * 1_000;
        let long = "x".repeat(if step == 7 { 100_000 } else { 1 });
        input += &format!(
            "{{\"t\":{t},\"user\":\"{long}{}\",\"path\":\"/p{}\"}}\n",
            step % 3_000,
            step % 350
        );
        input += &format!(
            "{{\"t\":{t},\"user\":\"{long}\",\"path\":\"/p{}\"}}\n",
            step % 350
        );
    }
    let (page, run) = report(&dir, &input, &[]);
    assert_eq!(run.lines().len(), 40_000);
    assert!(page.contains("And 100 more."));
    assert_eq!(page.matches("<svg").count(), 1 + 12 + 12 + 5);
    assert!(page.len() < 1_500_000, "{}", page.len());
}

#[test]
fn help_and_completions_have_the_option() {
    let dir = Dir::new();
    let help = dir.run(&["simulate", "--help"]);
    assert!(help.stdout.contains("--report <FILE>"));
    for shell in ["bash", "zsh", "fish"] {
        let script = dir.run(&["completions", shell]);
        assert!(script.stdout.contains("report"), "{shell}");
    }
}
