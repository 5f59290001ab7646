//! Checks `/openapi.json`, and the service against it, with public tools.

use std::collections::BTreeSet;
use std::process::Command;

use fluxgate_core::RuleSets;
use fluxgate_testkit::RedisServer;
use serde_json::Value;

use crate::service::Service;
use crate::support::{project_file, python};

const RULES: &str = r#"
filters: { main: { rule_set: api } }
rule_sets:
  api:
    rules:
      - { id: by-user, scope: per_user, bands: [ { capacity: 2, window: 1m } ] }
"#;

#[test]
fn the_document_is_valid() {
    let service = Service::start(&[], RULES);
    let document = service.http().get("/openapi.json");
    assert_eq!(document.header("content-type"), Some("application/json"));
    service.dir.write("openapi.json", &document.body);
    let output = Command::new(python())
        .args(["-m", "openapi_spec_validator", "openapi.json"])
        .current_dir(service.dir.path(""))
        .output()
        .unwrap();
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{report}");
}

/// Adds the paths of schemas that generators of clients would drop, or give no type: arrays
/// without items, and objects without properties.
fn find_holes(node: &Value, path: &str, holes: &mut Vec<String>) {
    let is = |kind: &str| {
        let kinds = &node["type"];
        kinds == kind
            || kinds
                .as_array()
                .is_some_and(|kinds| kinds.contains(&kind.into()))
    };
    let has = |name: &str| node.get(name).is_some();
    let is_untyped = is("object") && !has("properties") && !has("additionalProperties");
    if is_untyped || is("array") && !has("items") {
        holes.push(path.to_owned());
    }
    match node {
        Value::Object(fields) => {
            for (name, field) in fields {
                find_holes(field, &format!("{path}/{name}"), holes);
            }
        }
        Value::Array(elements) => {
            for (index, element) in elements.iter().enumerate() {
                find_holes(element, &format!("{path}/{index}"), holes);
            }
        }
        _ => {}
    }
}

#[test]
fn every_schema_says_what_it_holds() {
    let service = Service::start(&[], RULES);
    let document: Value = serde_json::from_str(&service.http().get("/openapi.json").body).unwrap();
    let mut holes = Vec::new();
    find_holes(&document, "", &mut holes);
    for (path, calls) in document["paths"].as_object().unwrap() {
        let calls = calls.as_object().unwrap().iter();
        for (method, call) in calls.filter(|(name, _)| *name != "parameters") {
            for (status, response) in call["responses"].as_object().unwrap() {
                let contents = response["content"].as_object();
                for (kind, content) in contents.into_iter().flatten() {
                    let schema = content["schema"].as_object();
                    if schema.is_none_or(|schema| schema.is_empty()) {
                        holes.push(format!("{method} {path} {status} {kind}"));
                    }
                }
            }
        }
    }
    assert_eq!(holes, [""; 0]);
}

#[test]
fn a_generated_client_knows_rules_and_their_bands() {
    let redis = RedisServer::start();
    let service = Service::start(&[], &stored_rules(&redis));
    let document = service.http().get("/openapi.json").body;
    service.dir.write("openapi.json", document);
    let run = |command: &mut Command| {
        let output = command.current_dir(service.dir.path("")).output().unwrap();
        let [out, error] = [output.stdout, output.stderr]
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        assert!(output.status.success(), "{out}{error}");
        out + &error
    };
    // The generator formats what it writes with `ruff`, if it finds that.
    let generated = run(Command::new(python())
        .env("PATH", "")
        .args([
            "-m",
            "openapi_python_client",
            "generate",
            "--path",
            "openapi.json",
        ])
        .args(["--meta", "none", "--output-path", "generated"]));
    for omission in ["Failure to process", "will be omitted", "not be generated"] {
        assert!(!generated.contains(omission), "{generated}");
    }
    let script = project_file("crates/fluxgate/tests/it/service/api/generated_client.py");
    let url = format!("http://{}", service.address("api"));
    run(Command::new(python()).arg(script).args([".", &url]));
}

/// Returns the fields that a message about an unknown field lists.
fn allowed_fields(message: &str) -> BTreeSet<&str> {
    let (_, fields) = message
        .split_once("allowed are ")
        .or_else(|| message.split_once("expected one of "))
        .unwrap_or_else(|| panic!("{message}"));
    let line = fields.lines().next().unwrap_or_default();
    line.split(", ")
        .map(|field| field.trim_matches('`'))
        .collect()
}

/// Each mapping of a rule file has the fields in the document that the reader of rules knows.
#[test]
fn the_document_has_every_field_of_rules() {
    let service = Service::start(&[], RULES);
    let document: Value = serde_json::from_str(&service.http().get("/openapi.json").body).unwrap();
    let bands = "bands: [ 1/s ]";
    for (schema, set) in [
        ("RuleSet", "{ other: 1, rules: [] }".to_owned()),
        (
            "Rule",
            format!("{{ rules: [ {{ id: r, other: 1, {bands} }} ] }}"),
        ),
        (
            "RuleMatch",
            format!("{{ rules: [ {{ id: r, match: {{ other: 1 }}, {bands} }} ] }}"),
        ),
        (
            "RuleMatch/properties/ip/anyOf/1",
            format!("{{ rules: [ {{ id: r, match: {{ ip: {{ other: 1 }} }}, {bands} }} ] }}"),
        ),
        (
            "RuleMatch/properties/not_ip/anyOf/1",
            format!("{{ rules: [ {{ id: r, match: {{ not_ip: {{ other: 1 }} }}, {bands} }} ] }}"),
        ),
        (
            "Band",
            "{ rules: [ { id: r, bands: [ { other: 1 } ] } ] }".into(),
        ),
        (
            "Rule/properties/lease",
            format!("{{ rules: [ {{ id: r, lease: {{ other: 1 }}, {bands} }} ] }}"),
        ),
        (
            "Rule/properties/overrides/items",
            format!("{{ rules: [ {{ id: r, overrides: [ {{ other: 1 }} ], {bands} }} ] }}"),
        ),
    ] {
        let error = RuleSets::from_yaml(&format!("rule_sets: {{ s: {set} }}")).unwrap_err();
        let error = error.to_string();
        let unknown = error
            .lines()
            .find(|line| line.contains("unknown field `other`"));
        let expected = allowed_fields(unknown.unwrap_or_else(|| panic!("{error}")));
        let properties = &document["components"]["schemas"].pointer(&format!("/{schema}"));
        let properties = properties.unwrap()["properties"].as_object().unwrap();
        let found: BTreeSet<_> = properties.keys().map(|name| &**name).collect();
        assert_eq!(found, expected, "{schema}");
    }
    let check = service.http().post("/v1/check", r#"{"other":1}"#).body;
    let properties = &document["components"]["schemas"]["Check"]["properties"];
    let properties = properties.as_object().unwrap();
    let found: BTreeSet<_> = properties.keys().map(|name| &**name).collect();
    let problem: Value = serde_json::from_str(&check).unwrap();
    let detail = problem["detail"].as_str().unwrap();
    let detail = detail.split(" (line").next().unwrap();
    assert_eq!(found, allowed_fields(detail));
}

/// Statuses of rules are any from 400 to 499.
#[test]
fn a_forbidden_check_is_documented() {
    let rules = "
rule_sets:
  api:
    rules:
      - { id: no, action: deny, match: { user: eve } }
      - { id: gone, action: deny, status: 410, match: { user: mallory } }
";
    let service = Service::start(&[], rules);
    let mut http = service.http();
    let document: Value = serde_json::from_str(&http.get("/openapi.json").body).unwrap();
    let responses = &document["paths"]["/v1/check"]["post"]["responses"];
    let schema = &document["components"]["schemas"]["Forbidden"];
    let reference = serde_json::json!({ "$ref": "#/components/schemas/Forbidden" });
    for (user, status, documented) in [("eve", 403, "403"), ("mallory", 410, "4XX")] {
        let body = format!("{{\"user\":\"{user}\"}}");
        let response = http.post("/v1/check?status=true", &body);
        assert_eq!(response.status, status);
        let content = &responses[documented]["content"]["application/problem+json"]["schema"];
        let any_of = content["anyOf"].as_array();
        let is_named = *content == reference || any_of.is_some_and(|it| it.contains(&reference));
        assert!(is_named, "{content}");
        let headers = &responses[documented]["headers"];
        assert!(response.header("x-fluxgate-status").is_some());
        assert!(headers["X-FluxGate-Status"].is_object(), "{headers}");
        let problem: Value = serde_json::from_str(&response.body).unwrap();
        let known = schema["properties"].as_object().unwrap();
        for name in problem.as_object().unwrap().keys() {
            assert!(known.contains_key(name), "{name}");
        }
        for name in schema["required"].as_array().unwrap() {
            let name = name.as_str().unwrap();
            assert!(problem.get(name).is_some(), "{name}: {problem}");
        }
        for name in ["type", "outcome"] {
            assert_eq!(problem[name], known[name]["const"], "{name}");
        }
    }
}

fn stored_rules(redis: &RedisServer) -> String {
    let url = redis.url();
    format!(
        "store: {{ redis: {{ url: '{url}', deadline: 10s }} }}\nrules_from: {{ redis: {{}} }}\n"
    )
}

/// Generates valid and invalid requests with Schemathesis, and checks the responses against
/// the document: no 5xx, and no undocumented status, header or body.
fn explore(service: &Service) {
    let url = format!("http://{}/openapi.json", service.address("api"));
    let examples = match std::env::var_os("FLUXGATE_LONG") {
        Some(_) => "200",
        None => "25",
    };
    let output = Command::new(python())
        .args(["-m", "schemathesis.cli"])
        .args(["run", &url, "--max-examples", examples, "--phases", "examples,coverage,fuzzing"])
        // Slow generation is a property of the machine.
        .args(["--suppress-health-check", "all", "--request-timeout", "60"])
        .args(["--checks", "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,response_schema_conformance,unsupported_method"])
        // A stream without an end.
        .args(["--exclude-path", "/v1/live"])
        .args(["--seed", "1", "--no-color", "--workers", "1"])
        .current_dir(service.dir.path(""))
        .output()
        .unwrap();
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{report}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn all_responses_are_documented() {
    explore(&Service::start(&[], RULES));
}

#[test]
fn all_responses_are_documented_with_stored_rules() {
    let redis = RedisServer::start();
    explore(&Service::start(&[], &stored_rules(&redis)));
}
