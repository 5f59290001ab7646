//! The Grafana dashboard.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::support::{project_file, python};

/// `dashboards/fluxgate.json`.
pub(super) struct Dashboard(Value);

impl Dashboard {
    pub(super) fn read() -> Self {
        let text = fs::read_to_string(project_file("dashboards/fluxgate.json")).unwrap();
        Self(serde_json::from_str(&text).unwrap())
    }

    fn list(&self, pointer: &str) -> &Vec<Value> {
        let list = self.0.pointer(pointer).and_then(Value::as_array);
        list.unwrap_or_else(|| panic!("no list at {pointer}"))
    }

    /// Returns the panels without rows, which are only headings.
    fn panels(&self) -> impl Iterator<Item = &Value> {
        let panels = self.list("/panels").iter();
        panels.filter(|panel| panel["type"] != "row")
    }

    /// Returns the title and the queries of each panel.
    pub(super) fn queries(&self) -> Vec<(String, String)> {
        let mut queries = Vec::new();
        for panel in self.panels() {
            let title = panel["title"].as_str().unwrap();
            for target in panel["targets"].as_array().unwrap() {
                let query = target["expr"].as_str().unwrap();
                queries.push((title.to_owned(), query.to_owned()));
            }
        }
        queries
    }

    /// Returns the name and the query of each query variable.
    pub(super) fn query_variables(&self) -> Vec<(String, String)> {
        let variables = self.list("/templating/list").iter();
        let variables = variables.filter(|variable| variable["type"] == "query");
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        variables
            .map(|variable| (text(&variable["name"]), text(&variable["query"]["query"])))
            .collect()
    }

    /// Returns the queries of panels and variables.
    pub(super) fn all_queries(&self) -> Vec<String> {
        let panels = self.queries().into_iter();
        let variables = self.query_variables().into_iter();
        panels.chain(variables).map(|(_, query)| query).collect()
    }
}

#[test]
fn panels_have_unique_ids_and_do_not_overlap() {
    let dashboard = Dashboard::read();
    let mut ids = BTreeSet::new();
    let mut taken = BTreeSet::new();
    for panel in dashboard.list("/panels") {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
        let side = |name: &str| panel["gridPos"][name].as_u64().unwrap();
        let (width, height) = (side("w"), side("h"));
        assert!(
            width > 0 && height > 0 && side("x") + width <= 24,
            "{panel}"
        );
        for x in side("x")..side("x") + width {
            for y in side("y")..side("y") + height {
                assert!(taken.insert((x, y)), "{x},{y} is taken: {panel}");
            }
        }
    }
}

#[test]
fn every_panel_has_a_description_and_uses_the_selected_data_source() {
    let dashboard = Dashboard::read();
    let source = serde_json::json!({"type": "prometheus", "uid": "${datasource}"});
    let variables = dashboard.list("/templating/list");
    assert_eq!(variables[0]["type"], "datasource");
    assert_eq!(variables[0]["name"], "datasource");
    for variable in &variables[1..] {
        assert_eq!(variable["datasource"], source, "{variable}");
    }
    let mut count = 0;
    for panel in dashboard.panels() {
        let text = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
        assert!(
            text(&panel["title"]) && text(&panel["description"]),
            "{panel}"
        );
        assert_eq!(panel["datasource"], source, "{panel}");
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{panel}");
        for target in targets {
            assert_eq!(target["datasource"], source, "{panel}");
            assert!(text(&target["legendFormat"]), "{panel}");
            let query = target["expr"].as_str().unwrap();
            for filter in [r#"job=~"$job""#, r#"instance=~"$instance""#] {
                assert!(query.contains(filter), "{query}");
            }
        }
        // Panels of states map values to names and need no unit.
        let defaults = &panel["fieldConfig"]["defaults"];
        let unit = text(&defaults["unit"]) || text(&panel["options"]["yAxis"]["unit"]);
        assert!(unit || defaults["mappings"].is_array(), "{panel}");
        count += 1;
    }
    assert!(count >= 12);
}

#[test]
fn grafana_accepts_every_field() {
    let script = project_file("crates/fluxgate/tests/it/dashboards/grafana_round_trip.py");
    let output = Command::new(python())
        .arg(script)
        .arg(project_file("dashboards/fluxgate.json"))
        .output()
        .unwrap();
    let problems = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success() && problems.is_empty(), "{problems}");
}
