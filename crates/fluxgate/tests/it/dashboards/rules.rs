//! The files that Prometheus reads, as its own tool sees them.

use std::fs;
use std::process::Command;

use crate::support::{fetched, project_file};

/// What `promtool` says; it must be content.
#[track_caller]
fn promtool(arguments: &[&str], file: &str) -> String {
    let output = Command::new(fetched("FLUXGATE_PROMTOOL", "promtool/usr/bin/promtool"))
        .args(arguments)
        .arg(project_file("dashboards").join(file))
        .output()
        .unwrap();
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success(), "{said}");
    said
}

#[test]
fn promtool_finds_config_and_alarms_good() {
    promtool(&["check", "config"], "prometheus.yml");
    let said = promtool(&["check", "rules"], "alerts.yml");
    let wanted = format!("{} rules found", alarms().len());
    assert!(said.contains(&wanted), "{said}");
}

#[test]
fn alarms_are_raised_when_they_should_and_not_before() {
    promtool(&["test", "rules"], "alerts_test.yml");
    let tests = fs::read_to_string(project_file("dashboards/alerts_test.yml")).unwrap();
    for alarm in alarms() {
        let raised = format!("alertname: {alarm}\n        exp_alerts:\n");
        assert!(tests.contains(&raised), "{alarm} is never raised");
        let silent = format!("alertname: {alarm}, exp_alerts: []");
        assert!(tests.contains(&silent), "{alarm} is never silent");
    }
}

/// What an alarm tells, it tells whom it wakes.
#[test]
fn every_alarm_is_explained_in_the_operations_guide() {
    let guide = fs::read_to_string(project_file("docs/operations.md")).unwrap();
    for alarm in alarms() {
        assert!(guide.contains(&format!("`{alarm}`")), "{alarm}");
    }
    let text = fs::read_to_string(project_file("dashboards/alerts.yml")).unwrap();
    for field in [" summary: ", " description: ", " labels: { severity: "] {
        assert_eq!(text.matches(field).count(), alarms().len(), "{field}");
    }
}

/// The names of all alarms.
fn alarms() -> Vec<String> {
    let text = fs::read_to_string(project_file("dashboards/alerts.yml")).unwrap();
    let names = text
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("- alert: "));
    names.map(str::to_owned).collect()
}
