//! The dashboard and the alarms, asked of a real Prometheus that watches real
//! services, in good days and in bad ones.

use std::collections::BTreeSet;

use fluxgate_testkit::wait_until;

mod dashboard;
mod fleet;
mod prometheus;
mod rules;

use dashboard::Dashboard;
use fleet::Fleet;
use prometheus::Prometheus;

/// What no fault made here can raise: nothing is dropped.
const ZERO_IS_ENOUGH: [&str; 1] = ["Dropped lines and spans over 5 min"];

/// The alarm that looks at times.
const SLOW: &str = "FluxGateSlow";

/// What the panels are about that show nothing on a good day.
const SIGNS_OF_TROUBLE: [&str; 6] = [
    "5xx",
    "Breaker",
    "Fail-closed",
    "Fallback",
    "Refused reloads",
    "Store errors",
];

#[test]
fn every_panel_and_every_alarm_has_something_to_show() {
    let mut fleet = Fleet::start();
    let prometheus = Prometheus::start(&fleet.addresses());
    let dashboard = Dashboard::read();
    let mut panels = Panels(dashboard.queries());
    let values = variables(&prometheus, &dashboard, &fleet);
    wait_until("every panel that needs no fault", || {
        fleet.traffic();
        let is_faulty =
            |(title, _): &(String, _)| SIGNS_OF_TROUBLE.iter().any(|sign| title.starts_with(sign));
        panels.left(&prometheus, &values).iter().all(is_faulty)
    });
    let all = prometheus.alarms();
    for (name, query) in &all {
        // How fast Redis is reached is this machine's business, and whoever else keeps
        // it busy; in memory nobody is waited for.
        let query = match name.as_str() {
            SLOW => format!("({query}) and on (instance) fluxgate_memory_store_keys"),
            _ => query.clone(),
        };
        // What is seen in a hurry is not always so: a machine that stands still for a
        // moment looks like a service that is down, and of few decisions one that was
        // held up is one in a hundred. It passes, as trouble does not.
        wait_until(&format!("{name} is silent on a good day"), || {
            fleet.traffic();
            prometheus.query(&query).is_empty()
        });
    }

    let mut alarms = Alarms::new(&prometheus, all);
    fleet.slow_store();
    wait_until("the alarm of a slow store", || {
        fleet.traffic();
        !alarms.left().contains(SLOW)
    });
    fleet.everything_else();
    prometheus.watch(&fleet.addresses());
    wait_until("every alarm", || {
        fleet.traffic();
        alarms.left().is_empty()
    });
    let values = variables(&prometheus, &dashboard, &fleet);
    wait_until("every panel", || {
        fleet.traffic();
        panels.left(&prometheus, &values).is_empty()
    });
    wait_until("what is not waited for fires", || {
        let firing = prometheus.active_alarms("firing");
        let wanted = ["FluxGateFailClosed", "FluxGateFailOpen"];
        wanted.iter().all(|name| firing.contains(*name))
    });

    let exposed = fleet.metric_names();
    for query in dashboard.all_queries().iter().chain(alarms.queries()) {
        for name in names(query) {
            assert!(exposed.contains(&name), "nobody exposes {name}: {query}");
        }
    }
}

/// The titles and queries of panels that have not shown anything yet.
struct Panels(Vec<(String, String)>);

impl Panels {
    /// Those that still do not, with these variables.
    fn left(
        &mut self,
        prometheus: &Prometheus,
        values: &[(String, String)],
    ) -> &[(String, String)] {
        let before = self.0.len();
        self.0.retain(|(title, query)| {
            let zero = ZERO_IS_ENOUGH.contains(&title.as_str());
            let samples = prometheus.query(&substituted(query, values));
            !samples.iter().any(|value| *value > 0.0 || zero)
        });
        if self.0.len() < before {
            println!("panels that show nothing yet: {:#?}", self.0);
        }
        &self.0
    }
}

/// Alarms that have not been raised yet.
struct Alarms<'a> {
    prometheus: &'a Prometheus,
    all: Vec<(String, String)>,
    left: BTreeSet<String>,
}

impl<'a> Alarms<'a> {
    fn new(prometheus: &'a Prometheus, all: Vec<(String, String)>) -> Self {
        let left = all.iter().map(|(name, _)| name.clone()).collect();
        Self {
            prometheus,
            all,
            left,
        }
    }

    /// Those that neither Prometheus has raised nor a query has found, until now.
    fn left(&mut self) -> &BTreeSet<String> {
        let mut active = self.prometheus.active_alarms("pending");
        active.extend(self.prometheus.active_alarms("firing"));
        for (name, query) in &self.all {
            // There was no service in 1970.
            let seen = match name.as_str() {
                "FluxGateAbsent" => !self.prometheus.query_at(query, "1").is_empty(),
                _ => active.contains(name) && !self.prometheus.query(query).is_empty(),
            };
            if seen && self.left.remove(name) {
                println!("alarms that were not raised yet: {:#?}", self.left);
            }
        }
        &self.left
    }

    fn queries(&self) -> impl Iterator<Item = &String> {
        self.all.iter().map(|(_, query)| query)
    }
}

/// What Grafana puts in place of the variables when all values are chosen.
fn variables(
    prometheus: &Prometheus,
    dashboard: &Dashboard,
    fleet: &Fleet,
) -> Vec<(String, String)> {
    let mut variables = vec![("$__rate_interval".to_owned(), "1m".to_owned())];
    for (name, query) in dashboard.query_variables() {
        let query = substituted(&query, &variables);
        let (metric, label) = label_values(&query);
        let expected = if label == "job" {
            1
        } else {
            fleet.addresses().len()
        };
        wait_until("the values of a variable", || {
            prometheus.label_values(metric, label).len() == expected
        });
        let values = prometheus.label_values(metric, label);
        let values: Vec<_> = values.iter().map(|value| escaped(value)).collect();
        variables.push((format!("${name}"), format!("({})", values.join("|"))));
    }
    variables
}

/// `label_values(METRIC, LABEL)`.
fn label_values(query: &str) -> (&str, &str) {
    let inner = query
        .strip_prefix("label_values(")
        .and_then(|rest| rest.strip_suffix(')'));
    let inner = inner.unwrap_or_else(|| panic!("{query}"));
    inner.rsplit_once(", ").unwrap()
}

/// A value in a regular expression in a string.
fn escaped(value: &str) -> String {
    value.replace('.', "\\\\.")
}

fn substituted(query: &str, variables: &[(String, String)]) -> String {
    let mut query = query.to_owned();
    for (name, value) in variables {
        query = query.replace(name, value);
    }
    assert!(!query.contains('$'), "an unknown variable: {query}");
    query
}

/// The metrics of ours that a query names.
fn names(query: &str) -> Vec<String> {
    let words = query.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let ours = words.filter(|word| word.starts_with("fluxgate_") || word.starts_with("process_"));
    ours.map(|word| word.trim_end_matches("_bucket").to_owned())
        .collect()
}
