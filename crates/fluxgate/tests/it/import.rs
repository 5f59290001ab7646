//! `fluxgate import`.

mod config;
mod nginx;
mod spring_cloud_gateway;

use crate::support::{Dir, Run};

/// Runs the command on a file `source` with this text.
fn import(format: &str, text: &str) -> Run {
    let dir = Dir::new();
    dir.write("source", text);
    dir.run(&["import", format, "source"])
}

/// Returns the rules for a text, which must be valid.
#[track_caller]
pub(crate) fn rules(format: &str, text: &str) -> String {
    let run = import(format, text);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    run.stdout
}

const ENVOY: &str =
    "domain: d\ndescriptors: [ { key: k, rate_limit: { unit: hour, requests_per_unit: 1 } } ]\n";

#[test]
fn the_output_may_be_a_file_but_not_the_source() {
    let dir = Dir::new();
    dir.write("source", ENVOY);
    let run = dir.run(&[
        "import",
        "envoy-ratelimit",
        "source",
        "--output",
        "rules.yaml",
    ]);
    assert_eq!((run.code, run.stdout.as_str()), (Some(0), ""));
    assert_eq!(run.stderr, "source: 1 rule(s)\n");
    assert_eq!(dir.read("rules.yaml"), rules("envoy-ratelimit", ENVOY));
    let validated = dir.run(&["validate", "rules.yaml"]);
    assert_eq!(validated.code, Some(0), "{}", validated.stderr);
    let run = dir.run(&[
        "import",
        "envoy-ratelimit",
        "source",
        "--output",
        "./source",
    ]);
    assert_eq!(run.code, Some(74));
    assert_eq!(
        run.stderr,
        "./source: would be overwritten; name another output\n"
    );
    assert_eq!(dir.read("source"), ENVOY);
}

#[test]
fn a_file_is_overwritten_only_with_force() {
    let dir = Dir::new();
    dir.write("source", ENVOY);
    dir.write("rules.yaml", "mine");
    let arguments = [
        "import",
        "envoy-ratelimit",
        "source",
        "--output",
        "rules.yaml",
    ];
    let run = dir.run(&arguments);
    let expected = "error: rules.yaml: the file exists; `--force` overwrites it\n";
    assert_eq!((run.code, run.stderr.as_str()), (Some(2), expected));
    assert_eq!(dir.read("rules.yaml"), "mine");
    let run = dir.run(&[&arguments[..], &["--force"]].concat());
    assert_eq!(
        (run.code, run.stderr.as_str()),
        (Some(0), "source: 1 rule(s)\n")
    );
    assert_eq!(dir.read("rules.yaml"), rules("envoy-ratelimit", ENVOY));
    // The source is never destroyed, and a device loses nothing.
    let to = |output| dir.run(&["import", "envoy-ratelimit", "source", "--output", output]);
    assert_eq!(to("/dev/null").code, Some(0));
    let over = [
        "import",
        "envoy-ratelimit",
        "source",
        "--force",
        "--output",
        "source",
    ];
    assert_eq!(dir.run(&over).code, Some(74));
    assert_eq!(dir.read("source"), ENVOY);
}

#[test]
fn what_is_not_carried_over_is_counted() {
    let text = "limit_req_zone $uri zone=z:1m rate=1r/s;\nlimit_req zone=z;\nlimit_rate 1k;\n";
    let run = import("nginx", text);
    assert_eq!(run.code, Some(0));
    assert_eq!(
        run.stderr,
        "source: 1 rule(s); not carried over: 1, see the comments\n"
    );
    assert!(
        run.stdout.starts_with(
            "# Imported from source\n\
             # not carried over: `limit_rate 1k`: it limits bandwidth (line 3)\n"
        ),
        "{}",
        run.stdout
    );
}

#[test]
fn a_file_without_anything_to_carry_over_is_refused() {
    let text = "domain: d\ndescriptors:\n  - { key: k, value: 'a*', rate_limit: { unit: day, requests_per_unit: 1 } }\n";
    let run = import("envoy-ratelimit", text);
    assert_eq!((run.code, run.stdout.as_str()), (Some(78), ""));
    assert_eq!(
        run.stderr,
        "source: no rule could be carried over\n\
         source:3: not carried over: the prefix `a*` of `k`, and all below it\n"
    );
}

#[test]
fn a_fault_is_reported_with_its_position() {
    let run = import("nginx", "http { }\n}");
    assert_eq!((run.code, run.stdout.as_str()), (Some(78), ""));
    assert_eq!(run.stderr, "source:2:1: `}` closes no block\n");
}

#[test]
fn a_file_that_is_missing_or_too_large_is_refused() {
    let dir = Dir::new();
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
