//! Follows the config file where the rules come from elsewhere.

use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio::time::sleep;

use super::config_file::ConfigFile;
use super::error::ReloadError;
use super::snapshot::{Snapshot, run_blocking};
use super::source::{KnownSnapshots, RuleSource as _};
use crate::config::DEFAULT_POLL;
use crate::events::Events;
use crate::telemetry::ReloadedPart;
use crate::watch::{DirectoryWatch, next_signal, wait_until_quiet};

/// Applies the settings of the config file when they change.
#[derive(Debug)]
pub(crate) struct SettingsReloader {
    file: Arc<ConfigFile>,
    events: Arc<Events>,
    active: Arc<Snapshot>,
    /// What was refused last, if anything was since.
    refused: Option<(Option<Arc<Snapshot>>, ReloadError)>,
}

impl SettingsReloader {
    /// Creates the reloader of a file whose settings are active.
    pub(crate) fn new(file: Arc<ConfigFile>, events: Arc<Events>) -> Self {
        Self {
            file,
            events,
            active: Arc::default(),
            refused: None,
        }
    }

    /// Applies the settings of the file whenever it changes; never returns. SIGHUP reads it at
    /// once.
    pub(crate) async fn run(mut self) {
        let changed = Arc::new(Notify::new());
        let mut watch = DirectoryWatch::new(Arc::clone(&changed));
        let mut hang_up = signal(SignalKind::hangup()).ok();
        loop {
            // Before the file is read: the watch sees the changes after that.
            watch.follow(&self.file.watched());
            self.reload().await;
            tokio::select! {
                () = sleep(DEFAULT_POLL) => {}
                () = changed.notified() => wait_until_quiet(&changed).await,
                () = next_signal(&mut hang_up) => self.refused = None,
            }
        }
    }

    async fn reload(&mut self) {
        let snapshot = match self.file.read(&KnownSnapshots::default()).await {
            Ok(snapshot) => snapshot,
            Err(error) => return self.refuse(None, error),
        };
        let is_refused =
            |(known, _): &(Option<Arc<Snapshot>>, ReloadError)| known.as_ref() == Some(&snapshot);
        if self.refused.as_ref().is_some_and(is_refused) {
            return;
        }
        if self.active == snapshot {
            if self.refused.take().is_some() {
                tracing::info!("the settings are unchanged");
                self.record(true);
            }
            return;
        }
        let (file, read) = (Arc::clone(&self.file), Arc::clone(&snapshot));
        match run_blocking(move || file.settings_of(&read)).await {
            Ok(prepared) => {
                self.active = snapshot;
                let was_refused = self.refused.take().is_some();
                if let Some(prepared) = prepared {
                    prepared.load().await;
                    prepared.apply();
                    self.record(true);
                } else if was_refused {
                    self.record(true);
                }
            }
            Err(error) => self.refuse(Some(snapshot), error),
        }
    }

    /// Keeps the settings, and logs why, unless that was logged before.
    fn refuse(&mut self, snapshot: Option<Arc<Snapshot>>, error: ReloadError) {
        let is_known = { self.refused.as_ref() }
            .is_some_and(|(known, why)| *known == snapshot && why.is_same(&error));
        if !is_known {
            // Before the log: an alert on the line finds the metric changed.
            self.record(false);
            let faults = error.faults();
            self.events.record_refused_rules(faults);
            for fault in faults {
                tracing::error!(fault, "new settings are refused; the active ones stay");
            }
        }
        self.refused = Some((snapshot, error));
    }

    fn record(&self, is_valid: bool) {
        let telemetry = self.events.engine().telemetry();
        telemetry.record_reload(ReloadedPart::Settings, is_valid);
    }
}
