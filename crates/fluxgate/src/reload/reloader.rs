//! Reloads the rules when their source changes, on SIGHUP and on request, with the settings that
//! stand beside them.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use fluxgate_core::{RuleChange, RuleSets};
use fluxgate_redis::BackOff;
use tokio::signal::unix::Signal;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use super::changes::{log_changes, log_warnings};
use super::error::ReloadError;
use super::messages::listen;
use super::settings::Settings;
use super::snapshot::{CompiledRules, Snapshot, run_blocking};
use super::source::{KnownSnapshots, RuleSource};
use crate::config::source_warnings;
use crate::engine::Engine;
use crate::events::Events;
use crate::failure::Failure;
use crate::telemetry::ReloadedPart;
use crate::watch::{DirectoryWatch, next_signal, wait_until_quiet};

/// The longest wait before a service without rules tries again.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// The pause between a read of a server and the next that a message causes: a flood of messages
/// must not become a flood of reads.
const MESSAGE_PAUSE: Duration = Duration::from_millis(100);
/// How long a service without rules waits for its source before it uses the cache.
const CACHE_AFTER: Duration = Duration::from_secs(1);
/// The maximum number of requests that wait for an earlier one.
const MAX_REQUESTS: usize = 64;

/// Reloads the rules on request.
#[derive(Clone, Debug)]
pub(crate) struct ReloadHandle {
    requests: mpsc::Sender<ReloadRequest>,
    /// Where the rules come from.
    pub(crate) source: Arc<dyn RuleSource>,
}

/// Receives the outcome of a reload.
type ReloadRequest = oneshot::Sender<Result<(), String>>;

impl ReloadHandle {
    /// Reloads the rules. Afterwards the rules of the source are active, or the error says why
    /// not.
    pub(crate) async fn now(&self) -> Result<(), String> {
        let (request, outcome) = oneshot::channel();
        // If the reloader is gone, the channel is closed.
        let _ = self.requests.send(request).await;
        outcome
            .await
            .unwrap_or_else(|_| Err("the service is closing".into()))
    }
}

/// Reads the rules, and again whenever they may have changed.
#[derive(Debug)]
pub(crate) struct RuleReloader {
    engine: Arc<Engine>,
    events: Arc<Events>,
    source: Arc<dyn RuleSource>,
    requests: mpsc::Receiver<ReloadRequest>,
    /// Notified when the source may have changed.
    changed: Arc<Notify>,
    active: Option<Arc<Snapshot>>,
    /// Why the last reload failed, if it did.
    refused: Option<RefusedSnapshot>,
    /// Deletes the state of replaced rules; started when first needed.
    cleaner: Option<StaleStateCleaner>,
    /// The settings, whose filters use the rules.
    settings: Option<Arc<dyn Settings>>,
    /// The warnings about the active rules.
    about_rules: BTreeSet<String>,
    /// The warnings about sources of the filters that have been logged. Each is logged once.
    warned: BTreeSet<String>,
}

/// A reload that failed.
#[derive(Debug)]
struct RefusedSnapshot {
    /// `None` where nothing could be read.
    snapshot: Option<Arc<Snapshot>>,
    error: ReloadError,
}

/// Why the reloader wakes up.
#[derive(Debug)]
enum WakeReason {
    /// The poll interval has passed, or the source may have changed.
    Routine,
    /// SIGHUP.
    HangUp,
    /// The admin API.
    Request(ReloadRequest),
}

/// Where rules that become active were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadFrom {
    Source,
    Cache,
}

/// How much a reload logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReloadCause {
    /// Only what has not been logged before.
    Routine,
    /// The outcome in any case.
    Requested,
}

impl RuleReloader {
    /// Creates the reloader of the rules of the engine, and a handle to it.
    pub(crate) fn new(events: Arc<Events>, source: Arc<dyn RuleSource>) -> (Self, ReloadHandle) {
        let (sender, requests) = mpsc::channel(MAX_REQUESTS);
        let handle = ReloadHandle {
            requests: sender,
            source: Arc::clone(&source),
        };
        let reloader = Self {
            engine: Arc::clone(events.engine()),
            events,
            source,
            requests,
            changed: Arc::default(),
            active: None,
            refused: None,
            cleaner: None,
            settings: None,
            about_rules: BTreeSet::new(),
            warned: BTreeSet::new(),
        };
        (reloader, handle)
    }

    /// Applies these settings with the rules from now on, if the source holds both. Returns whether
    /// it does.
    pub(crate) fn follow(&mut self, settings: Arc<dyn Settings>) -> bool {
        let is_followed = self.source.follow(&settings);
        self.settings = Some(settings);
        is_followed
    }

    /// Reads the first rules, unless a server has them. They must be valid for the service to
    /// start.
    pub(crate) async fn read_first(&mut self) -> Result<Option<CompiledRules>, Failure> {
        if self.source.is_server() {
            return Ok(None);
        }
        let snapshot = self.source.read(&KnownSnapshots::default()).await;
        let snapshot = snapshot.map_err(|error| self.source.start_failure(error))?;
        let compiled = self.source.compile(&snapshot)?;
        self.active = Some(snapshot);
        Ok(Some(compiled))
    }

    /// Keeps the rules up to date for as long as the runtime runs. SIGHUP reloads them at
    /// once.
    pub(crate) async fn run(mut self, mut hang_up: Option<Signal>) {
        if let Some(listener) = self.source.listen(Arc::clone(&self.changed)) {
            tokio::spawn(listener);
        }
        if let Some(store) = self.engine.store().redis() {
            tokio::spawn(listen(store.rule_store(), Arc::clone(&self.changed)));
        }
        let mut watch = DirectoryWatch::new(Arc::clone(&self.changed));
        let mut back_off = BackOff::up_to(LONGEST_WAIT);
        let mut wake = WakeReason::Routine;
        loop {
            // Before the reload: the watch sees the changes after it.
            watch.follow(&self.source.watched());
            match wake {
                WakeReason::Routine => drop(self.reload(ReloadCause::Routine).await),
                WakeReason::HangUp => drop(self.reload(ReloadCause::Requested).await),
                WakeReason::Request(request) => self.answer(request).await,
            }
            let mut wait = self.source.poll();
            if self.engine.rules().is_none() {
                wait = wait.min(back_off.next_wait());
            }
            let (changed, is_server) = (&self.changed, self.source.is_server());
            let change = async {
                if is_server {
                    // One notification in the meantime is kept.
                    sleep(MESSAGE_PAUSE).await;
                }
                changed.notified().await;
            };
            wake = tokio::select! {
                () = sleep(wait) => WakeReason::Routine,
                () = change => {
                    // Servers change at once, files one after the other.
                    if !is_server {
                        wait_until_quiet(changed).await;
                    }
                    WakeReason::Routine
                }
                () = next_signal(&mut hang_up) => WakeReason::HangUp,
                Some(request) = self.requests.recv() => WakeReason::Request(request),
            };
        }
    }

    async fn answer(&mut self, request: ReloadRequest) {
        let reloaded = self.reload(ReloadCause::Routine).await;
        // The caller may be gone.
        let _ = request.send(reloaded.map_err(|error| error.to_string()));
    }

    /// Reads the source, and activates the rules if they are new and valid.
    async fn reload(&mut self, occasion: ReloadCause) -> Result<(), ReloadError> {
        let known = KnownSnapshots {
            active: self.active.clone(),
            refused: self.refused.as_ref().and_then(|it| it.snapshot.clone()),
        };
        let snapshot = match self.read(&known).await {
            Ok(snapshot) => snapshot,
            Err(error) => {
                let refusal = self.refuse(None, error, occasion);
                self.use_cache().await;
                return Err(refusal);
            }
        };
        if self.active.as_ref() == Some(&snapshot) {
            // Its version may be new.
            self.active = Some(snapshot);
            if self.refused.take().is_some() || occasion == ReloadCause::Requested {
                tracing::info!("the rules are unchanged");
                self.record(true);
            }
            return Ok(());
        }
        if let Some(known) = &self.refused
            && known.snapshot.as_ref() == Some(&snapshot)
            && occasion == ReloadCause::Routine
        {
            return Err(known.error.clone());
        }
        let (source, read) = (Arc::clone(&self.source), Arc::clone(&snapshot));
        match run_blocking(move || source.compile(&read)).await {
            Ok(compiled) => {
                if let Some(settings) = &compiled.settings {
                    settings.load().await;
                }
                self.swap_rules(compiled);
                self.active = Some(snapshot);
                self.refused = None;
                self.write_cache().await;
                Ok(())
            }
            Err(error) => {
                let refusal = self.refuse(Some(snapshot), error, occasion);
                self.use_cache().await;
                Err(refusal)
            }
        }
    }

    /// Reads the source. A service without rules does not wait long for it.
    async fn read(&mut self, known: &KnownSnapshots) -> Result<Arc<Snapshot>, ReloadError> {
        let source = Arc::clone(&self.source);
        let mut read = source.read(known);
        if let Ok(snapshot) = timeout(CACHE_AFTER, &mut read).await {
            return snapshot;
        }
        self.use_cache().await;
        read.await
    }

    /// Activates the rules of the cache if there are no others.
    async fn use_cache(&mut self) {
        let has_rules = self.engine.rules().is_some();
        let Some(cache) = self.source.cache().filter(|_| !has_rules).cloned() else {
            return;
        };
        let path = cache.path().display().to_string();
        match run_blocking(move || cache.read()).await {
            Ok(Some(compiled)) => {
                tracing::warn!(cache_file = path, "the last good rules are active");
                self.activate(compiled, ReadFrom::Cache);
            }
            Ok(None) => {}
            Err(why) => {
                if self.warned.insert(format!("{why}")) {
                    tracing::error!(cache_file = path, %why, "the cache of the rules is unusable");
                }
            }
        }
    }

    /// Keeps the active rules for a start without the source.
    async fn write_cache(&mut self) {
        let (Some(cache), Some(rules)) = (self.source.cache().cloned(), self.engine.rules()) else {
            return;
        };
        let path = cache.path().display().to_string();
        let written = spawn_blocking(move || cache.write(&rules)).await;
        let written = written.unwrap_or_else(|error| Err(io::Error::other(error)));
        if let Err(why) = written
            && self.warned.insert(format!("{path}: {why}"))
        {
            tracing::warn!(cache_file = path, %why, "the rules are not cached");
        }
    }

    /// Keeps the active rules and logs why, unless that was logged before.
    fn refuse(
        &mut self,
        snapshot: Option<Arc<Snapshot>>,
        error: ReloadError,
        occasion: ReloadCause,
    ) -> ReloadError {
        let known = self.refused.as_ref();
        let is_known = known.is_some_and(|it| it.snapshot == snapshot && it.error.is_same(&error));
        if !is_known || occasion == ReloadCause::Requested {
            // Before the log: an alert on the line finds the metric changed.
            self.record(false);
            let is_read = matches!(error, ReloadError::Invalid(_));
            let kept = match self.engine.rules() {
                Some(_) if is_read => "new rules are refused; the active rules stay",
                Some(_) => "the rules cannot be read; the active rules stay",
                None => "there are no rules yet",
            };
            match &error {
                // The source is down: its rules are not refused.
                ReloadError::NoAnswer(why) => tracing::error!(why, "{kept}"),
                ReloadError::Unreadable(why) => {
                    self.events.record_refused_rules(std::slice::from_ref(why));
                    tracing::error!(why, "{kept}");
                }
                ReloadError::Invalid(faults) => {
                    self.events.record_refused_rules(faults);
                    for fault in faults {
                        tracing::error!(fault, "{kept}");
                    }
                }
            }
        }
        let refusal = error.clone();
        self.refused = Some(RefusedSnapshot { snapshot, error });
        refusal
    }

    /// Activates rules of the source.
    pub(crate) fn swap_rules(&mut self, compiled: CompiledRules) {
        self.activate(compiled, ReadFrom::Source);
    }

    fn activate(&mut self, compiled: CompiledRules, from: ReadFrom) {
        let CompiledRules {
            rules,
            warnings,
            settings,
        } = compiled;
        let names_identities = self.engine.telemetry().names_identities();
        // The first rules are not a change.
        let before = self.engine.rules();
        let changes = before.as_ref().map(|it| rules.changes_since(it));
        let sets = rules.iter().count();
        let count = rules.iter().map(|set| set.rules().len()).sum::<usize>();
        if from == ReadFrom::Source {
            // Before the swap: a caller that sees the new limits finds the metric changed.
            self.record(true);
        }
        // Each filter finds its rule set at any moment: the sets of the filters before go after these
        // filters, and those of the new filters are there before them.
        let has_gone = |before: &RuleSets| before.iter().any(|set| rules.get(set.name()).is_none());
        let replaced = match (settings, before) {
            (Some(settings), Some(before)) if has_gone(&before) => {
                let mut both = RuleSets::clone(&before).with_on_missing(rules.on_missing());
                both.extend(rules.clone());
                let replaced = self.engine.swap_rules(both);
                settings.apply();
                self.engine.swap_rules(rules);
                replaced
            }
            (settings, _) => {
                let replaced = self.engine.swap_rules(rules);
                if let Some(settings) = settings {
                    settings.apply();
                }
                replaced
            }
        };
        if has_resets(&replaced) {
            let engine = &self.engine;
            let cleaner = self
                .cleaner
                .get_or_insert_with(|| StaleStateCleaner::start(engine));
            cleaner.add(replaced);
        }
        if let Some(changes) = changes.as_ref().filter(|changes| !changes.is_empty()) {
            self.record_change(changes);
        }
        log_changes(&changes.unwrap_or_default(), names_identities);
        // Those of the rules before have been logged.
        let new: Vec<_> = warnings
            .iter()
            .filter(|it| !self.about_rules.contains(*it))
            .collect();
        log_warnings(&new);
        self.about_rules = warnings.into_iter().collect();
        tracing::info!(rule_sets = sets, rules = count, "rules are active");
        let filters = self.settings.as_ref().map(|settings| settings.filters());
        let active = self.engine.rules().unwrap_or_default();
        for warning in source_warnings(&filters.unwrap_or_default(), &active) {
            if self.warned.insert(warning.clone()) {
                tracing::warn!("{warning}");
            }
        }
    }
}

impl RuleReloader {
    fn record(&self, is_valid: bool) {
        let telemetry = self.engine.telemetry();
        telemetry.record_reload(ReloadedPart::Rules, is_valid);
    }

    /// Records new rules as an event. Those that came through the API have one already: the
    /// instance that was called knows who changed them.
    fn record_change(&self, changes: &[RuleChange]) {
        let revision = self.engine.revision();
        let Some(rules) = self.source.rule_store().cloned() else {
            return self.events.record_new_rules(changes, &revision);
        };
        let (events, changes) = (Arc::clone(&self.events), changes.to_vec());
        tokio::spawn(async move {
            let sets: BTreeSet<_> = changes.iter().map(|it| it.rule_set.clone()).collect();
            for set in sets {
                // If Redis does not answer now, there is no event.
                let Ok(history) = rules.history(&set).await else {
                    continue;
                };
                // A program wrote them, without a caller's name.
                if history.first().is_none_or(|last| last.who.is_empty()) {
                    let of_set = changes.iter().filter(|it| it.rule_set == set);
                    let of_set: Vec<_> = of_set.cloned().collect();
                    events.record_new_rules(&of_set, &revision);
                }
            }
        });
    }
}

/// A background task that deletes the state of one replaced set of rules after another.
#[derive(Debug)]
struct StaleStateCleaner(mpsc::UnboundedSender<Arc<RuleSets>>);

impl StaleStateCleaner {
    fn start(engine: &Arc<Engine>) -> Self {
        let (sender, mut queue) = mpsc::unbounded_channel::<Arc<RuleSets>>();
        let engine = Arc::clone(engine);
        tokio::spawn(async move {
            while let Some(replaced) = queue.recv().await {
                if let Err(error) = engine.reset_replaced(&replaced).await {
                    tracing::warn!(%error, "old state of changed rules could not be deleted");
                }
            }
        });
        Self(sender)
    }

    /// Queues replaced rules.
    fn add(&self, replaced: Arc<RuleSets>) {
        // The task ends only when the service closes.
        let _ = self.0.send(replaced);
    }
}

/// Returns whether any of the rules has state to delete.
fn has_resets(rules: &RuleSets) -> bool {
    let mut rules = rules.iter().flat_map(|set| set.rules());
    rules.any(|rule| rule.reset_on_change())
}
