//! Metrics, logs and traces of the service.

use std::collections::BTreeMap;

use fluxgate_testkit::Answer;
use serde_json::Value;

use super::Service;

mod log_floods;
mod logs;
mod metrics;
mod stderr;
mod store_outage;
mod traces;

/// The metrics of a service, by name with labels.
pub(crate) struct Metrics(BTreeMap<String, String>);

impl Metrics {
    pub(crate) fn of(service: &Service) -> Self {
        let answer = service.http().get("/metrics");
        assert_eq!(answer.status, 200);
        let samples = answer.body.lines().filter(|line| !line.starts_with('#'));
        let samples = samples.map(|line| {
            let (name, value) = line.rsplit_once(' ').unwrap();
            (name.to_owned(), value.to_owned())
        });
        Self(samples.collect())
    }

    /// Returns the value of a sample that must exist.
    #[track_caller]
    pub(crate) fn get(&self, sample: &str) -> u64 {
        let value = self.0.get(sample);
        let value = value.unwrap_or_else(|| panic!("no {sample} in {:#?}", self.0));
        value.parse().unwrap_or_else(|_| panic!("{sample} {value}"))
    }

    /// Returns the samples that start with `start` and are not 0.
    fn all(&self, start: &str) -> Vec<(&str, u64)> {
        let samples = self.0.iter();
        let samples = samples.filter(|(name, _)| name.starts_with(start));
        let samples = samples.map(|(name, value)| (&**name, value.parse().unwrap()));
        samples.filter(|(_, value)| *value > 0).collect()
    }

    pub(crate) fn sum(&self, start: &str) -> u64 {
        self.all(start).iter().map(|(_, value)| value).sum()
    }
}

/// Returns the log so far. Each line must be an object.
#[track_caller]
fn log_of(service: &Service) -> Vec<Value> {
    objects(&service.program.lines())
}

#[track_caller]
fn objects(lines: &[String]) -> Vec<Value> {
    let object = |line: &String| -> Value {
        let value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(Value::is_object(&value), "{line}");
        value
    };
    lines.iter().map(object).collect()
}

fn with_message(lines: &[Value], message: &str) -> Vec<Value> {
    let matching = lines.iter().filter(|line| line["message"] == message);
    matching.cloned().collect()
}

fn check(service: &Service, headers: &[(&str, &str)], body: &str) -> Answer {
    let answer = service.http().request("POST", "/v1/check", headers, body);
    assert_eq!(answer.status, 200, "{answer:?}");
    answer
}

/// Ends the service and returns its whole log.
fn end(service: &Service) -> Vec<Value> {
    service.program.signal("TERM");
    assert!(service.program.wait().success());
    log_of(service)
}
