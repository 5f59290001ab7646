//! A Prometheus with the scrape config and the alarms of the repository.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;

use fluxgate_testkit::ports::{self, Port};
use fluxgate_testkit::{Http, Program, wait_until};
use serde_json::Value;

use crate::support::{Dir, fetched, project_file};

/// A running one.
pub(super) struct Prometheus {
    program: Program,
    dir: Dir,
    port: Port,
}

impl Prometheus {
    /// Watches these services.
    pub(super) fn start(targets: &[SocketAddr]) -> Self {
        let dir = Dir::new();
        let alerts = fs::read(project_file("dashboards/alerts.yml")).unwrap();
        dir.write("alerts.yml", alerts);
        dir.write("prometheus.yml", config(targets));
        let port = ports::free();
        // They come in one package.
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
                panic!("it ended with {status}: {:#?}", prometheus.program.lines());
            }
            let answer = prometheus.http().try_request("GET", "/-/ready", &[], "");
            answer.is_ok_and(|answer| answer.status == 200)
        });
        prometheus
    }

    /// Watches these services instead.
    pub(super) fn watch(&self, targets: &[SocketAddr]) {
        self.dir.write("prometheus.yml", config(targets));
        self.program.signal("HUP");
        wait_until("Prometheus has read its config again", || {
            let active = self.get("/api/v1/targets?state=active");
            active["activeTargets"].as_array().unwrap().len() == targets.len()
        });
    }

    /// The values that a query finds now, without those that are no numbers.
    pub(super) fn query(&self, query: &str) -> Vec<f64> {
        self.values(&format!("/api/v1/query?query={}", encoded(query)))
    }

    /// The same at another time, in seconds since 1970.
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

    /// The values of a label of the series that match.
    pub(super) fn label_values(&self, series: &str, label: &str) -> Vec<String> {
        let series = encoded(series);
        let data = self.get(&format!(
            "/api/v1/label/{label}/values?match%5B%5D={series}"
        ));
        serde_json::from_value(data).unwrap()
    }

    /// The name and the query of every alarm.
    pub(super) fn alarms(&self) -> Vec<(String, String)> {
        let data = self.get("/api/v1/rules?type=alert");
        let groups = data["groups"].as_array().unwrap().iter();
        let rules = groups.flat_map(|group| group["rules"].as_array().unwrap());
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        rules
            .map(|rule| (text(&rule["name"]), text(&rule["query"])))
            .collect()
    }

    /// The names of the alarms in this state, `pending` or `firing`.
    pub(super) fn active_alarms(&self, state: &str) -> BTreeSet<String> {
        let data = self.get("/api/v1/alerts");
        let alarms = data["alerts"].as_array().unwrap().iter();
        let alarms = alarms.filter(|alarm| alarm["state"] == state);
        let name = |alarm: &Value| alarm["labels"]["alertname"].as_str().unwrap().to_owned();
        alarms.map(name).collect()
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

/// The repository's config with other targets, and in a hurry.
fn config(targets: &[SocketAddr]) -> String {
    let text = fs::read_to_string(project_file("dashboards/prometheus.yml")).unwrap();
    let targets: Vec<_> = targets
        .iter()
        .map(|target| format!("\"{target}\""))
        .collect();
    let mut changed = text;
    for (old, new) in [
        ("\"127.0.0.1:8081\"", targets.join(", ").as_str()),
        ("scrape_interval: 15s", "scrape_interval: 200ms"),
        ("evaluation_interval: 15s", "evaluation_interval: 200ms"),
    ] {
        assert_eq!(changed.matches(old).count(), 1, "{old} in {changed}");
        changed = changed.replace(old, new);
    }
    changed
}

/// A text in a query string.
fn encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' | b'.' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}
