//! Rules that are stored in Redis.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fluxgate_core::rules::RuleOptions;
use fluxgate_core::store::Reason;
use fluxgate_core::yaml::{Fault, Node, Value};
use fluxgate_core::{RuleSets, RulesError, StoreError};
use fluxgate_redis::{RuleStore, StoredRules, reason};

use super::error::ReloadError;
use super::json::parse_json;
use super::snapshot::{CompiledRules, Document, Snapshot, no_rules, warning_lines};
use super::source::{BoxFuture, KnownSnapshots, RuleSource};
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
    async fn read_stored(&self, known: &KnownSnapshots) -> Result<Arc<Snapshot>, ReloadError> {
        let no_answer = |error: StoreError| {
            let why = format!("the stored rules: {error}");
            if [Reason::BAD_RESPONSE, reason::BAD_TYPES].contains(&error.reason) {
                ReloadError::Unreadable(why)
            } else {
                ReloadError::NoAnswer(why)
            }
        };
        let version = self.store.version().await.map_err(no_answer)?;
        match version {
            Some(version) => {
                if let Some(known) = known.with_version(&version) {
                    return Ok(known);
                }
            }
            // A server that lost its data must not lift all limits.
            None if known.active.as_ref().is_some_and(|it| it.version.is_some()) => {
                return Err(ReloadError::Unreadable(
                    "the stored rules are gone; the active rules stay until rules are stored again"
                        .into(),
                ));
            }
            None => {}
        }
        let StoredRules { version, sets } = self.store.read().await.map_err(no_answer)?;
        let documents = sets.into_iter().map(|(name, set)| Document {
            name,
            content: set.text.into_bytes(),
        });
        Ok(Arc::new(Snapshot {
            version,
            documents: documents.collect(),
            warnings: Vec::new(),
        }))
    }
}

impl RuleSource for RedisRules {
    fn kind(&self) -> &'static str {
        "redis"
    }

    fn poll(&self) -> Duration {
        self.poll
    }

    fn read<'a>(
        &'a self,
        known: &'a KnownSnapshots,
    ) -> BoxFuture<'a, Result<Arc<Snapshot>, ReloadError>> {
        Box::pin(self.read_stored(known))
    }

    fn compile(&self, snapshot: &Snapshot) -> Result<CompiledRules, ReloadError> {
        let mut rules = no_rules(self.options);
        let (mut wrong, mut warnings) = (Vec::new(), Vec::new());
        for Document { name, content } in &snapshot.documents {
            // The store returns text.
            let text = String::from_utf8_lossy(content);
            let read = parse_json(&text)
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
            Ok(CompiledRules {
                rules,
                warnings,
                settings: None,
            })
        } else {
            Err(ReloadError::Invalid(wrong))
        }
    }

    fn is_server(&self) -> bool {
        true
    }

    fn rule_store(&self) -> Option<&RuleStore> {
        Some(&self.store)
    }
}

impl fmt::Display for RedisRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Redis")
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
