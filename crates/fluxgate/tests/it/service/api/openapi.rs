//! Checks `/openapi.json`, and the service against it, with public tools.

use std::process::Command;

use fluxgate_testkit::RedisServer;

use crate::service::Service;
use crate::support::python;

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

/// Generates valid and invalid requests with Schemathesis, and checks the responses against
/// the document: no 5xx, and no undocumented status, header or body.
fn explore(service: &Service) {
    let url = format!("http://{}/openapi.json", service.address("api"));
    let output = Command::new(python())
        .args(["-m", "schemathesis.cli"])
        .args(["run", &url, "--max-examples", "60", "--phases", "examples,coverage,fuzzing"])
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
    let config = format!(
        "store: {{ redis: {{ url: '{}' }} }}\nrules_from: {{ redis: {{}} }}\n",
        redis.url()
    );
    explore(&Service::start(&[], &config));
}
