//! What identities have used: the heaviest of each rule, and what the instances know of their last
//! minute. Nothing of it is on the path of a decision.

mod forecast;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod heaviest;
mod names;
mod shared_top;

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fluxgate_core::{StoreError, StoredIdentity};
use fluxgate_redis::{HourlyUnits, RuleHour, UsageBatch};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

pub(crate) use forecast::exhausted_in;
pub(crate) use names::RuleNames;
pub(crate) use shared_top::{FleetEntry, FleetTop, OwnTop, TopWindow};

use crate::engine::Engine;
use crate::instances::Instances;
use crate::telemetry::{TopBy, is_text, unix_time};
use heaviest::{HOUR, Heaviest};
use shared_top::{SharedTop, sum};

/// How often the units of the last second are taken from the counters.
const TAKE_INTERVAL: Duration = Duration::from_secs(1);
/// How many of these it takes until they are written to Redis.
const WRITE_EVERY: u32 = 5;
/// How long Redis keeps an hour: nothing looks further back than the last 60 minutes.
const KEPT_FOR: Duration = Duration::from_secs(2 * HOUR);
/// How long other instances see what this one shares.
const SHARED_FOR: Duration = Duration::from_secs(15);
/// How long the last write may take.
const LAST_WRITE: Duration = Duration::from_secs(1);
const TOP: &str = "top";

/// The usage that this instance has counted.
#[derive(Debug)]
pub(crate) struct Usage {
    /// `None` if nothing is recorded.
    heaviest: Option<RecordedUsage>,
}

/// The usage that is recorded.
#[derive(Debug)]
struct RecordedUsage {
    /// How many identities are kept of each rule and hour.
    most: usize,
    heaviest: Mutex<Heaviest>,
}

/// The units that an identity was charged within the last hour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HourlyUse {
    pub(crate) identity: StoredIdentity,
    pub(crate) units: u64,
}

impl Usage {
    /// Creates it. `identities` is how many are kept of each rule and hour; without it, nothing is
    /// recorded, and instances only share their last minute.
    pub(crate) fn new(identities: Option<usize>) -> Self {
        let heaviest = identities.map(|most| RecordedUsage {
            most,
            heaviest: Mutex::new(Heaviest::new(most)),
        });
        Self { heaviest }
    }

    /// Collects and shares until the service closes.
    pub(crate) async fn run(
        &self,
        engine: &Engine,
        instances: &Instances,
        closing: &CancellationToken,
    ) {
        let mut seconds = tokio::time::interval(TAKE_INTERVAL);
        seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut round = 0;
        loop {
            tokio::select! {
                _ = seconds.tick() => {}
                () = closing.cancelled() => return,
            }
            if let Some(recorded) = &self.heaviest {
                recorded.take(engine);
            }
            round = (round + 1) % WRITE_EVERY;
            if round == 0 {
                self.write(engine, instances).await;
            }
        }
    }

    /// Writes what is not written yet, once no more decisions are made.
    pub(crate) async fn finish(&self, engine: &Engine, instances: &Instances) {
        if let Some(recorded) = &self.heaviest {
            recorded.take(engine);
        }
        let _ = tokio::time::timeout(LAST_WRITE, self.write(engine, instances)).await;
    }

    /// Returns the identities that a rule has charged most within the last hour, at most `most`.
    pub(crate) async fn heaviest(
        &self,
        engine: &Engine,
        rule_set: &str,
        rule: &str,
        most: usize,
    ) -> Result<Vec<HourlyUse>, StoreError> {
        let Some(recorded) = &self.heaviest else {
            return Ok(Vec::new());
        };
        recorded.take(engine);
        let now = unix_time();
        let mut sums: HashMap<StoredIdentity, u64> = HashMap::new();
        match engine.store().redis() {
            None => {
                let heaviest = recorded.lock();
                for (identity, units) in heaviest.last_hour(rule_set, rule, now) {
                    *sums.entry(identity.clone()).or_default() += units;
                }
            }
            Some(store) => {
                let hour = now.as_secs() / HOUR;
                let hours = [hour, hour.saturating_sub(1)].map(|hour| RuleHour {
                    rule_set,
                    rule,
                    hour,
                });
                let found = store.usage_record().heaviest(&hours, most).await?;
                for (at, units) in hours.iter().zip(found) {
                    for (handle, units) in units {
                        let units = heaviest::within_last_hour(units, at.hour, now);
                        // A handle of another secret refers to nothing any more.
                        if let Ok(target) = engine.identities().open(&handle) {
                            let sum = sums.entry(target.identity).or_default();
                            *sum = sum.saturating_add(units);
                        }
                    }
                }
            }
        }
        let uses = sums
            .into_iter()
            .map(|(identity, units)| HourlyUse { identity, units });
        let mut uses: Vec<_> = uses.filter(|it| it.units > 0).collect();
        uses.sort_by(|a, b| (b.units, &a.identity).cmp(&(a.units, &b.identity)));
        uses.truncate(most);
        Ok(uses)
    }

    /// Adds what the other instances share to the heaviest identities of this one's last minute.
    pub(crate) async fn fleet_top(
        &self,
        engine: &Engine,
        instances: &Instances,
        window: TopWindow,
        by: TopBy,
        own: OwnTop,
    ) -> FleetTop {
        let shared = match engine.store().redis() {
            None => None,
            Some(store) => Some(
                async {
                    let mut ids = store.heartbeats().ids().await?;
                    ids.retain(|id| id != instances.id());
                    store.usage_record().shared(TOP, &ids).await
                }
                .await,
            ),
        };
        let (others, failure) = match shared {
            None => (Vec::new(), None),
            Some(Ok(shared)) => (shared, None),
            Some(Err(error)) => (Vec::new(), Some(error.to_string())),
        };
        // Other versions may share something else.
        let others: Vec<_> = others.iter().filter_map(|it| SharedTop::read(it)).collect();
        FleetTop {
            failure,
            ..sum(own, &others, by, window)
        }
    }

    /// Writes to Redis what is not there yet, and what the others need to know of the last minute, in one
    /// pipeline. What cannot be written is written the next time.
    async fn write(&self, engine: &Engine, instances: &Instances) {
        let Some(store) = engine.store().redis() else {
            return;
        };
        let (record, identities) = (store.usage_record(), engine.identities());
        let unsent = self.heaviest.as_ref().map(|it| it.lock().unsent());
        let unsent = unsent.unwrap_or_default();
        let units = unsent.iter().map(|unsent| {
            let (rule_set, rule) = (&*unsent.rule_set, &*unsent.rule);
            let named = unsent.units.iter().filter_map(|(identity, units)| {
                Some((identities.handle(rule_set, rule, identity)?, *units))
            });
            HourlyUnits {
                at: RuleHour {
                    rule_set,
                    rule,
                    hour: unsent.hour,
                },
                units: named.collect(),
            }
        });
        let names = RuleNames::of(engine);
        let shared = SharedTop::collect(
            |window, by, most| {
                let includes = |rule: _, _: &[u8]| names.knows(rule);
                engine.telemetry().top(by, window, most, includes)
            },
            |rule, identity| names.handle(identities, rule, identity),
        );
        let batch = UsageBatch {
            units: units.collect(),
            most: self.heaviest.as_ref().map_or(0, |it| it.most),
            units_ttl: KEPT_FOR,
            kind: TOP,
            shared: shared.write(),
            shared_ttl: SHARED_FOR,
        };
        let written = record.write(instances.id(), &batch).await;
        drop(batch);
        if let Some(recorded) = &self.heaviest {
            let mut heaviest = recorded.lock();
            // Failures show up in the breaker state.
            for (unsent, _) in unsent.iter().zip(written).filter(|(_, it)| it.is_ok()) {
                heaviest.mark_sent(unsent);
            }
        }
    }
}

impl RecordedUsage {
    /// Takes the units of the last second from the counters.
    fn take(&self, engine: &Engine) {
        let mut taken: HashMap<_, u64> = HashMap::new();
        engine.telemetry().take_units(|rule, identity, units| {
            *taken.entry((rule, identity.to_vec())).or_default() += units;
        });
        if taken.is_empty() {
            return;
        }
        let names = RuleNames::of(engine);
        let now = unix_time();
        let mut heaviest = self.lock();
        for ((number, identity), units) in taken {
            // What is kept of an identity that is too long finds nothing.
            let is_short = !is_text(&identity);
            // Limits that come with the call have no numbers of their own.
            if let Some((rule_set, rule)) = names.rule(number).filter(|_| is_short) {
                let stored = engine.identities().stored(rule_set, rule, &identity);
                heaviest.add(rule_set, rule, stored, units, now);
            }
        }
        heaviest.trim(now);
    }

    fn lock(&self) -> MutexGuard<'_, Heaviest> {
        self.heaviest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
