//! The setting `mcp` of a route.

use crate::support::Dir;

const LIMITS: &str =
    "rules: [ { id: t, key: [user, \"mcp:name\"], on_missing_key: skip, bands: [9/m] } ]";

fn run(
    command: &[&str],
    route: &str,
    attributes: &str,
    rules: &str,
) -> (Option<i32>, String, String) {
    let dir = Dir::new();
    dir.write(
        "fluxgate.yaml",
        format!(
            "listen: {{ gateway: \"127.0.0.1:0\" }}\n\
             filters: {{ main: {{ rule_set: s{attributes} }} }}\n\
             gateway:\n  routes:\n    - id: r\n      upstreams: [\"http://127.0.0.1:1\"]\n      \
             filters: [main]\n      {route}\nrule_sets: {{ s: {{ {rules} }} }}\n"
        ),
    );
    let run = dir.run(command);
    (run.code, run.stdout, run.stderr)
}

const VALIDATE: [&str; 2] = ["validate", "fluxgate.yaml"];

/// Another filter.
const OTHER: &str = " }, other: { rule_set: s";

#[test]
fn faults_are_reported_with_their_places() {
    for (route, place, message) in [
        (
            "mcp: { filter: other }",
            "8:22",
            "`filter` must be a filter of the route, not `other`; it has main",
        ),
        ("mcp: {}", "8:12", "`mcp` needs `filter`"),
        ("mcp: { filter: [main] }", "8:22", "`filter`"),
        ("mcp: { filter: main, tools: [] }", "8:28", "tools"),
        ("mcp: main", "8:12", "`mcp`"),
    ] {
        let (code, _, stderr) = run(&VALIDATE, route, OTHER, LIMITS);
        assert_eq!(code, Some(78), "{route}: {stderr}");
        assert!(
            stderr.contains(&format!("fluxgate.yaml:{place}:")) && stderr.contains(message),
            "{route}: {stderr}"
        );
    }
    let both = "llm: { rules: main }\n      mcp: { filter: main }";
    let (code, _, stderr) = run(&VALIDATE, both, "", LIMITS);
    assert_eq!(code, Some(78), "{stderr}");
    assert!(
        stderr.contains("fluxgate.yaml:9:12: a route has `llm` or `mcp`, not both"),
        "{stderr}"
    );
    let from = ", jwt: { from: \"mcp:name\", secret_file: s }";
    let (_, _, stderr) = run(&VALIDATE, "mcp: { filter: main }", from, LIMITS);
    assert!(stderr.contains("`from` must be header:NAME"), "{stderr}");
}

#[test]
fn the_effective_config_names_the_filter_and_the_sources() {
    let attributes = ", attributes: { tool: \"mcp:name\" }";
    let show = ["config", "show", "--config", "fluxgate.yaml"];
    let (code, stdout, stderr) = run(&show, "mcp: { filter: main }", attributes, LIMITS);
    assert_eq!(code, Some(0), "{stderr}");
    for part in [
        "mcp:",
        "filter: main",
        "tool: \"mcp:name\"",
        "key: [user, \"mcp:name\"]",
    ] {
        assert!(stdout.contains(part), "{part}: {stdout}");
    }
}

#[test]
fn rules_and_sources_of_calls_that_no_route_reads_are_warned_of() {
    let attributes = ", attributes: { tool: \"mcp:name\" }";
    let (_, _, stderr) = run(&VALIDATE, "mcp: { filter: main }", attributes, LIMITS);
    assert!(!stderr.contains("mcp:"), "{stderr}");
    let (_, _, stderr) = run(&VALIDATE, "retry: { attempts: 2 }", attributes, LIMITS);
    for warning in [
        "filter `main`: `attributes.tool` comes from `mcp:name`, but no route has `mcp: { filter: main }`",
        "rule `t` never matches: requests of filter `main` have no attribute `mcp:name`",
    ] {
        assert!(stderr.contains(warning), "{stderr}");
    }
}
