//! The dashboard and the alerts, evaluated by a real Prometheus on real services, healthy
//! and failing.

use std::collections::BTreeSet;

use fluxgate_testkit::wait_until;

mod alerts;
mod dashboard;
mod fleet;
mod prometheus;

use dashboard::Dashboard;
use fleet::Fleet;
use prometheus::Prometheus;

/// Panels that may show 0, because no fault of this test raises them.
const MAY_BE_ZERO: [&str; 4] = [
    "Dropped lines and spans over 5 min",
    "Expired holds and late settlements over 5 min",
    "Lost lines of the access log over 5 min",
    "Lost records and events over 5 min",
];

/// The alert on the duration of decisions.
const SLOW: &str = "FluxGateSlow";

/// The titles of panels that are empty while all services are healthy.
const FAULT_PANELS: [&str; 10] = [
    "5xx",
    "Breaker",
    "Ejections",
    "Fail-closed",
    "Fallback",
    "Failed reloads",
    "Record of what happened",
    "Store errors",
    "Undelivered events",
    "Waiting to be recorded",
];

#[test]
fn every_panel_shows_data_and_every_alert_is_raised() {
    let mut fleet = Fleet::start();
    let prometheus = Prometheus::start(&fleet.addresses());
    let dashboard = Dashboard::read();
    let mut panels = Panels(dashboard.queries());
    let values = variables(&prometheus, &dashboard, &fleet);
    wait_until("every panel that needs no fault shows data", || {
        fleet.traffic();
        let needs_fault =
            |(title, _): &(String, _)| FAULT_PANELS.iter().any(|start| title.starts_with(start));
        panels.empty(&prometheus, &values).iter().all(needs_fault)
    });
    let all = prometheus.alerts();
    for (name, query) in &all {
        // Calls to Redis may be slow on a busy machine, so only services in memory count.
        let query = match name.as_str() {
            SLOW => format!("({query}) and on (instance) fluxgate_memory_store_keys"),
            _ => query.clone(),
        };
        // An alert may be active for a moment: a stalled machine looks like a dead service,
        // and one slow decision of few is one percent. So this waits until it is inactive.
        wait_until(&format!("{name} is inactive"), || {
            fleet.traffic();
            if name == SLOW {
                fleet.quick_decisions();
            }
            prometheus.query(&query).is_empty()
        });
    }

    let mut alerts = Alerts::new(&prometheus, all);
    fleet.slow_store();
    wait_until("the alert of a slow store", || {
        fleet.traffic();
        !alerts.not_raised().contains(SLOW)
    });
    fleet.fail();
    prometheus.watch(&fleet.addresses());
    wait_until("every alert is raised", || {
        fleet.traffic();
        alerts.not_raised().is_empty()
    });
    let values = variables(&prometheus, &dashboard, &fleet);
    wait_until("every panel shows data", || {
        fleet.traffic();
        panels.empty(&prometheus, &values).is_empty()
    });
    wait_until("alerts without a delay fire", || {
        let firing = prometheus.active_alerts("firing");
        let expected = ["FluxGateFailClosed", "FluxGateFailOpen"];
        expected.iter().all(|name| firing.contains(*name))
    });

    let exposed = fleet.metric_names();
    for query in dashboard.all_queries().iter().chain(alerts.queries()) {
        for name in names(query) {
            assert!(
                exposed.contains(&name),
                "no service exposes {name}: {query}"
            );
        }
    }
}

/// The titles and queries of panels that have not shown data yet.
struct Panels(Vec<(String, String)>);

impl Panels {
    /// Evaluates the panels. Returns those that have never shown data.
    fn empty(
        &mut self,
        prometheus: &Prometheus,
        values: &[(String, String)],
    ) -> &[(String, String)] {
        let before = self.0.len();
        self.0.retain(|(title, query)| {
            let may_be_zero = MAY_BE_ZERO.contains(&title.as_str());
            let samples = prometheus.query(&substituted(query, values));
            !samples.iter().any(|value| *value > 0.0 || may_be_zero)
        });
        if self.0.len() < before {
            println!("empty panels: {:#?}", self.0);
        }
        &self.0
    }
}

/// All alerts, and those that have not been raised yet.
struct Alerts<'a> {
    prometheus: &'a Prometheus,
    all: Vec<(String, String)>,
    not_raised: BTreeSet<String>,
}

impl<'a> Alerts<'a> {
    fn new(prometheus: &'a Prometheus, all: Vec<(String, String)>) -> Self {
        let not_raised = all.iter().map(|(name, _)| name.clone()).collect();
        Self {
            prometheus,
            all,
            not_raised,
        }
    }

    /// Evaluates the alerts. Returns those that have never been raised.
    fn not_raised(&mut self) -> &BTreeSet<String> {
        let mut active = self.prometheus.active_alerts("pending");
        active.extend(self.prometheus.active_alerts("firing"));
        for (name, query) in &self.all {
            // There was no service in 1970.
            let is_raised = match name.as_str() {
                "FluxGateAbsent" => !self.prometheus.query_at(query, "1").is_empty(),
                _ => active.contains(name) && !self.prometheus.query(query).is_empty(),
            };
            if is_raised && self.not_raised.remove(name) {
                println!("alerts not raised yet: {:#?}", self.not_raised);
            }
        }
        &self.not_raised
    }

    fn queries(&self) -> impl Iterator<Item = &String> {
        self.all.iter().map(|(_, query)| query)
    }
}

/// Returns the values that Grafana inserts for the variables when all are selected.
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

/// Parses `label_values(METRIC, LABEL)`.
fn label_values(query: &str) -> (&str, &str) {
    let inner = query
        .strip_prefix("label_values(")
        .and_then(|rest| rest.strip_suffix(')'));
    let inner = inner.unwrap_or_else(|| panic!("{query}"));
    inner.rsplit_once(", ").unwrap()
}

/// Escapes a value for a regular expression in a string.
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

/// Returns the metrics of the service that a query names.
fn names(query: &str) -> Vec<String> {
    let words = query.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let ours = words.filter(|word| word.starts_with("fluxgate_") || word.starts_with("process_"));
    ours.map(|word| word.trim_end_matches("_bucket").to_owned())
        .collect()
}
