//! Rule sets that are stored in Redis.
//!
//! | key | value |
//! |---|---|
//! | `<prefix>:1:{rules}:set:<name>` | the text of a rule set |
//! | `<prefix>:1:{rules}:index` | a hash: the ETag of each rule set by its name and, under the empty name, a version that differs after each change |
//! | `<prefix>:1:{rules}:history:<name>` | a list of the last changes of a rule set |
//!
//! One script changes them together and publishes to the channel `<prefix>:rules`. On a cluster
//! all keys are in one hash slot. A message on [`RELOAD_CHANNEL`] asks for a reload too.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use fluxgate_core::rules::RuleOptions;
use fluxgate_core::{Limiter, RuleSets, RuleWatch, RulesError, Store, StoreError, random, yaml};
use redis::{Cmd, FromRedisValue, ParsingError, Value};
use sha2::{Digest, Sha256};
use tokio::time::{Instant, sleep, timeout};

use crate::endpoint::{CONNECT_TIMEOUT, Subscription};
use crate::error::{bad_response, no_answer};
use crate::node::Node;
use crate::reason;
use crate::sentinel::Tenure;
use crate::servers::{COMMAND_TIMEOUT, Servers};

/// The channel on which OpenFluxGate's programs ask all instances to read their rules again.
pub const RELOAD_CHANNEL: &str = "fluxgate:rule-reload";
/// The maximum size of the text of a stored rule set.
pub const MAX_RULE_BYTES: usize = 1 << 20;
/// The maximum number of stored rule sets that are read.
const MAX_SETS: usize = 10_000;
/// The maximum size of all their texts.
const MAX_TOTAL_BYTES: usize = 64 << 20;
/// The number of past changes that are kept for each rule set.
const MAX_HISTORY: usize = 50;
/// How often a read is repeated because of concurrent writes.
const MAX_READS: usize = 16;
const ETAG_BYTES: usize = 16;
const WRITE: &str = include_str!("lua/write_rules.lua");
const READ_INDEX: &str = include_str!("lua/read_rule_index.lua");
const READ: &str = include_str!("lua/read_rules.lua");

/// Rule sets in Redis, as text.
#[derive(Clone, Debug)]
pub struct RuleStore {
    servers: Arc<Servers>,
    /// The prefix of the keys of rule sets.
    head: String,
    index: String,
    /// The prefix of the keys of past changes.
    history: String,
    channel: String,
}

/// All stored rule sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredRules {
    /// Differs after each change; `None` if nothing was ever stored.
    pub version: Option<String>,
    /// The rule sets by name.
    pub sets: BTreeMap<String, StoredSet>,
}

/// One stored rule set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSet {
    /// A hash of the text.
    pub etag: String,
    /// The text as it was stored.
    pub text: String,
}

/// A condition on what is stored before a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition<'a> {
    /// No condition.
    Any,
    /// There must be no rule set.
    Absent,
    /// There must be a rule set.
    Present,
    /// The rule set must have this ETag.
    Etag(&'a str),
}

/// The outcome of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The write was made.
    Done {
        /// The ETag before the write.
        before: Option<String>,
    },
    /// The precondition did not hold, and nothing was written.
    Conflict {
        /// The current ETag.
        now: Option<String>,
    },
}

/// Returns the ETag of a text: the first half of its SHA-256, in hexadecimal.
pub fn etag_of(text: &str) -> String {
    let hash = Sha256::digest(text.as_bytes());
    let digits = hash.iter().take(ETAG_BYTES);
    digits.map(|byte| format!("{byte:02x}")).collect()
}

impl RuleStore {
    pub(crate) fn new(servers: Arc<Servers>, prefix: &str) -> Self {
        Self {
            servers,
            head: format!("{prefix}:1:{{rules}}:set:"),
            index: format!("{prefix}:1:{{rules}}:index"),
            history: format!("{prefix}:1:{{rules}}:history:"),
            channel: format!("{prefix}:rules"),
        }
    }

    /// Returns the version of all rule sets; `None` if nothing was ever stored.
    pub async fn version(&self) -> Result<Option<String>, StoreError> {
        self.run(&Cmd::hget(&self.index, "")).await
    }

    /// Returns a consistent snapshot of all rule sets, at most 10,000 with 64 MiB in total.
    pub async fn read(&self) -> Result<StoredRules, StoreError> {
        let mut mismatched = String::new();
        for _ in 0..MAX_READS {
            match self.try_read().await? {
                Ok(rules) => return Ok(rules),
                Err(name) => mismatched = name,
            }
        }
        Err(bad_response(&format!(
            "the text of rule set {mismatched:?} does not match its ETag in the index"
        )))
    }

    /// Returns the name of a set that does not match the index if there was a write between the
    /// two reads.
    async fn try_read(&self) -> Result<Result<StoredRules, String>, StoreError> {
        let mut read = redis::cmd("EVAL");
        // The version is a field, too.
        read.arg(READ_INDEX)
            .arg(1)
            .arg(&self.index)
            .arg(MAX_SETS + 1);
        let mut index: BTreeMap<String, String> =
            self.run::<Bounded<_>>(&read).await?.within(|count| {
                let count = count.saturating_sub(1);
                format!("there are {count} rule sets; at most {MAX_SETS} are read")
            })?;
        let version = index.remove("");
        let mut sets = BTreeMap::new();
        if !index.is_empty() {
            let mut read = redis::cmd("EVAL");
            read.arg(READ).arg(index.len());
            for name in index.keys() {
                read.arg(self.key(name));
            }
            read.arg(MAX_TOTAL_BYTES);
            let texts: Vec<Option<String>> =
                self.run::<Bounded<_>>(&read).await?.within(|bytes| {
                    format!("the rule sets have {bytes} bytes; at most {MAX_TOTAL_BYTES} are read")
                })?;
            for ((name, etag), text) in index.into_iter().zip(texts) {
                if let Some(bytes) = text.as_ref().map(String::len)
                    && bytes > MAX_RULE_BYTES
                {
                    return Err(bad_response(&format!(
                        "rule set {name:?} has {bytes} bytes; at most {MAX_RULE_BYTES} are read"
                    )));
                }
                match text.filter(|text| etag_of(text) == etag) {
                    Some(text) => sets.insert(name, StoredSet { etag, text }),
                    None => return Ok(Err(name)),
                };
            }
        }
        Ok(Ok(StoredRules { version, sets }))
    }

    /// Returns one rule set.
    pub async fn get(&self, name: &str) -> Result<Option<StoredSet>, StoreError> {
        let text: Option<String> = self.run(&Cmd::get(self.key(name))).await?;
        Ok(text.map(|text| StoredSet {
            etag: etag_of(&text),
            text,
        }))
    }

    /// Returns whether the index has a rule set whose text is missing.
    pub async fn is_lost(&self, name: &str) -> Result<bool, StoreError> {
        let etag: Option<String> = self.run(&Cmd::hget(&self.index, name)).await?;
        // The text is read last: it may have been stored since.
        Ok(etag.is_some() && self.get(name).await?.is_none())
    }

    /// Stores a rule set if the precondition holds.
    pub async fn put(
        &self,
        name: &str,
        text: &str,
        precondition: Precondition<'_>,
    ) -> Result<WriteOutcome, StoreError> {
        let change = RuleChange::by_program("put rule set");
        self.write(name, Some(text), precondition, change).await
    }

    /// Deletes a rule set if the precondition holds.
    pub async fn delete(
        &self,
        name: &str,
        precondition: Precondition<'_>,
    ) -> Result<WriteOutcome, StoreError> {
        let change = RuleChange::by_program("delete rule set");
        self.write(name, None, precondition, change).await
    }

    /// Returns the last changes of a rule set, the newest first.
    pub async fn history(&self, name: &str) -> Result<Vec<PastChange>, StoreError> {
        let lines: Vec<String> = self
            .run(&Cmd::lrange(self.history_key(name), 0, -1))
            .await?;
        let changes = lines.iter().filter_map(|line| PastChange::read(line));
        Ok(changes.collect())
    }

    /// Subscribes to changes and to [`RELOAD_CHANNEL`], over a connection of its own.
    pub async fn subscribe(&self) -> Result<RuleSubscription, StoreError> {
        let deadline = Instant::now() + COMMAND_TIMEOUT;
        let key = self.index.as_bytes();
        let node = self.servers.node_of(key, deadline).await?;
        RuleSubscription::subscribe(&node, &self.channel).await
    }

    /// Stores a rule set, or deletes it if `text` is `None`, if the precondition holds. Adds the
    /// change to the history.
    pub async fn write(
        &self,
        name: &str,
        text: Option<&str>,
        precondition: Precondition<'_>,
        change: RuleChange<'_>,
    ) -> Result<WriteOutcome, StoreError> {
        let etag = text.map(etag_of).unwrap_or_default();
        let text = text.unwrap_or_default();
        let precondition = match precondition {
            Precondition::Any => "any".to_owned(),
            Precondition::Absent => "absent".to_owned(),
            Precondition::Present => "present".to_owned(),
            Precondition::Etag(etag) => format!("={etag}"),
        };
        // Writes are rare, so the text of the script may be sent with each.
        let mut write = redis::cmd("EVAL");
        write.arg(WRITE).arg(3).arg(&self.index).arg(self.key(name));
        write.arg(self.history_key(name));
        write.arg(name).arg(precondition).arg(etag).arg(text);
        write.arg(random_version()).arg(&self.channel);
        write.arg(change_line(&change)).arg(MAX_HISTORY);
        let (done, etag): (u8, String) = self.run(&write).await?;
        let before = Some(etag).filter(|etag| !etag.is_empty());
        Ok(if done == 0 {
            WriteOutcome::Conflict { now: before }
        } else {
            WriteOutcome::Done { before }
        })
    }

    async fn run<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, StoreError> {
        let what = "a command on stored rules";
        self.servers.command(command, &self.index, what).await
    }

    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.head)
    }

    fn history_key(&self, name: &str) -> String {
        format!("{}{name}", self.history)
    }
}

/// What a script has read, or how much there is if that is too much.
#[derive(Debug)]
enum Bounded<T> {
    Read(T),
    TooMuch(u64),
}

impl<T> Bounded<T> {
    /// Returns what was read, or an error with this message.
    fn within(self, message: impl FnOnce(u64) -> String) -> Result<T, StoreError> {
        match self {
            Self::Read(value) => Ok(value),
            Self::TooMuch(amount) => Err(bad_response(&message(amount))),
        }
    }
}

impl<T: FromRedisValue> FromRedisValue for Bounded<T> {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        match value {
            Value::Int(amount) => Ok(Self::TooMuch(amount.unsigned_abs())),
            value => T::from_redis_value(value).map(Self::Read),
        }
    }
}

/// Returns a random version.
fn random_version() -> String {
    format!("{:016x}{:016x}", random::word(), random::word())
}

/// A change of a rule set, for its history.
#[derive(Clone, Copy, Debug)]
pub struct RuleChange<'a> {
    /// The caller's name.
    pub who: &'a str,
    /// What is done, such as `put rule set`.
    pub what: &'a str,
}

impl<'a> RuleChange<'a> {
    /// Returns a change that a program makes on its own, without a caller's name.
    pub const fn by_program(what: &'a str) -> Self {
        Self { who: "", what }
    }
}

/// A past change of a rule set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastChange {
    /// When it was made, in milliseconds since 1970 by the server's clock.
    pub at_ms: u64,
    /// Who made it.
    pub who: String,
    /// What was done.
    pub what: String,
    /// The text after it; `None` if the set was deleted.
    pub text: Option<String>,
}

/// Returns the line of a change: who and what, separated by a tab. The script adds the time and
/// the text.
fn change_line(change: &RuleChange<'_>) -> String {
    let clean = |text: &str| text.replace(['\t', '\n'], " ");
    format!("{}\t{}", clean(change.who), clean(change.what))
}

impl PastChange {
    /// Reads an entry of the list; `None` if something else wrote it.
    fn read(entry: &str) -> Option<Self> {
        let (line, text) = entry.split_once('\n')?;
        let (at, line) = line.split_once(' ')?;
        let (who, what) = line.split_once('\t')?;
        Some(Self {
            at_ms: at.parse().ok()?,
            who: who.to_owned(),
            what: what.to_owned(),
            text: (!text.is_empty()).then(|| text.to_owned()),
        })
    }
}

/// Reports changes of stored rules, and requests to read rules again. Messages may be lost, so
/// poll as well.
#[derive(Debug)]
pub struct RuleSubscription {
    subscription: Subscription,
    /// Why there are no messages on [`RELOAD_CHANNEL`].
    without_requests: Option<StoreError>,
    /// With sentinels, the tenure of the primary.
    tenure: Option<Tenure>,
}

impl RuleSubscription {
    async fn subscribe(node: &Arc<Node>, channel: &str) -> Result<Self, StoreError> {
        let subscribed = async {
            let (endpoint, tenure) = node.endpoint().await?;
            let mut subscription = Subscription::open(&endpoint, &[channel]).await?;
            // Apart from the other: users may have access to the channel of the prefix only.
            let without_requests = match subscription.add(RELOAD_CHANNEL).await {
                Err(error) if error.reason == reason::NOPERM => Some(error),
                added => {
                    added?;
                    None
                }
            };
            Ok(Self {
                subscription,
                without_requests,
                tenure,
            })
        };
        match timeout(2 * CONNECT_TIMEOUT, subscribed).await {
            Ok(changes) => changes,
            Err(_) => Err(no_answer(&node.name())),
        }
    }

    /// Returns why messages on [`RELOAD_CHANNEL`] do not arrive, if the user has no access to it.
    pub fn without_requests(&self) -> Option<&StoreError> {
        self.without_requests.as_ref()
    }

    /// Waits for the next message; `None` if the connection is lost or the sentinels name another
    /// primary.
    pub async fn next(&mut self) -> Option<()> {
        let Some(tenure) = &mut self.tenure else {
            return self.subscription.next().await;
        };
        let mut ended = pin!(tenure.wait_for_end());
        let mut next = pin!(self.subscription.next());
        std::future::poll_fn(|cx| match ended.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(None),
            Poll::Pending => next.as_mut().poll(cx),
        })
        .await
    }
}

/// The longest delay of a change whose message is lost.
const POLL: Duration = Duration::from_secs(5);

/// The wait before a lost subscription is opened again.
const RECONNECT: Duration = Duration::from_secs(1);

/// Why stored rules were not loaded. The last good ones stay active.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FollowError {
    /// The store failed.
    #[error("cannot read the stored rules: {0}")]
    Store(#[from] StoreError),
    /// All stored rules were deleted, or the server lost its data.
    #[error("the stored rules are gone")]
    Gone,
    /// A rule set is not valid.
    #[error("rule set {name:?}:\n{faults}")]
    Invalid {
        /// The rule set.
        name: String,
        /// All its faults.
        faults: RulesError,
    },
}

impl RuleStore {
    /// Loads all stored rule sets into a limiter, and again whenever they change, until the
    /// returned value is dropped. A later version that cannot be loaded is reported to the
    /// limiter's observer, and the last good one stays active.
    ///
    /// ```no_run
    /// # use fluxgate_core::{Limiter, RuleSets};
    /// # use fluxgate_redis::RedisStore;
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = RedisStore::connect("redis://127.0.0.1").await?;
    /// let rules = store.rule_store();
    /// let limiter = Limiter::new(RuleSets::default(), store);
    /// let _watch = rules.follow(&limiter).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn follow<S: Store + 'static>(
        &self,
        limiter: &Limiter<S>,
    ) -> Result<RuleWatch, FollowError> {
        let (mut version, rules) = self.load().await?;
        limiter.replace_rules(rules).await?;
        let (store, limiter) = (self.clone(), limiter.clone());
        let task = tokio::spawn(async move {
            let mut subscription = None;
            // The last failure, which was reported.
            let mut failed = None;
            loop {
                store.wait_for_change(&mut subscription).await;
                let loaded = match store.version().await {
                    Ok(now) if now == version => {
                        failed = None;
                        continue;
                    }
                    // A server that lost its data must not lift all limits.
                    Ok(None) => Err(FollowError::Gone),
                    Ok(_) => store.load().await,
                    Err(error) => Err(error.into()),
                };
                match loaded {
                    Ok((now, rules)) => {
                        version = now;
                        failed = None;
                        // The state of replaced rules expires by itself.
                        let _ = limiter.replace_rules(rules).await;
                        limiter.observe_rules(Ok(()));
                    }
                    Err(error) => {
                        let message = Some(error.to_string());
                        if failed != message {
                            limiter.observe_rules(Err(&error));
                        }
                        failed = message;
                    }
                }
            }
        });
        Ok(RuleWatch::new(&task))
    }

    /// Returns all rules and their version.
    async fn load(&self) -> Result<(Option<String>, RuleSets), FollowError> {
        let stored = self.read().await?;
        let mut rules = RuleSets::default();
        for (name, set) in stored.sets {
            let read = yaml::Node::parse(&set.text)
                .map_err(|fault| RulesError(vec![fault]))
                .and_then(|set| RuleSets::read_set(&name, set, RuleOptions::default()));
            match read {
                Ok(set) => rules.extend(set),
                Err(faults) => return Err(FollowError::Invalid { name, faults }),
            }
        }
        Ok((stored.version, rules))
    }

    /// Waits for a message, or until the next poll. Subscribes if there is no subscription.
    async fn wait_for_change(&self, subscription: &mut Option<RuleSubscription>) {
        if subscription.is_none() {
            *subscription = self.subscribe().await.ok();
            // There may have been a change before the subscription.
            if subscription.is_some() {
                return;
            }
        }
        match subscription {
            Some(changes) => {
                if let Ok(None) = timeout(POLL, changes.next()).await {
                    *subscription = None;
                    sleep(RECONNECT).await;
                }
            }
            None => sleep(POLL).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_etag_identifies_a_text() {
        assert_eq!(etag_of(""), "e3b0c44298fc1c149afbf4c8996fb924");
        assert_ne!(etag_of("{}"), etag_of("{ }"));
        assert_ne!(random_version(), random_version());
    }

    #[test]
    fn an_entry_is_read_as_it_was_written() {
        let written = RuleChange {
            who: "a\tnn",
            what: "put rule set",
        };
        let entry = format!("17 {}\n{{\n}}", change_line(&written));
        let change = PastChange::read(&entry).unwrap();
        assert_eq!((change.at_ms, &*change.who), (17, "a nn"));
        assert_eq!(change.what, "put rule set");
        assert_eq!(change.text.as_deref(), Some("{\n}"));
        assert_eq!(PastChange::read("x"), None);
    }
}
