//! Health and reflection.

use fluxgate_testkit::ports;
use serde_json::{Map, Value, json};

use super::Client;
use super::client::{descriptor, error};
use crate::service::Service;
use crate::support::{Dir, TWO_A_SECOND};

const RATE_LIMIT_SERVICE: &str = "envoy.service.ratelimit.v3.RateLimitService";
const AUTHORIZATION_SERVICE: &str = "envoy.service.auth.v3.Authorization";

#[test]
fn a_service_that_can_decide_is_serving() {
    let service = Service::start(&["grpc"], TWO_A_SECOND);
    let mut client = Client::of(&service);
    for name in ["", RATE_LIMIT_SERVICE, AUTHORIZATION_SERVICE] {
        assert_eq!(client.health(name), json!({ "status": "SERVING" }));
    }
    let (code, _) = error(&client.health("some.other.Service"));
    assert_eq!(code, "NOT_FOUND");
}

#[test]
fn a_service_without_rules_is_not_serving() {
    // The rules are in a Redis that is down.
    let closed = ports::free();
    let dir = Dir::new();
    dir.write(
        "fluxgate.yaml",
        format!(
            "listen: {{ grpc: \"127.0.0.1:0\" }}\n\
             store: {{ redis: {{ url: \"redis://{}\" }} }}\n\
             rules_from: {{ redis: {{}} }}\n",
            closed.addr()
        ),
    );
    let service = Service::open_in(dir, &["run", "--config", "fluxgate.yaml"], 1);
    let mut client = Client::of(&service);
    for name in ["", RATE_LIMIT_SERVICE, AUTHORIZATION_SERVICE] {
        assert_eq!(client.health(name), json!({ "status": "NOT_SERVING" }));
    }
    let request = json!({ "domain": "api", "descriptors": [descriptor(&[("user", "ann")])] });
    let (code, message) = client.check_error(&request);
    assert_eq!(
        (&*code, &*message),
        ("UNAVAILABLE", "the rules are not loaded yet")
    );
    client.send(&json!({ "call": "watch", "service": "" }));
    assert_eq!(client.next(), json!({ "status": "NOT_SERVING" }));
}

#[test]
fn watches_report_the_shutdown() {
    let service = Service::start(&["grpc"], TWO_A_SECOND);
    let mut watchers = ["", RATE_LIMIT_SERVICE].map(|name| {
        let mut client = Client::of(&service);
        client.send(&json!({ "call": "watch", "service": name }));
        assert_eq!(client.next(), json!({ "status": "SERVING" }));
        client
    });
    let mut other = Client::of(&service);
    other.send(&json!({ "call": "watch", "service": "some.other.Service" }));
    assert_eq!(other.next(), json!({ "status": "SERVICE_UNKNOWN" }));
    service.program.signal("TERM");
    for client in &mut watchers {
        assert_eq!(client.next(), json!({ "status": "NOT_SERVING" }));
        assert_eq!(client.next(), json!({ "end": true }));
    }
    assert_eq!(other.next(), json!({ "end": true }));
    // Watches do not delay the shutdown.
    assert!(service.program.wait().success());
}

#[test]
fn reflection_lists_the_services() {
    let service = Service::start(&["grpc"], TWO_A_SECOND);
    let mut client = Client::of(&service);
    assert_eq!(
        client.call(&json!({ "call": "services" }))["services"],
        json!([
            AUTHORIZATION_SERVICE,
            RATE_LIMIT_SERVICE,
            "grpc.health.v1.Health",
            "grpc.reflection.v1.ServerReflection",
            "grpc.reflection.v1alpha.ServerReflection",
            "kuadrant.service.ratelimit.v1.RateLimitService",
        ])
    );
}

#[test]
fn reflection_describes_fields_as_envoy_defines_them() {
    let service = Service::start(&["grpc"], TWO_A_SECOND);
    let mut client = Client::of(&service);
    let messages = client.call(&json!({ "call": "fields" }));
    let messages = messages.as_object().unwrap();
    assert_eq!(messages.len(), 20);
    for (message, definitions) in messages {
        let (served, envoy) = (&definitions["served"], &definitions["envoy"]);
        assert_subset(&served["fields"], &envoy["fields"], message);
        for (enumeration, values) in object(&served["values"]) {
            assert_subset(values, &envoy["values"][enumeration], message);
        }
    }
}

/// Asserts that Envoy has all that is served. The client does not know the newest field.
fn assert_subset(served: &Value, envoy: &Value, message: &str) {
    for (name, definition) in object(served) {
        if name != "is_negative_hits" {
            assert_eq!(*definition, envoy[name], "{message}.{name}");
        }
    }
}

fn object(value: &Value) -> &Map<String, Value> {
    value.as_object().unwrap()
}
