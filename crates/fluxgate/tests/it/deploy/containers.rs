//! The image and the compose file.

use std::fs;
use std::process::Command;

use fluxgate_testkit::RedisServer;

use super::{assert_valid, deployed, output_of, python_tool, yaml};
use crate::docs;
use crate::service::Service;
use crate::support::{Dir, fetched, project_file};

fn read(path: &str) -> String {
    fs::read_to_string(deployed(path)).unwrap()
}

#[test]
fn the_image_is_built_from_files_that_exist() {
    let mut hadolint = python_tool("hadolint");
    let mut hadolint = hadolint.args(["--no-color", "--failure-threshold", "style"]);
    hadolint = hadolint.arg(deployed("docker/Dockerfile"));
    assert_eq!(output_of(hadolint), "");

    let text = read("docker/Dockerfile");
    // The health check asks the service that the image runs.
    let arguments = |after: &str| -> Vec<String> {
        let (_, rest) = text.rsplit_once(after).unwrap();
        serde_json::from_str(rest.lines().next().unwrap()).unwrap()
    };
    let (check, start) = (arguments("    CMD "), arguments("\nCMD "));
    assert_eq!((&*check[1], &*start[0]), ("health", "run"));
    assert_eq!(check[0], arguments("ENTRYPOINT ")[0]);
    assert_eq!(check[2..], start[1..]);

    let ignored = fs::read_to_string(project_file(".dockerignore")).unwrap();
    let mut copied = 0;
    let copies = text.lines().filter_map(|line| line.strip_prefix("COPY "));
    for copy in copies.filter(|copy| !copy.starts_with("--from=")) {
        let (sources, _) = copy.rsplit_once(' ').unwrap();
        for source in sources.split(' ') {
            assert!(project_file(source).exists(), "{source}");
            let is_included = ignored.lines().any(|line| line == format!("!{source}"));
            assert!(is_included, "{source} is ignored");
            copied += 1;
        }
    }
    assert_eq!(copied, 4);
    let manifest = fs::read_to_string(project_file("Cargo.toml")).unwrap();
    let members = manifest.lines().find(|line| line.starts_with("members = "));
    assert_eq!(
        members,
        Some(r#"members = ["crates/*", "examples/hash-map-store"]"#),
        "the Dockerfile must copy all members"
    );
    let minor = |text: &str, before: &str| -> u32 {
        let (_, rest) = text.split_once(before).unwrap();
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap()
    };
    assert!(minor(&text, "FROM rust:1.") >= minor(&manifest, "rust-version = \"1."));
}

#[test]
fn the_compose_file_is_valid_and_its_mounts_exist() {
    let path = deployed("docker/compose.yaml");
    let mut check = python_tool("check-jsonschema");
    let check = check.args(["--builtin-schema", "vendor.compose-spec"]);
    output_of(check.arg(&path));

    let services = yaml(&path)[0]["services"].take();
    let mut mounted = Vec::new();
    for service in services.as_object().unwrap().values() {
        for volume in service["volumes"].as_array().into_iter().flatten() {
            let mut parts = volume.as_str().unwrap().split(':');
            let (source, target) = (parts.next().unwrap(), parts.next().unwrap());
            if source.starts_with('.') {
                assert!(deployed("docker").join(source).exists(), "{source}");
                mounted.push((source.to_owned(), target.to_owned()));
            }
        }
    }
    let target = |source: &str| -> &str {
        let found = mounted.iter().find(|(known, _)| known == source);
        &found.unwrap_or_else(|| panic!("{source} in {mounted:?}")).1
    };
    let dashboards = &yaml(&deployed("docker/grafana/dashboards/fluxgate.yaml"))[0];
    let folder = dashboards["providers"][0]["options"]["path"]
        .as_str()
        .unwrap();
    let dashboard = format!("{folder}/fluxgate.json");
    assert_eq!(target("../../dashboards/fluxgate.json"), dashboard);
    let home = "GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH";
    assert_eq!(services["grafana"]["environment"][home], dashboard.as_str());
    let source = &yaml(&deployed("docker/grafana/datasources/prometheus.yaml"))[0];
    assert_eq!(source["datasources"][0]["url"], "http://prometheus:9090");

    // In the same directory as its alerts, as mounted.
    assert_eq!(
        target("../../dashboards/alerts.yml"),
        "/etc/prometheus/alerts.yml"
    );
    let dir = Dir::new();
    dir.write("prometheus.yml", read("docker/prometheus.yml"));
    dir.write(
        "alerts.yml",
        fs::read(project_file("dashboards/alerts.yml")).unwrap(),
    );
    let promtool = fetched("FLUXGATE_PROMTOOL", "promtool/usr/bin/promtool");
    let mut promtool = Command::new(promtool);
    output_of(
        promtool
            .args(["check", "config"])
            .arg(dir.path("prometheus.yml")),
    );
}

#[test]
fn the_service_runs_with_the_config_of_the_compose_file() {
    assert_valid(&read("docker/fluxgate.yaml"));
    assert_valid(&read("docker/rules.d/api-limits.yaml"));
    let redis = RedisServer::start();
    let dir = Dir::new();
    dir.write("fluxgate.yaml", read("docker/fluxgate.yaml"));
    let rules = deployed("docker/rules.d");
    let tokens = deployed("docker/tokens");
    let mut settings = vec![
        format!("store.redis.url='{}'", redis.url()),
        format!("admin.tokens_file='{}'", tokens.display()),
        format!("rules_from.dir='{}'", rules.display()),
    ];
    for listener in ["api", "grpc", "resp"] {
        settings.push(format!("listen.{listener}='127.0.0.1:0'"));
    }
    settings.push("listen.gateway=null".to_owned());
    let mut arguments = vec!["run", "--config", "fluxgate.yaml"];
    for setting in &settings {
        arguments.extend(["--set", setting]);
    }
    let service = Service::run_in(dir, &arguments, 3);
    let body = r#"{"user":"ann","path":"/api/x"}"#;
    let answer = service.http().post("/v1/check", body);
    assert!(answer.body.contains(r#""rule":"per-user""#), "{answer:?}");

    // The console works with the token that the file names.
    let compose = read("docker/compose.yaml");
    let (_, token) = compose.split_once("console/ with the token ").unwrap();
    let token = format!("Bearer {}", token.lines().next().unwrap());
    for path in ["/v1/rule_sets", "/v1/recent"] {
        assert_eq!(service.http().get(path).status, 401, "{path}");
        let answer = service
            .http()
            .request("GET", path, &[("authorization", &token)], "");
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
    }
}

/// They need Docker; only the files that they name are checked.
#[test]
fn the_commands_of_the_guide_name_files_that_exist() {
    for block in docs::blocks("sh docker") {
        assert!(block.runnable().is_empty(), "{block}: run them");
        let words = block.text.split_whitespace();
        let files: Vec<_> = words.filter(|word| word.contains('/')).collect();
        assert!(!files.is_empty(), "{block}");
        for file in files {
            assert!(project_file(file).is_file(), "{block}: {file}");
        }
    }
}
