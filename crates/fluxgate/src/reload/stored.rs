//! Rules that are stored in Redis.

use std::sync::Arc;
use std::time::Duration;

use fluxgate_core::yaml::{Fault, Faults, Node, Position, Value};
use fluxgate_core::{RuleOptions, RuleSets};
use fluxgate_redis::{BackOff, RuleChanges, RuleStore, StoredRules};
use tokio::sync::Notify;

use super::json::parse_node;
use super::source::{Content, Refusal};

/// The store's Redis.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(super) store: RuleStore,
    pub(super) poll: Duration,
    options: RuleOptions,
}

impl Stored {
    pub(super) fn new(store: RuleStore, poll: Duration, options: RuleOptions) -> Self {
        Self {
            store,
            poll,
            options,
        }
    }

    /// What is stored now; read only if it is not known already.
    pub(super) async fn content(
        &self,
        in_force: Option<&Arc<Content>>,
        refused: Option<&Arc<Content>>,
    ) -> Result<Arc<Content>, Refusal> {
        let no_answer = |error| Refusal::NoAnswer(format!("the stored rules: {error}"));
        let version = self.store.version().await.map_err(no_answer)?;
        let known = [in_force, refused].into_iter().flatten();
        for known in known.filter(|_| version.is_some()) {
            if version_of(known) == version.as_deref() {
                return Ok(Arc::clone(known));
            }
        }
        // A server that came back empty must not lift all limits.
        if version.is_none() && in_force.is_some_and(|it| version_of(it).is_some()) {
            return Err(Refusal::Unreadable(
                "the stored rules are gone; those in force stay until rules are stored again"
                    .into(),
            ));
        }
        let rules = self.store.read().await.map_err(no_answer)?;
        Ok(Arc::new(Content::Stored(rules)))
    }

    /// The rules of all sets, if all are good.
    pub(super) fn compile(&self, stored: &StoredRules) -> Result<RuleSets, Refusal> {
        let none = Node {
            value: Value::Map(Vec::new()),
            position: START,
        };
        let mut rules = RuleSets::read(&none, self.options, &mut Faults::default());
        let mut wrong = Vec::new();
        for (name, set) in &stored.sets {
            let read = parse_node(&set.text).map_err(|fault| vec![fault]);
            match read.and_then(|(_, node)| check_set(name, node, self.options)) {
                Ok(set) => rules.extend(set),
                Err(faults) => {
                    let lines = faults.iter();
                    wrong.extend(lines.map(|fault| format!("rule set {name:?}:{fault}")));
                }
            }
        }
        match wrong.is_empty() {
            true => Ok(rules),
            false => Err(Refusal::Invalid(wrong)),
        }
    }
}

const START: Position = Position { line: 1, column: 1 };

/// How long to wait at most before messages are asked for again.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// A connection that is lost sooner was none.
const LASTING: Duration = Duration::from_secs(1);

/// Tells `changed` whenever somebody says that stored rules have changed, for as
/// long as the runtime runs.
pub(super) async fn listen(store: RuleStore, changed: Arc<Notify>) {
    let mut back_off = BackOff::up_to(LONGEST_WAIT);
    let mut trouble = None;
    loop {
        match store.changes().await {
            Ok(mut changes) => {
                // For what was said while nobody listened, and then for each.
                changed.notify_one();
                let brief = tokio::time::timeout(LASTING, pass_on(&mut changes, &changed));
                if brief.await.is_ok() {
                    tell_once(&mut trouble, "cut", &"the connection does not last");
                } else {
                    if trouble.take().is_some() {
                        tracing::info!("changes of stored rules are heard of again");
                    }
                    back_off.reset();
                    pass_on(&mut changes, &changed).await;
                }
            }
            // The story may differ each time; the trouble is the same.
            Err(error) => tell_once(&mut trouble, error.reason.name(), &error),
        }
        tokio::time::sleep(back_off.next_wait()).await;
    }
}

/// Tells `changed` of each change, until the connection is lost.
async fn pass_on(changes: &mut RuleChanges, changed: &Notify) {
    while changes.next().await.is_some() {
        changed.notify_one();
    }
}

/// Tells of trouble unless it is the same as before.
fn tell_once(
    trouble: &mut Option<&'static str>,
    reason: &'static str,
    error: &dyn std::fmt::Display,
) {
    if trouble.replace(reason) != Some(reason) {
        tracing::warn!(
            reason,
            %error,
            "changes of stored rules are not heard of, only looked for"
        );
    }
}

/// The rule set of this name, if it is good.
pub(crate) fn check_set(
    name: &str,
    set: Node,
    options: RuleOptions,
) -> Result<RuleSets, Vec<Fault>> {
    let key = Node {
        value: Value::Quoted(name.into()),
        position: START,
    };
    let sets = Node {
        value: Value::Map(vec![(key, set)]),
        position: START,
    };
    let mut faults = Faults::default();
    let rules = RuleSets::read(&sets, options, &mut faults);
    match faults.count() {
        0 => Ok(rules),
        _ => Err(faults.into_sorted()),
    }
}

fn version_of(content: &Content) -> Option<&str> {
    match content {
        Content::Stored(rules) => rules.version.as_deref(),
        Content::Files(_) => None,
    }
}
