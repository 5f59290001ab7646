//! A Prometheus with the scrape config and the alerts of the repository.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;

use fluxgate_testkit::ports::{self, Port};
use fluxgate_testkit::{Http, Program, wait_until};
use serde_json::Value;

use crate::support::{Dir, fetched, project_file};

/// A running Prometheus.
pub(super) struct Prometheus {
    program: Program,
    dir: Dir,
    port: Port,
}

impl Prometheus {
    /// Starts Prometheus, which scrapes these targets.
    pub(super) fn start(targets: &[SocketAddr]) -> Self {
        let dir = Dir::new();
        let alerts = fs::read(project_file("dashboards/alerts.yml")).unwrap();
        dir.write("alerts.yml", alerts);
        dir.write("prometheus.yml", config(targets));
        let port = ports::free();
        // The package of promtool contains it.
        let promtool = fetched("FLUXGATE_PROMTOOL", "promtool/usr/bin/promtool");
        let binary = promtool.with_file_name("prometheus");
        let program = Program::start(binary, |command| {
            command.current_dir(dir.path(""));
            command.args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"]);
            command.arg(format!("--web.listen-address={}", port.addr()));
        });
        let prometheus = Self { program, dir, port };
        wait_until("Prometheus is ready", || {
            if let Some(status) = prometheus.program.ended() {
                let lines = prometheus.program.lines();
                panic!("Prometheus ended with {status}: {lines:#?}");
            }
            let answer = prometheus.http().try_request("GET", "/-/ready", &[], "");
            answer.is_ok_and(|answer| answer.status == 200)
        });
        prometheus
    }

    /// Scrapes these targets instead.
    pub(super) fn watch(&self, targets: &[SocketAddr]) {
        self.dir.write("prometheus.yml", config(targets));
        self.program.signal("HUP");
        wait_until("Prometheus has reloaded its config", || {
            let active = self.get("/api/v1/targets?state=active");
            active["activeTargets"].as_array().unwrap().len() == targets.len()
        });
    }

    /// Returns the finite values of a query.
    pub(super) fn query(&self, query: &str) -> Vec<f64> {
        self.values(&format!("/api/v1/query?query={}", encoded(query)))
    }

    /// Returns the finite values of a query at a time in seconds since 1970.
    pub(super) fn query_at(&self, query: &str, time: &str) -> Vec<f64> {
        self.values(&format!(
            "/api/v1/query?time={time}&query={}",
            encoded(query)
        ))
    }

    fn values(&self, path: &str) -> Vec<f64> {
        let data = self.get(path);
        assert_eq!(data["resultType"], "vector", "{path}");
        let samples = data["result"].as_array().unwrap().iter();
        let values = samples.map(|sample| sample["value"][1].as_str().unwrap().parse().unwrap());
        values.filter(|value: &f64| value.is_finite()).collect()
    }

    /// Returns the values of a label of the matching series.
    pub(super) fn label_values(&self, series: &str, label: &str) -> Vec<String> {
        let series = encoded(series);
        let data = self.get(&format!(
            "/api/v1/label/{label}/values?match%5B%5D={series}"
        ));
        serde_json::from_value(data).unwrap()
    }

    /// Returns the name and the query of every alert.
    pub(super) fn alerts(&self) -> Vec<(String, String)> {
        let data = self.get("/api/v1/rules?type=alert");
        let groups = data["groups"].as_array().unwrap().iter();
        let rules = groups.flat_map(|group| group["rules"].as_array().unwrap());
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        rules
            .map(|rule| (text(&rule["name"]), text(&rule["query"])))
            .collect()
    }

    /// Returns the names of the alerts in a state, `pending` or `firing`.
    pub(super) fn active_alerts(&self, state: &str) -> BTreeSet<String> {
        let data = self.get("/api/v1/alerts");
        let alerts = data["alerts"].as_array().unwrap().iter();
        let alerts = alerts.filter(|alert| alert["state"] == state);
        let name = |alert: &Value| alert["labels"]["alertname"].as_str().unwrap().to_owned();
        alerts.map(name).collect()
    }

    fn get(&self, path: &str) -> Value {
        let answer = self.http().get(path);
        let mut body: Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(body["status"], "success", "{path}: {body}");
        body["data"].take()
    }

    fn http(&self) -> Http {
        Http::new(self.port.addr())
    }
}

/// Returns the repository's config with other targets and shorter intervals.
fn config(targets: &[SocketAddr]) -> String {
    let text = fs::read_to_string(project_file("dashboards/prometheus.yml")).unwrap();
    let targets: Vec<_> = targets
        .iter()
        .map(|target| format!("\"{target}\""))
        .collect();
    let mut config = text;
    for (old, new) in [
        ("\"127.0.0.1:8081\"", targets.join(", ").as_str()),
        ("scrape_interval: 15s", "scrape_interval: 200ms"),
        ("evaluation_interval: 15s", "evaluation_interval: 200ms"),
    ] {
        assert_eq!(config.matches(old).count(), 1, "{old} in {config}");
        config = config.replace(old, new);
    }
    config
}

/// Encodes a text for a query string.
fn encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' | b'.' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}
