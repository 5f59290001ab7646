//! The task that keeps leases: asks for more units before they are spent, renews leases
//! about to end, and returns unused units.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use fluxgate_core::internals::algorithm::Ask;
use fluxgate_core::store::Subject;
use fluxgate_core::{Band, StoreError};
use tokio::time::{Instant, sleep, timeout_at};

use crate::cluster::slot_of;
use crate::codec::{Granted, Request};
use crate::decider::Decider;
use crate::leases::{LeaseKey, Owner, PendingAsk};

/// How often it looks for leases that are idle or about to end: as often in each life.
const ROUNDS: u32 = 8;
const MIN_ROUND: Duration = Duration::from_millis(2);
/// With long leases, or without any.
const MAX_ROUND: Duration = Duration::from_secs(1);
/// How long it waits for more to ask for when it is woken, so that one call asks for all:
/// a part of the shortest life.
const GATHER_PART: u64 = 256;
const MAX_GATHER: Duration = Duration::from_millis(4);
/// Timers are no finer.
const MIN_GATHER: Duration = Duration::from_millis(1);
/// How long a store that ends waits for answers before it looks again.
const POLL: Duration = Duration::from_millis(1);

/// Starts the keeper in the current runtime, unless it runs.
pub(crate) fn start_keeper(decider: &Arc<Decider>) {
    if decider.leases.has_keeper.swap(true, Ordering::AcqRel) {
        return;
    }
    let keeper = Keeper(Arc::downgrade(decider));
    let wake = Arc::clone(&decider.leases.wake);
    tokio::spawn(async move {
        let mut next_round = Instant::now();
        loop {
            let is_round = Instant::now() >= next_round;
            let Some(round) = keeper.run(is_round) else {
                return;
            };
            let after = Instant::now() + round;
            next_round = if is_round {
                after
            } else {
                next_round.min(after)
            };
            if timeout_at(next_round, wake.notified()).await.is_ok() {
                keeper.gather().await;
            }
        }
    });
}

/// The running keeper. It does not keep the store alive.
struct Keeper(Weak<Decider>);

impl Keeper {
    /// Waits for more bands to get low, but not as long as units that are low last.
    async fn gather(&self) {
        let shortest = self.0.upgrade();
        let shortest = shortest.map_or(0, |decider| decider.leases.table.shortest());
        let gather = Duration::from_micros(shortest / GATHER_PART).min(MAX_GATHER);
        if gather >= MIN_GATHER {
            sleep(gather).await;
        }
    }

    /// Asks what is due. Returns the longest time until the next round, or `None` if the
    /// store is gone.
    fn run(&self, is_round: bool) -> Option<Duration> {
        let decider = self.0.upgrade()?;
        let leases = &decider.leases;
        if !leases.is_closing.load(Ordering::Acquire) {
            for (owner, pending) in leases.table.due(leases.now(), is_round) {
                let decider = Arc::clone(&decider);
                // No ask waits for another.
                tokio::spawn(async move { ask(&decider, owner, pending).await });
            }
        }
        if is_round {
            leases.table.update_shortest();
        }
        let life = Duration::from_micros(leases.table.shortest());
        Some((life / ROUNDS).clamp(MIN_ROUND, MAX_ROUND))
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // Its runtime may have ended, and another one go on.
        if let Some(decider) = self.0.upgrade() {
            decider.leases.has_keeper.store(false, Ordering::Release);
        }
    }
}

/// Returns all units, and requests no more: the program is about to end.
pub(crate) async fn return_all(decider: &Arc<Decider>) {
    let leases = &decider.leases;
    leases.is_closing.store(true, Ordering::Release);
    let deadline = decider.servers.deadline();
    loop {
        let mut tasks = tokio::task::JoinSet::new();
        for (owner, pending) in leases.table.return_all(leases.now()) {
            let decider = Arc::clone(decider);
            tasks.spawn(async move { ask(&decider, owner, pending).await });
        }
        let is_done = tasks.is_empty() && !leases.table.is_any_asking();
        tasks.join_all().await;
        // Units may still be on their way to us.
        if is_done || Instant::now() >= deadline {
            return;
        }
        sleep(POLL).await;
    }
}

/// Asks the store. Without an answer, the lease may ask again.
async fn ask(decider: &Decider, owner: Owner, pending: PendingAsk) {
    let table = &decider.leases.table;
    let unanswered = Unanswered(decider, pending.key);
    let Some(lease) = owner.band.lease() else {
        return;
    };
    let deadline = decider.servers.deadline();
    let sent = send(
        decider,
        owner.subject(),
        &owner.band,
        &pending.ask,
        deadline,
    );
    if let Ok(Some(granted)) = sent.await {
        table.granted(lease, &pending, &granted, decider.leases.now());
        std::mem::forget(unanswered);
    }
}

/// Returns how many units of each band of a subject are out on lease, to all instances
/// together.
pub(crate) async fn units_out(
    decider: &Decider,
    subject: Subject<'_>,
    bands: &[Band],
) -> Result<Vec<u64>, StoreError> {
    let deadline = decider.servers.deadline();
    let mut units = Vec::with_capacity(bands.len());
    for band in bands {
        // An ask that wants and reports nothing changes nothing.
        let granted = send(decider, subject, band, &Ask::default(), deadline).await?;
        units.push(granted.map_or(0, |granted| granted.grant.outstanding.into()));
    }
    Ok(units)
}

/// Sends an ask for units of a band to its server. Returns `None` if its units are not
/// leased.
async fn send(
    decider: &Decider,
    subject: Subject<'_>,
    band: &Band,
    ask: &Ask,
    deadline: Instant,
) -> Result<Option<Granted>, StoreError> {
    let Some(lease) = band.lease() else {
        return Ok(None);
    };
    let (servers, naming) = (&decider.servers, &decider.naming);
    let key = naming
        .keys(subject, std::slice::from_ref(band))
        .into_iter()
        .next();
    let slot = key.map(|key| slot_of(&key)).unwrap_or_default();
    let request = Request::ask(subject, band, lease, ask, naming);
    let answer = servers.send(request, slot, deadline).await?;
    answer.granted(lease).map(Some)
}

/// Notes that an ask got no answer, also if its task is dropped.
struct Unanswered<'d>(&'d Decider, LeaseKey);

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        self.0.leases.table.unanswered(self.1);
    }
}
