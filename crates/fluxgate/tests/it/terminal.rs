//! Names in files and in answers never reach a terminal as commands to it.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use crate::support::{Dir, Run, TWO_A_SECOND};

/// Sets the title of a window, rings the bell, erases the line, in the 8-bit form as well, and
/// reverses what follows.
const HOSTILE: &str = r"\e]0;x\a\e[2K\u009b2K\u202e\u007f";

#[track_caller]
fn assert_harmless(run: &Run) {
    for text in [&run.stdout, &run.stderr] {
        let bad = text.chars().find(|char| {
            let reorders = matches!(char, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
            (char.is_control() && !"\n\t".contains(*char)) || reorders
        });
        assert_eq!(bad, None, "{run:?}");
    }
}

#[track_caller]
fn assert_escaped(run: &Run, code: i32) {
    assert_harmless(run);
    assert_eq!(run.code, Some(code), "{run:?}");
    let text = format!("{}{}", run.stdout, run.stderr);
    assert!(text.contains("\\u001b]0;x\\u0007"), "{run:?}");
}

#[test]
fn faults_quote_files_without_their_control_characters() {
    let dir = Dir::new();
    for (file, text) in [
        ("key.yaml", format!("\"{HOSTILE}\": 1\n")),
        (
            "value.yaml",
            format!("rule_sets: {{ s: {{ on_error: \"{HOSTILE}\", rules: [] }} }}\n"),
        ),
        ("listen.yaml", format!("listen: {{ \"{HOSTILE}\": 1 }}\n")),
    ] {
        dir.write(file, text);
        assert_escaped(&dir.run(&["validate", file]), 78);
        assert_escaped(&dir.run(&["run", "--config", file]), 78);
    }
    // A fault is one line: the rest of a name cannot look like another.
    dir.write("lines.yaml", "\"a\\nother.yaml:1:1: fine\": 1\n");
    let run = dir.run(&["validate", "lines.yaml"]);
    assert_eq!(run.stderr.lines().count(), 1, "{run:?}");
    assert!(run.stderr.contains("a\\u000aother.yaml"), "{run:?}");
}

#[test]
fn imports_and_warnings_quote_files_without_their_control_characters() {
    let dir = Dir::new();
    let raw = "\u{1b}]0;x\u{7}";
    dir.write(
        "nginx.conf",
        format!("http {{ limit_req_zone {raw} zone=a:1m rate={raw}; {raw} {{ }} }}\n"),
    );
    dir.write(
        "any.yaml",
        format!("\"{HOSTILE}\": {{ \"{HOSTILE}\": 1 }}\n"),
    );
    for (format, file) in [
        ("nginx", "nginx.conf"),
        ("kong", "any.yaml"),
        ("bucket4j", "any.yaml"),
        ("openfluxgate", "any.yaml"),
        ("envoy-ratelimit", "any.yaml"),
    ] {
        assert_harmless(&dir.run(&["import", format, file]));
    }
    dir.write(
        "warned.yaml",
        format!(
            "listen: {{ api: '127.0.0.1:0' }}\nfilters: {{ main: {{ rule_set: \"{}\" }} }}\n",
            r"a\u202eb"
        ),
    );
    assert_harmless(&dir.run(&["validate", "warned.yaml"]));
    assert_harmless(&dir.run(&["config", "show", "warned.yaml"]));
}

#[test]
fn requests_are_quoted_without_their_control_characters() {
    let dir = Dir::with_rules(TWO_A_SECOND);
    let line = r#"{"t":1,"\u001b]0;x\u0007":1}"#;
    let run = dir.simulate(format!("{line}\n"), &[]);
    assert_eq!(run.code, Some(65), "{run:?}");
    assert_harmless(&run);
    let user = r#"{"t":1,"user":"\u001b]0;x\u0007"}"#;
    let run = dir.simulate(format!("{user}\n{user}\n{user}\n"), &["--summary"]);
    assert_harmless(&run);
    let request = r#"{"user":"\u001b]0;x\u0007\u009b"}"#;
    for format in [&[][..], &["--json"]] {
        let arguments = ["explain", "--rules", "rules.yaml", "--request", request];
        let run = dir.run(&[&arguments[..], format].concat());
        assert_eq!(run.code, Some(0), "{run:?}");
        assert_harmless(&run);
    }
}

/// Answers one request with this status and body.
fn answer_once(status: u16, body: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut head = [0; 4096];
        let _ = stream.read(&mut head);
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 {status} x\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        );
        stream.write_all(answer.as_bytes()).unwrap();
    });
    format!("http://{address}")
}

#[test]
fn answers_of_a_server_are_printed_without_control_characters() {
    let dir = Dir::new();
    let raw = "\u{1b}]0;x\u{7}\u{9b}";
    let check = ["check", "--request", "{}"];
    for (status, body, command) in [
        (
            400,
            format!("{{\"detail\":\"{}\"}}", r"\u001b]0;x\u0007\u009b"),
            &check[..],
        ),
        (500, raw.to_owned(), &check),
        (
            200,
            "{\"allowed\":true,\"rule\":\"\u{9b}\u{7f}\"}".to_owned(),
            &check,
        ),
        (
            200,
            "{\"rule_sets\":[{\"name\":\"\u{9b}\u{202e}\",\"rules\":[{}]}]}".to_owned(),
            &["rules"],
        ),
    ] {
        let server = answer_once(status, body);
        let run = dir.run(&[command, &["--server", &server]].concat());
        assert_harmless(&run);
        // JSON stays JSON.
        if run.code == Some(0) && command == check {
            let decision: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
            assert_eq!(decision["rule"], "\u{9b}\u{7f}");
        }
    }
}
