//! Manifests for meshes and gateways that ask FluxGate to authorize requests. There are no schemas of
//! their kinds here, so what they refer to is compared, and what Envoy gets is given to Envoy.

use std::process::Command;

use serde_json::{Value, json};

use super::{example, text};
use crate::docs::only;
use crate::support::{Dir, fetched, project_file};

fn manifests(file: &str) -> Vec<Value> {
    crate::deploy::yaml(&example(file))
}

fn find<'a>(manifests: &'a [Value], kind: &str) -> &'a Value {
    let found = manifests.iter().find(|manifest| manifest["kind"] == kind);
    found.unwrap_or_else(|| panic!("no {kind}"))
}

/// Returns a port of the service in `deploy/kubernetes`.
fn port(name: &str) -> Value {
    let service = crate::deploy::yaml(&project_file("deploy/kubernetes/service.yaml"));
    assert_eq!(service[0]["metadata"]["name"], "fluxgate");
    let ports = service[0]["spec"]["ports"].as_array().unwrap();
    let port = ports.iter().find(|port| port["name"] == name);
    port.unwrap()["port"].clone()
}

#[test]
fn the_policy_of_istio_calls_the_deployed_service() {
    let manifests = manifests("envoy/istio.yaml");
    let mesh = &find(&manifests, "IstioOperator")["spec"]["meshConfig"];
    let provider = &mesh["extensionProviders"][0];
    let service = &provider["envoyExtAuthzGrpc"];
    assert_eq!(service["service"], "fluxgate.default.svc.cluster.local");
    assert_eq!(service["port"], port("grpc"));
    assert_eq!(service["failOpen"], false);
    let policy = &find(&manifests, "AuthorizationPolicy")["spec"];
    assert_eq!(policy["action"], "CUSTOM");
    assert_eq!(policy["provider"]["name"], provider["name"]);
    let filter = &find(&manifests, "EnvoyFilter")["spec"];
    assert_eq!(
        filter["workloadSelector"]["labels"],
        policy["selector"]["matchLabels"]
    );
}

/// Adds what Istio merges into the filter to the documented one, and lets Envoy check it.
#[test]
fn envoy_accepts_what_istio_merges() {
    let manifests = manifests("envoy/istio.yaml");
    let patch = &find(&manifests, "EnvoyFilter")["spec"]["configPatches"][0];
    let sub_filter = &patch["match"]["listener"]["filterChain"]["filter"]["subFilter"]["name"];
    let dir = Dir::new();
    dir.write("documented.yaml", only("yaml envoy-authz"));
    let mut config = crate::deploy::yaml(&dir.path("documented.yaml")).remove(0);
    let filters = config
        .pointer_mut(
            "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config/http_filters",
        )
        .unwrap();
    let filter = &mut filters[0];
    assert_eq!(filter["name"], *sub_filter);
    let merged = filter["typed_config"].as_object_mut().unwrap();
    let removed = merged.remove("encode_raw_headers");
    assert_eq!(removed, Some(json!(true)));
    let value = patch["patch"]["value"]["typed_config"].as_object().unwrap();
    assert_eq!(value["encode_raw_headers"], true);
    for (name, value) in value {
        let before = merged.insert(name.clone(), value.clone());
        assert!(before.is_none_or(|before| before == *value), "{name}");
    }
    dir.write("envoy.json", config.to_string());
    let envoy = fetched("FLUXGATE_ENVOY", "envoy/envoy/_bin/envoy");
    let output = Command::new(envoy)
        .args(["--mode", "validate", "--config-path", "envoy.json"])
        .current_dir(dir.path(""))
        .output()
        .unwrap();
    let report = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{report}");
}

#[test]
fn the_routes_of_gateway_api_call_the_deployed_service() {
    let routes = manifests("envoy/gateway-api.yaml");
    assert_eq!(routes.len(), 2);
    let calls = routes.iter().map(|route| {
        assert_eq!(route["apiVersion"], "gateway.networking.k8s.io/v1");
        assert_eq!(route["kind"], "HTTPRoute");
        let filter = &route["spec"]["rules"][0]["filters"][0];
        assert_eq!(filter["type"], "ExternalAuth");
        assert_eq!(filter["externalAuth"]["backendRef"]["name"], "fluxgate");
        &filter["externalAuth"]
    });
    for call in calls {
        let (listener, settings, other) = match call["protocol"].as_str() {
            Some("GRPC") => ("grpc", "grpc", "http"),
            Some("HTTP") => ("api", "http", "grpc"),
            other => panic!("{other:?}"),
        };
        assert_eq!(call["backendRef"]["port"], port(listener));
        assert!(
            call[settings].is_object() && call[other].is_null(),
            "{call}"
        );
        if settings == "http" {
            assert_eq!(call["http"]["path"], "/v1/forward_auth");
        }
    }
    let policy = &manifests("envoy/envoy-gateway.yaml")[0];
    assert_eq!(policy["kind"], "SecurityPolicy");
    let backend = &policy["spec"]["extAuth"]["grpc"]["backendRefs"][0];
    assert_eq!(
        *backend,
        json!({ "name": "fluxgate", "port": port("grpc") })
    );
    let target = &policy["spec"]["targetRefs"][0];
    assert_eq!(target["name"], routes[0]["metadata"]["name"]);
}

/// `service::grpc::ext_authz::envoy` runs Envoy with the files of the document.
#[test]
fn the_files_for_external_authorization_match_the_document() {
    let document = only("yaml envoy-authz");
    assert_eq!(text("envoy/ext-authz.yaml"), document);
    let mut blocks = crate::docs::Block::all_of("docs/grpc.md").into_iter();
    let config = blocks.find(|block| block.kind == "yaml" && block.text.contains("filters:"));
    assert_eq!(
        text("envoy/ext-authz-fluxgate.yaml"),
        config.expect("the filter is documented").text
    );
}
