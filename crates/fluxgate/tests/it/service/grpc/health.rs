//! Health and reflection.

use fluxgate_testkit::ports;
use serde_json::{Map, Value, json};

use super::Client;
use super::client::{descriptor, error};
use crate::service::Service;
use crate::support::{Dir, TWO_A_SECOND};

const RATE_LIMIT_SERVICE: &str = "envoy.service.ratelimit.v3.RateLimitService";

#[test]
fn a_service_that_can_decide_is_serving() {
    let service = Service::start(&["grpc"], TWO_A_SECOND);
    let mut client = Client::of(&service);
    for name in ["", RATE_LIMIT_SERVICE] {
        assert_eq!(client.health(name), json!({ "status": "SERVING" }));
    }
    let (code, _) = error(&client.health("some.other.Service"));
    assert_eq!(code, "NOT_FOUND");
}

#[test]
fn one_that_waits_for_its_rules_is_not_serving() {
    // The rules are in a Redis that is not there.
    let nobody = ports::free();
    let dir = Dir::new();
    dir.write(
        "fluxgate.yaml",
        format!(
            "listen: {{ grpc: \"127.0.0.1:0\" }}\n\
             store: {{ redis: {{ url: \"redis://{}\" }} }}\n\
             rules_from: {{ redis: {{}} }}\n",
            nobody.addr()
        ),
    );
    let service = Service::open_in(dir, &["run", "--config", "fluxgate.yaml"], 1);
    let mut client = Client::of(&service);
    for name in ["", RATE_LIMIT_SERVICE] {
        assert_eq!(client.health(name), json!({ "status": "NOT_SERVING" }));
    }
    let request = json!({ "domain": "api", "descriptors": [descriptor(&[("user", "ann")])] });
    let (code, message) = client.refused(&request);
    assert_eq!(
        (&*code, &*message),
        ("UNAVAILABLE", "the rules are not loaded yet")
    );
    client.send(&json!({ "call": "watch", "service": "" }));
    assert_eq!(client.next(), json!({ "status": "NOT_SERVING" }));
}

#[test]
fn those_who_watch_are_told_of_the_end() {
    let service = Service::start(&["grpc"], TWO_A_SECOND);
    let mut watchers = ["", RATE_LIMIT_SERVICE].map(|name| {
        let mut client = Client::of(&service);
        client.send(&json!({ "call": "watch", "service": name }));
        assert_eq!(client.next(), json!({ "status": "SERVING" }));
        client
    });
    let mut lost = Client::of(&service);
    lost.send(&json!({ "call": "watch", "service": "some.other.Service" }));
    assert_eq!(lost.next(), json!({ "status": "SERVICE_UNKNOWN" }));
    service.program.signal("TERM");
    for client in &mut watchers {
        assert_eq!(client.next(), json!({ "status": "NOT_SERVING" }));
        assert_eq!(client.next(), json!({ "end": true }));
    }
    assert_eq!(lost.next(), json!({ "end": true }));
    // Nobody who watches holds it up.
    assert!(service.program.wait().success());
}

#[test]
fn reflection_lists_the_services() {
    let service = Service::start(&["grpc"], TWO_A_SECOND);
    let mut client = Client::of(&service);
    assert_eq!(
        client.call(&json!({ "call": "services" }))["services"],
        json!([
            RATE_LIMIT_SERVICE,
            "grpc.health.v1.Health",
            "grpc.reflection.v1.ServerReflection",
            "grpc.reflection.v1alpha.ServerReflection",
        ])
    );
}

#[test]
fn reflection_tells_fields_as_envoy_has_them() {
    let service = Service::start(&["grpc"], TWO_A_SECOND);
    let mut client = Client::of(&service);
    let messages = client.call(&json!({ "call": "fields" }));
    let messages = messages.as_object().unwrap();
    assert_eq!(messages.len(), 7);
    for (message, told) in messages {
        let (served, envoy) = (&told["served"], &told["envoy"]);
        assert_within(&served["fields"], &envoy["fields"], message);
        for (choice, values) in object(&served["values"]) {
            assert_within(values, &envoy["values"][choice], message);
        }
    }
}

/// Whatever is served, Envoy has too. The client does not know the youngest
/// field yet.
fn assert_within(served: &Value, envoy: &Value, message: &str) {
    for (name, told) in object(served) {
        if name != "is_negative_hits" {
            assert_eq!(*told, envoy[name], "{message}.{name}");
        }
    }
}

fn object(value: &Value) -> &Map<String, Value> {
    value.as_object().unwrap()
}
