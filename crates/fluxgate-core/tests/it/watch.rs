//! Rules that follow a file.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fluxgate_core::{Limiter, MemoryStore, Observer, RequestContext, RuleFileError, RuleSets};

/// A directory that is deleted in the end.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("fluxgate-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Replaces the rule file with one that allows so many requests an hour.
    fn write(&self, capacity: u64) {
        let rules = format!(
            "rule_sets: {{ s: {{ rules: [ {{ id: r, scope: global, \
             bands: [ {{ capacity: {capacity}, window: 1h }} ] }} ] }} }}"
        );
        self.write_text(&rules);
    }

    /// Replaces the rule file by a rename, as editors do.
    fn write_text(&self, text: &str) {
        std::fs::write(self.0.join("new"), text).unwrap();
        std::fs::rename(self.0.join("new"), self.file()).unwrap();
    }

    fn file(&self) -> PathBuf {
        self.0.join("rules.yaml")
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[derive(Clone, Debug, Default)]
struct Changes(Arc<Mutex<Vec<String>>>);

impl Changes {
    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

impl Observer for Changes {
    fn rules_changed(&self, loaded: Result<(), &(dyn std::error::Error + 'static)>) {
        let line = loaded.map_or_else(|error| error.to_string(), |()| "loaded".into());
        self.0.lock().unwrap().push(line);
    }
}

fn limit(limiter: &Limiter) -> Option<u64> {
    limiter.peek_sync("s", &RequestContext::default()).limit()
}

/// Waits until the observer was called so often. Time is paused, so this takes as long as
/// reading the file does.
async fn changes(changes: &Changes, count: usize) -> Vec<String> {
    for _ in 0..10_000 {
        if changes.all().len() >= count {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    changes.all()
}

#[tokio::test(start_paused = true)]
async fn a_changed_file_is_loaded_and_an_invalid_one_is_not() {
    let dir = Dir::new("watch");
    let log = Changes::default();
    let limiter = Limiter::builder(RuleSets::default(), MemoryStore::default())
        .observer(log.clone())
        .build();
    let missing = limiter.watch_file(dir.file()).await.unwrap_err();
    assert!(
        matches!(missing, RuleFileError::Unreadable { .. }),
        "{missing}"
    );
    dir.write_text("rule_sets: 1");
    let invalid = limiter.watch_file(dir.file()).await.unwrap_err();
    assert!(
        invalid.to_string().contains("1:12: `rule_sets` must be"),
        "{invalid}"
    );

    let fifo = dir.0.join("fifo");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status();
    assert!(made.unwrap().success());
    for (path, why) in [
        (fifo, "expected a regular file, found a FIFO or pipe"),
        (
            "/dev/zero".into(),
            "expected a regular file, found a device",
        ),
    ] {
        let irregular = limiter.watch_file(path).await.unwrap_err();
        assert!(irregular.to_string().ends_with(why), "{irregular}");
    }

    dir.write(1);
    let watch = limiter.watch_file(dir.file()).await.unwrap();
    assert_eq!(limit(&limiter), Some(1), "loaded at once");
    dir.write(2);
    assert_eq!(changes(&log, 1).await, ["loaded"]);
    assert_eq!(limit(&limiter), Some(2));
    dir.write_text("rule_sets: {");
    let reported = changes(&log, 2).await;
    assert!(reported[1].contains("not valid YAML"), "{reported:?}");
    assert_eq!(limit(&limiter), Some(2), "the last good one stays");
    std::fs::remove_file(dir.file()).unwrap();
    let reported = changes(&log, 3).await;
    assert!(reported[2].contains("cannot read"), "{reported:?}");
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(log.all().len(), 3, "reported once");
    dir.write_text("");
    let reported = changes(&log, 4).await;
    assert!(reported[3].contains("a rule file must be"), "{reported:?}");
    dir.write(2);
    assert_eq!(changes(&log, 5).await[4], "loaded");

    drop(watch);
    dir.write(3);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(limit(&limiter), Some(2), "the file is no longer watched");
}
