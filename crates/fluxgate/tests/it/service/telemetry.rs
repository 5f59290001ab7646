//! What the service tells of itself.

use std::collections::BTreeMap;

use fluxgate_testkit::Answer;
use serde_json::Value;

use super::Service;

mod logs;
mod metrics;
mod noise;
mod stderr;
mod store;
mod traces;

/// The metrics of a service, by name and labels as they are written.
pub(super) struct Metrics(BTreeMap<String, String>);

impl Metrics {
    pub(super) fn of(service: &Service) -> Self {
        let answer = service.http().get("/metrics");
        assert_eq!(answer.status, 200);
        let samples = answer.body.lines().filter(|line| !line.starts_with('#'));
        let samples = samples.map(|line| {
            let (name, value) = line.rsplit_once(' ').unwrap();
            (name.to_owned(), value.to_owned())
        });
        Self(samples.collect())
    }

    /// A number that is there.
    #[track_caller]
    fn get(&self, sample: &str) -> u64 {
        let value = self.0.get(sample);
        let value = value.unwrap_or_else(|| panic!("no {sample} in {:#?}", self.0));
        value.parse().unwrap_or_else(|_| panic!("{sample} {value}"))
    }

    /// All that begin so and are not 0.
    fn all(&self, start: &str) -> Vec<(&str, u64)> {
        let samples = self.0.iter();
        let samples = samples.filter(|(name, _)| name.starts_with(start));
        let samples = samples.map(|(name, value)| (&**name, value.parse().unwrap()));
        samples.filter(|(_, value)| *value > 0).collect()
    }

    pub(super) fn sum(&self, start: &str) -> u64 {
        self.all(start).iter().map(|(_, value)| value).sum()
    }
}

/// What was logged so far; each line must be an object.
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

/// The lines with this message.
fn with_message(lines: &[Value], message: &str) -> Vec<Value> {
    let wanted = lines.iter().filter(|line| line["message"] == message);
    wanted.cloned().collect()
}

/// A check with headers.
fn check(service: &Service, headers: &[(&str, &str)], body: &str) -> Answer {
    let answer = service.http().request("POST", "/v1/check", headers, body);
    assert_eq!(answer.status, 200, "{answer:?}");
    answer
}

/// Tells the service to end, waits, and gives everything that it logged.
fn end(service: &Service) -> Vec<Value> {
    service.program.signal("TERM");
    assert!(service.program.wait().success());
    let mut before = usize::MAX;
    // The pipe is empty when two looks in a row find the same.
    fluxgate_testkit::wait_until("all of the log is read", || {
        std::mem::replace(&mut before, service.program.lines().len()) == before
    });
    log_of(service)
}
