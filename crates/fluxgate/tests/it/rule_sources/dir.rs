//! Rules in a directory.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use fluxgate_testkit::FaultProxy;
use serde_json::Value;

use super::suite::rule_source_suite;
use super::{
    Corruption, POLL, RuleHost, deep_nesting, huge_id, many_rules, rule_file, rule_file_with,
};
use crate::support::Dir;

rule_source_suite!(DirHost);

/// A link to the current one of several directories, as Kubernetes mounts a volume.
struct DirHost {
    dir: Dir,
    version: AtomicU32,
}

impl DirHost {
    fn rules(&self) -> PathBuf {
        self.dir.path("rules.d")
    }

    fn file(&self) -> PathBuf {
        self.dir.path("rules.d/rules.yaml")
    }

    /// Replaces the directory by one that `fill` has filled, at once.
    fn replace(&self, fill: impl FnOnce(PathBuf)) {
        let version = self.version.fetch_add(1, Ordering::Relaxed).to_string();
        let (new, link) = (self.dir.path(&version), self.dir.path("link"));
        fs::create_dir(&new).unwrap();
        fill(new.clone());
        symlink(version, &link).unwrap();
        fs::rename(link, self.rules()).unwrap();
    }

    fn write_text(&self, text: &str) {
        self.replace(|new| fs::write(new.join("rules.yaml"), text).unwrap());
    }
}

impl RuleHost for DirHost {
    const IS_SERVER: bool = false;

    fn start(rule_sets: &Value) -> Self {
        let host = Self {
            dir: Dir::new(),
            version: AtomicU32::new(0),
        };
        host.write(rule_sets);
        host
    }

    fn config(&self, fields: &str) -> String {
        assert_eq!(fields, "");
        let (path, poll) = (self.rules(), POLL.as_millis());
        format!("rules_from: {{ dir: {path:?}, poll: {poll}ms }}\n")
    }

    fn write(&self, rule_sets: &Value) {
        self.write_text(&rule_file(rule_sets));
    }

    fn place(&self) -> String {
        format!("{}:1:", self.file().display())
    }

    fn corrupt(&self, how: Corruption) -> Option<String> {
        let file = self.file().display().to_string();
        Some(match how {
            Corruption::WrongType => {
                self.replace(|new| {
                    let made = Command::new("mkfifo").arg(new.join("rules.yaml")).status();
                    assert!(made.unwrap().success());
                });
                format!("{file}: expected a regular file, found a FIFO")
            }
            Corruption::Endless => {
                self.replace(|new| {
                    let file = File::create(new.join("rules.yaml")).unwrap();
                    file.set_len(1 << 40).unwrap();
                });
                format!("{file}: the file is larger than 16777216 bytes")
            }
            Corruption::ManyDocuments => {
                self.replace(|new| {
                    for number in 0..10_001 {
                        File::create(new.join(format!("{number}.yaml"))).unwrap();
                    }
                });
                "there are 10001 *.yaml files; at most 10000 are read".into()
            }
            Corruption::ManyRules => {
                self.write_text(&rule_file_with(&many_rules()));
                format!("{file}:1:")
            }
            Corruption::DeepNesting => {
                self.write_text(&rule_file_with(&deep_nesting()));
                "recursion limit exceeded".into()
            }
            Corruption::HugeString => {
                self.write_text(&rule_file_with(&huge_id()));
                format!("{file}:1:")
            }
        })
    }

    fn take_down(&self) {
        fs::rename(self.rules(), self.dir.path("away")).unwrap();
    }

    fn proxy(&self) -> &FaultProxy {
        unreachable!("a directory is not a server")
    }

    fn bring_back(&self) {
        // Rules may have been written while it was away.
        if !self.rules().exists() {
            fs::rename(self.dir.path("away"), self.rules()).unwrap();
        }
    }
}
