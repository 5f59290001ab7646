//! Clients in other languages that need no package of ours. `clients/LANG/test` runs the others.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use fluxgate_testkit::{ports, timed};

use super::{example, service};
use crate::service::Service;
use crate::service::telemetry::Metrics;
use crate::support::python;

/// The time in which the rule set `jobs` refills one unit.
const REFILL: Duration = Duration::from_secs(2);

/// A client, by its file.
struct Client {
    file: &'static str,
    /// The listener that it uses.
    listener: &'static str,
    /// The prefix of the address.
    scheme: &'static str,
}

const CLIENTS: [Client; 2] = [
    Client {
        file: "python/client_resp.py",
        listener: "resp",
        scheme: "redis://",
    },
    Client {
        file: "node/client_resp.mjs",
        listener: "resp",
        scheme: "",
    },
];

impl Client {
    /// Like [`Client::run`], with another user if the machine was so slow that the client
    /// gave up on the service.
    fn run_served(&self, address: impl ToString, jobs: &str) -> Vec<String> {
        let address = address.to_string();
        let mut runs = (0..5).map(|run| self.run(&address, &format!("{}-{run}", self.file), jobs));
        let served = runs.find(|lines| !lines.iter().any(|line| line.contains("unavailable")));
        served.unwrap_or_else(|| panic!("{} is never served", self.file))
    }

    /// Runs the client, and returns the lines that it prints.
    fn run(&self, address: impl ToString, user: &str, jobs: &str) -> Vec<String> {
        let program = if self.file.ends_with(".py") {
            python()
        } else {
            PathBuf::from("node")
        };
        let mut command = Command::new(program);
        command
            .arg(example("clients").join(self.file))
            .arg(format!("{}{}", self.scheme, address.to_string()))
            .args([user, jobs]);
        let output = command.output();
        let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command:?}: {errors}");
        let printed = String::from_utf8(output.stdout).unwrap();
        printed.lines().map(str::to_owned).collect()
    }

    /// Checks that three jobs are done at once, and the fourth as soon as allowed.
    fn check_back_off(&self, service: &Service) {
        let address = service.address(self.listener);
        for attempt in 0..5 {
            let user = format!("{}-{attempt}", self.file);
            let (lines, took) = timed(|| self.run(address, &user, "4"));
            // On a stalled machine, the client gives up on the service.
            if took >= REFILL && lines.iter().any(|line| line.contains("unavailable")) {
                continue;
            }
            let (done, denied): (Vec<_>, Vec<_>) =
                lines.iter().partition(|line| line.contains(": done, "));
            let jobs: Vec<_> = done
                .iter()
                .filter_map(|line| line.split_once(':'))
                .collect();
            let jobs: Vec<_> = jobs.iter().map(|(job, _)| *job).collect();
            assert_eq!(jobs, ["job 1", "job 2", "job 3", "job 4"], "{lines:?}");
            assert_eq!(done[0], "job 1: done, 2 left");
            // On a stalled machine, a unit is refilled meanwhile.
            if denied.is_empty() && took >= REFILL {
                continue;
            }
            for line in &denied {
                let wait = line.strip_prefix("job 4: denied, retrying in ").unwrap();
                let wait: u64 = wait.strip_suffix(" ms").unwrap().parse().unwrap();
                assert!((1..=2000).contains(&wait), "{lines:?}");
            }
            // A sleep may end slightly early; then the client waits once more.
            assert!((1..=2).contains(&denied.len()), "{lines:?}");
            return;
        }
        panic!("{} is never denied", self.file);
    }
}

#[test]
fn clients_back_off_for_retry_after() {
    let service = service();
    std::thread::scope(|scope| {
        for client in &CLIENTS {
            scope.spawn(|| client.check_back_off(&service));
        }
    });
}

#[test]
fn clients_wait_for_the_delay_of_a_decision() {
    let rules = "rule_sets: { jobs: { rules: [ { id: r, scope: per_user, \
                 algorithm: leaky_bucket, shape: true, \
                 bands: [ { capacity: 9, window: 9s } ] } ] } }\n";
    let service = Service::start(&["resp"], rules);
    std::thread::scope(|scope| {
        for client in &CLIENTS {
            let address = service.address(client.listener);
            scope.spawn(move || {
                let (lines, took) = timed(|| client.run_served(address, "3"));
                assert_eq!(lines.len(), 3, "{lines:?}");
                // One job per second; timers may end slightly early.
                assert!(took > Duration::from_millis(1_900), "{took:?}: {lines:?}");
            });
        }
    });
}

#[test]
fn clients_give_their_slots_back() {
    let rules = "rule_sets: { jobs: { rules: [ { id: at-once, scope: per_user, \
                 algorithm: concurrency, hold: 1h, bands: [ { capacity: 1 } ] } ] } }\n";
    let service = Service::start(&["resp"], rules);
    std::thread::scope(|scope| {
        for client in &CLIENTS {
            let address = service.address(client.listener);
            scope.spawn(move || {
                let lines = client.run_served(address, "3");
                let done = [
                    "job 1: done, 0 left",
                    "job 2: done, 0 left",
                    "job 3: done, 0 left",
                ];
                assert_eq!(lines, done);
            });
        }
    });
    let metrics = Metrics::of(&service);
    let held = "fluxgate_slots_held{rule_set=\"jobs\",rule=\"at-once\"}";
    assert_eq!(metrics.get(held), 0);
}

#[test]
fn clients_fail_open_without_fluxgate() {
    let gone = ports::free();
    for client in &CLIENTS {
        let lines = client.run(gone.addr(), "ann", "1");
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(
            lines[0].starts_with("job 1: done, FluxGate unavailable: "),
            "{lines:?}"
        );
    }
}
