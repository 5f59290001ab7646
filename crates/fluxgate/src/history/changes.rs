//! Changes of rule sets: one for each, however many instances take it over.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fluxgate_core::{RuleSets, StoreError};
use fluxgate_redis::record::RecordedChange;
use fluxgate_redis::{RuleStore, etag_of};

use super::collector::History;
use crate::telemetry::unix_time;

/// How often the active rules are compared with those before.
const INTERVAL: Duration = Duration::from_secs(1);
/// Past changes of stored rules that are older than the last look are known, even if the clocks of
/// this machine and of the server differ by this much.
const SLACK: Duration = Duration::from_secs(60);

/// A look at the active rules.
#[derive(Debug, Default)]
struct ActiveRevisions {
    rules: Option<Arc<RuleSets>>,
    /// By rule set.
    revisions: BTreeMap<String, String>,
    /// When it was, since 1970.
    at: Duration,
}

impl ActiveRevisions {
    fn is_current(&self, rules: &Arc<RuleSets>) -> bool {
        self.rules
            .as_ref()
            .is_some_and(|known| Arc::ptr_eq(known, rules))
    }
}

impl History {
    /// Records changes of the rules, for as long as the runtime runs.
    pub(crate) async fn follow_rules(&self) {
        let started = millis(unix_time());
        let mut known = ActiveRevisions::default();
        loop {
            if let Some(rules) = self.engine.rules().filter(|rules| !known.is_current(rules)) {
                let revisions = revisions_of(&rules);
                let seen = ActiveRevisions {
                    rules: Some(rules),
                    revisions,
                    at: unix_time(),
                };
                // If Redis fails, it is tried again.
                if self.record_changes(&known, &seen, started).await.is_ok() {
                    known = seen;
                }
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    async fn record_changes(
        &self,
        known: &ActiveRevisions,
        seen: &ActiveRevisions,
        started: u64,
    ) -> Result<(), StoreError> {
        let is_first = known.rules.is_none();
        let mut names: Vec<_> = known
            .revisions
            .keys()
            .chain(seen.revisions.keys())
            .collect();
        names.sort();
        names.dedup();
        for name in names {
            let revision = seen.revisions.get(name);
            if revision == known.revisions.get(name) {
                continue;
            }
            let change = RecordedChange {
                at_ms: millis(unix_time()),
                rule_set: name.clone(),
                revision: revision.cloned().unwrap_or_default(),
                who: String::new(),
            };
            let changes = match &self.rule_store {
                Some(store) => {
                    let since = if is_first {
                        started
                    } else {
                        millis(known.at.saturating_sub(SLACK))
                    };
                    stored_changes(store, change, since, is_first).await?
                }
                None => vec![change],
            };
            for change in changes {
                // What was stored since is a change, even if it is the first that is seen.
                let is_first = is_first && (self.rule_store.is_none() || change.at_ms < started);
                match &self.writer {
                    Some(writer) => writer.record.add_change(&change, is_first).await?,
                    None if is_first => {}
                    None => self.lock().changes.add(change),
                }
            }
        }
        Ok(())
    }

    /// Returns when a rule set, or any, changed last within a range of time in milliseconds.
    pub(crate) async fn last_change(
        self: &Arc<Self>,
        rule_set: Option<String>,
        from: u64,
        to: u64,
    ) -> Option<u64> {
        let this = Arc::clone(self);
        let changes = async move { this.changes(rule_set.as_deref(), from, to).await };
        let changes = self.runtime.spawn(changes).await.ok()?.ok()?;
        changes.iter().map(|change| change.at_ms).max()
    }

    /// Returns the changes of a range of time in milliseconds, the oldest first.
    pub(super) async fn changes(
        &self,
        rule_set: Option<&str>,
        from: u64,
        to: u64,
    ) -> Result<Vec<RecordedChange>, StoreError> {
        let mut changes = match &self.writer {
            Some(writer) => writer.record.changes().await?,
            None => self.lock().changes.all().to_vec(),
        };
        changes.retain(|change| {
            (from..=to).contains(&change.at_ms)
                && rule_set.is_none_or(|wanted| wanted == change.rule_set)
        });
        Ok(changes)
    }
}

/// Returns what the store of the rules knows of a change: when it was stored, and by whom. If there
/// were several changes since a time, returns all of them, the oldest first. The last one may be
/// older if `is_first`.
async fn stored_changes(
    store: &RuleStore,
    change: RecordedChange,
    since: u64,
    is_first: bool,
) -> Result<Vec<RecordedChange>, StoreError> {
    let past = store.history(&change.rule_set).await?;
    let newest_first = past.iter().map(|past| RecordedChange {
        at_ms: past.at_ms,
        revision: past.text.as_deref().map(etag_of).unwrap_or_default(),
        who: past.who.clone(),
        rule_set: change.rule_set.clone(),
    });
    let is_wanted =
        |(index, past): &(usize, RecordedChange)| past.at_ms >= since || is_first && *index == 0;
    let changes = newest_first.enumerate().take_while(is_wanted);
    let mut changes: Vec<_> = changes.map(|(_, change)| change).collect();
    changes.reverse();
    if changes.is_empty() {
        // The store has forgotten it, or its clock is far behind.
        changes.push(change);
    }
    Ok(changes)
}

/// Returns a hash of each rule set.
fn revisions_of(rules: &RuleSets) -> BTreeMap<String, String> {
    let revisions = rules.iter().map(|set| {
        let revision = etag_of(&set.to_yaml());
        (set.name().to_owned(), revision)
    });
    revisions.collect()
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
