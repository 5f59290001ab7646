//! The workflow for rules in a Git repository.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use fluxgate_core::yaml::{Node, Value};
use fluxgate_testkit::RedisServer;

use super::{example, text};
use crate::service::Service;
use crate::support::Dir;

/// Returns the value of a field.
fn get<'n>(node: &'n Node, name: &str) -> Option<&'n Node> {
    let Value::Map(pairs) = &node.value else {
        return None;
    };
    let mut pairs = pairs.iter();
    pairs
        .find(|(key, _)| key.as_text() == Some(name))
        .map(|(_, value)| value)
}

/// The workflow, and a runner for it.
struct Pipeline {
    workflow: Node,
    service: Service,
    _redis: RedisServer,
}

impl Pipeline {
    fn start() -> Self {
        let redis = RedisServer::start();
        let dir = Dir::new();
        let hash = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
        dir.write("tokens", format!("pipeline:admin:{hash}\n"));
        for folder in ["rules", "temp"] {
            fs::create_dir(dir.path(folder)).unwrap();
        }
        fs::copy(
            example("pipeline/rules/limits.yaml"),
            dir.path("rules/limits.yaml"),
        )
        .unwrap();
        let config = format!(
            "store: {{ redis: {{ url: \"{}\", deadline: 10s }} }}\nrules_from: {{ redis: {{}} }}\n\
             admin: {{ tokens_file: tokens, record: true }}\n",
            redis.url()
        );
        Self {
            workflow: Node::parse(&text("pipeline/github-actions.yaml")).unwrap(),
            service: Service::start_in(dir, &[], &config),
            _redis: redis,
        }
    }

    /// Runs the steps for an event, with a token, as a runner does: until one fails. Returns the
    /// output, and whether all succeeded.
    fn run(&self, event: &str, token: &str) -> (String, bool) {
        let job = get(&self.workflow, "jobs").and_then(|jobs| get(jobs, "rules"));
        let Value::List(steps) = &get(job.unwrap(), "steps").unwrap().value else {
            panic!("no steps");
        };
        let (mut printed, mut is_ok) = (String::new(), true);
        let mut ran = 0;
        for step in steps {
            let field = |name| get(step, name).and_then(Node::as_text);
            let is_due = match field("if") {
                Some("always()") => true,
                Some(condition) => {
                    let expected = format!("github.event_name == '{event}'");
                    assert!(
                        condition.starts_with("github.event_name == '"),
                        "{condition}"
                    );
                    is_ok && condition == expected
                }
                None => is_ok,
            };
            let Some(command) = field("run").filter(|_| is_due) else {
                continue;
            };
            let output = self.shell(command, token);
            printed += &String::from_utf8(output.stdout).unwrap();
            printed += &String::from_utf8(output.stderr).unwrap();
            is_ok &= output.status.success();
            ran += 1;
        }
        assert!(ran >= 2, "{printed}");
        (printed, is_ok)
    }

    /// Runs a command as a runner does.
    fn shell(&self, command: &str, token: &str) -> Output {
        let dir = &self.service.dir;
        let binary = Path::new(env!("CARGO_BIN_EXE_fluxgate")).parent().unwrap();
        let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
        Command::new("bash")
            .args(["-eo", "pipefail", "-c", command])
            .env("PATH", path)
            .env("RUNNER_TEMP", dir.path("temp"))
            .env(
                "FLUXGATE_URL",
                format!("http://{}", self.service.address("api")),
            )
            .env("FLUXGATE_TOKEN", token)
            .current_dir(dir.path(""))
            .output()
            .unwrap()
    }
}

#[test]
fn the_workflow_shows_and_applies_rules() {
    let pipeline = Pipeline::start();
    let (printed, is_ok) = pipeline.run("pull_request", "secret");
    assert!(is_ok, "{printed}");
    assert!(printed.contains("+ logins/per-address: added"), "{printed}");
    assert!(printed.contains("no trial: "), "{printed}");
    let (printed, is_ok) = pipeline.run("push", "secret");
    assert!(is_ok, "{printed}");
    assert!(
        printed.contains("+ api-limits/per-user: added"),
        "{printed}"
    );
    // Nothing more to do, in either.
    for (event, expected) in [("pull_request", ""), ("push", "no changes\n")] {
        let (printed, is_ok) = pipeline.run(event, "secret");
        assert_eq!((&*printed, is_ok), (expected, true));
    }
    // The token is gone from the runner.
    assert!(!pipeline.service.dir.path("temp/token").exists());
    // A fault, or a token without the right, fails the job.
    for event in ["pull_request", "push"] {
        let (printed, is_ok) = pipeline.run(event, "wrong");
        assert!(!is_ok && printed.contains(": 401: "), "{printed}");
    }
    pipeline
        .service
        .dir
        .write("rules/limits.yaml", "rule_sets: 7\n");
    for event in ["pull_request", "push"] {
        let (printed, is_ok) = pipeline.run(event, "secret");
        assert!(
            !is_ok && printed.contains("rules/limits.yaml:1:12: "),
            "{printed}"
        );
    }
    assert!(!pipeline.service.dir.path("temp/token").exists());
}
