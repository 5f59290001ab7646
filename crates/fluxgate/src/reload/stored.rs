//! Rules that are stored in Redis.

use std::sync::Arc;
use std::time::Duration;

use fluxgate_core::rules::RuleOptions;
use fluxgate_core::yaml::{Fault, Node, Value};
use fluxgate_core::{RuleSets, RulesError};
use fluxgate_redis::{BackOff, RuleStore, RuleSubscription, StoredRules};
use tokio::sync::Notify;

use super::json::parse_json;
use super::snapshot::{CompiledRules, ReloadError, Snapshot, no_rules, warning_lines};
use crate::config::Deployment;

/// The rules in the store's Redis.
#[derive(Debug)]
pub(crate) struct RedisRules {
    pub(super) store: RuleStore,
    pub(super) poll: Duration,
    pub(super) options: RuleOptions,
    pub(super) deployment: Deployment,
}

impl RedisRules {
    /// Reads the stored rules, unless a known snapshot has their version.
    pub(super) async fn snapshot(
        &self,
        active: Option<&Arc<Snapshot>>,
        refused: Option<&Arc<Snapshot>>,
    ) -> Result<Arc<Snapshot>, ReloadError> {
        let no_answer = |error| ReloadError::NoAnswer(format!("the stored rules: {error}"));
        let version = self.store.version().await.map_err(no_answer)?;
        let known = [active, refused].into_iter().flatten();
        for known in known.filter(|_| version.is_some()) {
            if version_of(known) == version.as_deref() {
                return Ok(Arc::clone(known));
            }
        }
        // A server that lost its data must not lift all limits.
        if version.is_none() && active.is_some_and(|it| version_of(it).is_some()) {
            return Err(ReloadError::Unreadable(
                "the stored rules are gone; the active rules stay until rules are stored again"
                    .into(),
            ));
        }
        let rules = self.store.read().await.map_err(no_answer)?;
        Ok(Arc::new(Snapshot::Stored(rules)))
    }

    /// Compiles the rules of all sets, all or none.
    pub(super) fn compile(&self, stored: &StoredRules) -> Result<CompiledRules, ReloadError> {
        let mut rules = no_rules(self.options);
        let (mut wrong, mut warnings) = (Vec::new(), Vec::new());
        for (name, set) in &stored.sets {
            let read = parse_json(&set.text)
                .map_err(|fault| vec![fault])
                .and_then(|node| {
                    let set = check_set(name, node.clone(), self.options)?;
                    Ok((set, wrap_in_mapping(name, node)))
                });
            match read {
                Ok((set, node)) => {
                    let found = self.deployment.warnings(&set, &node);
                    warnings.extend(warning_lines(format_args!("rule set {name:?}"), found));
                    rules.extend(set);
                }
                Err(faults) => {
                    let lines = faults.iter();
                    wrong.extend(lines.map(|fault| format!("rule set {name:?}:{fault}")));
                }
            }
        }
        let source = "the stored rules";
        warnings.extend(self.deployment.missing_rule_sets(&rules, source));
        if wrong.is_empty() {
            Ok(CompiledRules { rules, warnings })
        } else {
            Err(ReloadError::Invalid(wrong))
        }
    }
}

/// The longest wait before the next attempt to subscribe.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// A connection that is lost sooner counts as failed.
const MIN_UPTIME: Duration = Duration::from_secs(1);

/// Subscribes to changes of the stored rules and notifies `changed` of each, for as long
/// as the runtime runs.
pub(super) async fn listen(store: RuleStore, changed: Arc<Notify>) {
    let mut back_off = BackOff::up_to(LONGEST_WAIT);
    let mut last_reason = None;
    loop {
        match store.subscribe().await {
            Ok(mut changes) => {
                // Once for changes that were missed, and then for each.
                changed.notify_one();
                let brief = tokio::time::timeout(MIN_UPTIME, pass_on(&mut changes, &changed));
                if brief.await.is_ok() {
                    warn_once(&mut last_reason, "cut", &"the connection ended at once");
                } else {
                    if last_reason.take().is_some() {
                        tracing::info!("messages about stored rules arrive again");
                    }
                    back_off.reset();
                    pass_on(&mut changes, &changed).await;
                }
            }
            // The text may differ each time; the reason does not.
            Err(error) => warn_once(&mut last_reason, error.reason.name(), &error),
        }
        tokio::time::sleep(back_off.next_wait()).await;
    }
}

/// Notifies `changed` of each change until the connection is lost.
async fn pass_on(changes: &mut RuleSubscription, changed: &Notify) {
    while changes.next().await.is_some() {
        changed.notify_one();
    }
}

/// Logs an error, unless the last one had the same reason.
fn warn_once(
    last_reason: &mut Option<&'static str>,
    reason: &'static str,
    error: &dyn std::fmt::Display,
) {
    if last_reason.replace(reason) != Some(reason) {
        tracing::warn!(
            reason,
            %error,
            "no messages about stored rules arrive; changes take effect at the next poll"
        );
    }
}

/// Returns a mapping with this rule set only.
pub(crate) fn wrap_in_mapping(name: &str, set: Node) -> Node {
    let position = set.position;
    let key = Node {
        value: Value::Quoted(name.into()),
        position,
    };
    Node {
        value: Value::Map(vec![(key, set)]),
        position,
    }
}

/// Compiles one rule set.
pub(crate) fn check_set(
    name: &str,
    set: Node,
    options: RuleOptions,
) -> Result<RuleSets, Vec<Fault>> {
    RuleSets::read_set(name, set, options).map_err(|RulesError(faults)| faults)
}

fn version_of(snapshot: &Snapshot) -> Option<&str> {
    match snapshot {
        Snapshot::Stored(rules) => rules.version.as_deref(),
        Snapshot::Files(_) | Snapshot::Directory(_) => None,
    }
}
