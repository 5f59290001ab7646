//! The task that keeps leases: requests more units before they are spent, renews leases that are
//! about to end, and returns unused units.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use fluxgate_core::algorithm::LeaseRequest;
use fluxgate_core::store::Subject;
use fluxgate_core::{Band, StoreError};
use tokio::time::{Instant, sleep, timeout_at};

use crate::codec::Request;
use crate::decider::Decider;
use crate::lease::{DueRequest, GrantReply, LeaseKey};

/// How often it looks at all leases within the shortest span.
const ROUNDS: u32 = 8;
const MIN_ROUND: Duration = Duration::from_millis(2);
/// With long leases, or without any.
const MAX_ROUND: Duration = Duration::from_secs(1);
/// A keeper that is woken waits for this part of the shortest span, so that one call requests
/// units of all bands that are low.
const GATHER_PART: u64 = 256;
const MAX_GATHER: Duration = Duration::from_millis(4);
/// Timers are no finer.
const MIN_GATHER: Duration = Duration::from_millis(1);
/// The wait between two looks at the leases of a store that is closing.
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
    /// Waits for more bands to get low, but not until the first of them has no units left.
    async fn gather(&self) {
        let decider = self.0.upgrade();
        let shortest = decider.map_or(0, |decider| decider.leases.table.shortest_span());
        let gather = Duration::from_micros(shortest / GATHER_PART).min(MAX_GATHER);
        if gather >= MIN_GATHER {
            sleep(gather).await;
        }
    }

    /// Sends the requests that are due. Returns the longest time until the next round, or `None`
    /// if the store is gone.
    fn run(&self, is_round: bool) -> Option<Duration> {
        let decider = self.0.upgrade()?;
        let leases = &decider.leases;
        if !leases.is_closing.load(Ordering::Acquire) {
            for due in leases.table.due_requests(leases.now(), is_round) {
                let decider = Arc::clone(&decider);
                // No request waits for another.
                tokio::spawn(async move { send_due(&decider, due).await });
            }
        }
        if is_round {
            leases.table.update_shortest_span();
        }
        let span = Duration::from_micros(leases.table.shortest_span());
        Some((span / ROUNDS).clamp(MIN_ROUND, MAX_ROUND))
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // The store may be used on another runtime after this one ends.
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
        for due in leases.table.return_all(leases.now()) {
            let decider = Arc::clone(decider);
            tasks.spawn(async move { send_due(&decider, due).await });
        }
        // Grants may still be on their way.
        let is_done = tasks.is_empty() && !leases.table.is_requesting();
        tasks.join_all().await;
        if is_done || Instant::now() >= deadline {
            return;
        }
        sleep(POLL).await;
    }
}

/// Sends a lease request and adds its grant.
async fn send_due(decider: &Decider, DueRequest { owner, pending }: DueRequest) {
    let unanswered = Unanswered(decider, pending.key);
    let (subject, band) = (owner.subject(), owner.band());
    let Some(lease) = band.lease() else {
        return;
    };
    let deadline = decider.servers.deadline();
    if let Ok(Some(reply)) = send(decider, subject, band, &pending.request, deadline).await {
        let leases = &decider.leases;
        leases
            .table
            .add_grant(lease, &pending, &reply, leases.now());
        std::mem::forget(unanswered);
    }
}

/// Returns how many units of each band of a subject are out on lease, to all instances together.
pub(crate) async fn units_out(
    decider: &Decider,
    subject: Subject<'_>,
    bands: &[Band],
) -> Result<Vec<u64>, StoreError> {
    let deadline = decider.servers.deadline();
    let mut units = Vec::with_capacity(bands.len());
    for band in bands {
        // A request that wants and reports nothing changes nothing.
        let reply = send(decider, subject, band, &LeaseRequest::default(), deadline).await?;
        units.push(reply.map_or(0, |reply| reply.grant.outstanding.into()));
    }
    Ok(units)
}

/// Requests a lease of a band. Returns `None` if its units are not leased.
async fn send(
    decider: &Decider,
    subject: Subject<'_>,
    band: &Band,
    request: &LeaseRequest,
    deadline: Instant,
) -> Result<Option<GrantReply>, StoreError> {
    let Some(lease) = band.lease() else {
        return Ok(None);
    };
    let request = Request::lease(subject, band, lease, request, &decider.naming);
    let answer = decider.servers.send(request, deadline).await?;
    answer.grant_reply(lease).map(Some)
}

/// Records on drop that a request got no answer.
struct Unanswered<'d>(&'d Decider, LeaseKey);

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        self.0.leases.table.record_no_answer(self.1);
    }
}
