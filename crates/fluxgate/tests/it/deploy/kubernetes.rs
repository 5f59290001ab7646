//! The manifests for Kubernetes.

use std::process::Command;

use serde_json::Value;

use super::{assert_valid, deployed, output_of, python_tool, yaml};
use crate::docs;
use crate::support::{Dir, fetched};

/// Returns the objects that would be sent to a cluster.
fn build(dir: &Dir) -> Vec<Value> {
    let kubectl = fetched("FLUXGATE_KUBECTL", "kubectl/usr/bin/kubectl");
    let text = output_of(
        Command::new(kubectl)
            .arg("kustomize")
            .arg(deployed("kubernetes")),
    );
    dir.write("all.yaml", text);
    yaml(&dir.path("all.yaml"))
}

fn find<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let found = objects
        .iter()
        .find(|object| object["kind"] == kind && object["metadata"]["name"] == name);
    found.unwrap_or_else(|| panic!("no {kind} {name}"))
}

#[test]
fn the_manifests_match_the_schemas_of_kubernetes() {
    let dir = Dir::new();
    let objects = build(&dir);
    let mut validate = python_tool("kubernetes-validate");
    let validate = validate.arg("--strict").arg(dir.path("all.yaml"));
    let optional = deployed("kubernetes/optional/horizontalpodautoscaler.yaml");
    let report = output_of(validate.arg(optional));
    assert_eq!(
        report.matches(" passed for resource ").count(),
        objects.len() + 1,
        "{report}"
    );
    // There is no schema of the operator's kinds here.
    let monitor = &yaml(&deployed("kubernetes/optional/servicemonitor.yaml"))[0];
    let service = find(&objects, "Service", "fluxgate");
    assert_eq!(
        monitor["spec"]["selector"]["matchLabels"],
        service["metadata"]["labels"]
    );
    assert_eq!(
        monitor["spec"]["endpoints"][0]["port"],
        service["spec"]["ports"][0]["name"]
    );
}

#[test]
fn labels_ports_and_paths_match() {
    let objects = build(&Dir::new());
    let deployment = find(&objects, "Deployment", "fluxgate");
    let pod = &deployment["spec"]["template"];
    for (kind, pointer) in [
        ("Service", "/spec/selector"),
        ("PodDisruptionBudget", "/spec/selector/matchLabels"),
        ("NetworkPolicy", "/spec/podSelector/matchLabels"),
        ("Deployment", "/spec/selector/matchLabels"),
    ] {
        let labels = find(&objects, kind, "fluxgate").pointer(pointer);
        assert_eq!(labels, Some(&pod["metadata"]["labels"]), "{kind}");
    }
    let container = &pod["spec"]["containers"][0];
    let ports = container["ports"].as_array().unwrap();
    for port in find(&objects, "Service", "fluxgate")["spec"]["ports"]
        .as_array()
        .unwrap()
    {
        assert!(
            ports.iter().any(|open| open["name"] == port["targetPort"]),
            "{port}"
        );
    }

    let config = &find(&objects, "ConfigMap", "fluxgate-config")["data"]["fluxgate.yaml"];
    let config = config.as_str().unwrap();
    assert_valid(config);
    for port in ports {
        let open = format!(
            "{}: \"0.0.0.0:{}\"",
            port["name"].as_str().unwrap(),
            port["containerPort"]
        );
        assert!(config.contains(&open), "{open}");
    }
    // Longer than the probe takes to notice, and in all less than Kubernetes waits.
    assert!(
        config.contains("shutdown: { delay: 5s, grace: 25s }"),
        "{config}"
    );
    let readiness = &container["readinessProbe"];
    assert!(readiness["periodSeconds"].as_u64() < Some(5), "{readiness}");
    let wait = pod["spec"]["terminationGracePeriodSeconds"].as_u64();
    assert!(wait > Some(30), "{wait:?}");
    let rules = find(&objects, "ConfigMap", "fluxgate-rules")["data"]
        .as_object()
        .unwrap();
    for rules in rules.values() {
        assert_valid(rules.as_str().unwrap());
    }
    let mounts = container["volumeMounts"].as_array().unwrap();
    let mounted = |name: &str| -> &str {
        let mount = mounts.iter().find(|mount| mount["name"] == name).unwrap();
        mount["mountPath"].as_str().unwrap()
    };
    assert!(
        config.contains(&format!("dir: {}", mounted("rules"))),
        "{config}"
    );
    let file = format!("{}/fluxgate.yaml", mounted("config"));
    assert_eq!(container["args"][2], file.as_str());
    assert_eq!(
        config.matches(&format!("{}/", mounted("secrets"))).count(),
        3
    );
}

/// Creates the secret with a dry run.
#[test]
fn the_commands_of_the_guide_create_the_secret_of_the_config() {
    let objects = build(&Dir::new());
    let config = &find(&objects, "ConfigMap", "fluxgate-config")["data"]["fluxgate.yaml"];
    let secrets = docs::blocks("sh kubernetes");
    let secrets: Vec<_> = secrets.iter().flat_map(|block| block.runnable()).collect();
    assert_eq!(secrets.len(), 1, "{secrets:?}");
    let kubectl = fetched("FLUXGATE_KUBECTL", "kubectl/usr/bin/kubectl");
    let arguments = secrets[0].command.strip_prefix("kubectl ").unwrap();
    let dir = Dir::new();
    let files = arguments.split("--from-file=").skip(1);
    for file in files.map(str::trim) {
        dir.write(file, "x");
        let read = format!("/{file}");
        assert!(config.as_str().unwrap().contains(&read), "{file}");
    }
    let secret = output_of(
        Command::new(kubectl)
            .args(arguments.split(' '))
            .args(["--dry-run=client", "--output=json"])
            .current_dir(dir.path("")),
    );
    let secret: Value = serde_json::from_str(&secret).unwrap();
    let deployment = find(&objects, "Deployment", "fluxgate").to_string();
    let name = format!("\"secretName\":{}", secret["metadata"]["name"]);
    assert!(deployment.contains(&name), "{name} in {deployment}");
    assert_eq!(secret["data"].as_object().unwrap().len(), 3);
}
