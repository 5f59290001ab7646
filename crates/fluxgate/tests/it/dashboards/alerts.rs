//! The config and the alerts of Prometheus, checked by promtool.

use std::fs;
use std::process::Command;

use crate::support::{fetched, project_file};

/// Returns the output of `promtool`, which must succeed.
#[track_caller]
fn promtool(arguments: &[&str], file: &str) -> String {
    let output = Command::new(fetched("FLUXGATE_PROMTOOL", "promtool/usr/bin/promtool"))
        .args(arguments)
        .arg(project_file("dashboards").join(file))
        .output()
        .unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success(), "{text}");
    text
}

#[test]
fn promtool_accepts_the_config_and_the_alerts() {
    promtool(&["check", "config"], "prometheus.yml");
    let output = promtool(&["check", "rules"], "alerts.yml");
    let expected = format!("{} rules found", alerts().len());
    assert!(output.contains(&expected), "{output}");
}

#[test]
fn every_alert_is_tested_raised_and_inactive() {
    promtool(&["test", "rules"], "alerts_test.yml");
    let tests = fs::read_to_string(project_file("dashboards/alerts_test.yml")).unwrap();
    for alert in alerts() {
        let raised = format!("alertname: {alert}\n        exp_alerts:\n");
        assert!(tests.contains(&raised), "{alert} is never raised");
        let inactive = format!("alertname: {alert}, exp_alerts: []");
        assert!(tests.contains(&inactive), "{alert} is never inactive");
    }
}

#[test]
fn every_alert_has_a_description_and_is_explained_in_the_operations_guide() {
    let guide = fs::read_to_string(project_file("docs/operations.md")).unwrap();
    for alert in alerts() {
        assert!(guide.contains(&format!("`{alert}`")), "{alert}");
    }
    let text = fs::read_to_string(project_file("dashboards/alerts.yml")).unwrap();
    for field in [" summary: ", " description: ", " labels: { severity: "] {
        assert_eq!(text.matches(field).count(), alerts().len(), "{field}");
    }
}

/// Returns the names of all alerts.
fn alerts() -> Vec<String> {
    let text = fs::read_to_string(project_file("dashboards/alerts.yml")).unwrap();
    let names = text
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("- alert: "));
    names.map(str::to_owned).collect()
}
