//! Settles and renews holds by their records.
//!
//! The record of a hold has its charges. On a single server the first round trip reads it. The
//! second one changes the charges and deletes the record, unless another process has done so in
//! between. On a cluster a list has the keys of the parts, and each part is settled at most
//! once.
//!
//! Any process can cancel a reservation by id, once. The record of a reservation has the requests
//! that cancel it. A script removes the record before any units return. If a reply is lost or a
//! process crashes after that, units stay charged, and none returns twice.

use std::sync::{Arc, LazyLock};

use fluxgate_core::StoreError;
use fluxgate_core::store::{HoldId, KeptReservation, Micros, Settled, Settlement, Timestamp};
use redis::{Cmd, Value};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::codec::{
    Answer, Call, HoldOutcome, RecordedCharge, RecordedPart, Request, ReservationRecord,
    SettlementTotal, read_parts, read_record, write_parts,
};
use crate::decider::Decider;
use crate::error::unexpected;
use crate::node::Operation;
use crate::script::Script;

/// How much longer than needed a key lives: the list of a hold must not expire before its parts,
/// and the record of a reservation has the exact time itself.
const MARGIN_MS: u64 = 1000;
/// The time to live of keys in a test that sets the time: longer than the test.
const TEST_MILLIS: u64 = 100_000_000_000;
/// The most holds that are renewed within one deadline.
const MAX_RENEWALS: usize = 128;

/// Settles a hold. Returns `None` if there is no such hold.
pub(crate) async fn settle(
    decider: &Arc<Decider>,
    id: HoldId,
    settlement: Settlement<'_>,
) -> Result<Option<Settled>, StoreError> {
    let deadline = decider.servers.deadline();
    let key = decider.naming.hold(id);
    let Some(parts) = parts_of(decider, &key, deadline).await? else {
        return Ok(None);
    };
    let requests = parts
        .iter()
        .map(|part| Request::settle(&part.key, id, &part.charges, &settlement));
    let outcomes = send_all(decider, requests.collect(), deadline).await;
    let mut total = SettlementTotal::default();
    let mut is_held = false;
    let mut failed = Ok(());
    for (part, outcome) in parts.iter().zip(outcomes) {
        match outcome {
            Ok(HoldOutcome::Settled(charged)) => {
                is_held = true;
                total.add(&part.charges, &settlement, &charged);
            }
            Ok(_) => {}
            Err(cause) => failed = Err(cause),
        }
    }
    if total.has_changed || failed.is_err() {
        // Denials from before may no longer hold, or have other numbers.
        decider.forget_denials();
    }
    // The list stays until all parts are settled. If the hold has expired, it stays as long as
    // the request may be cancelled.
    failed?;
    if is_held && decider.servers.is_cluster(deadline).await? {
        delete_list(decider, id, deadline).await;
    }
    Ok(is_held.then(|| total.settled()))
}

/// Extends holds to a span from now. Returns for each whether it still exists.
pub(crate) async fn renew(
    decider: &Arc<Decider>,
    holds: &[(HoldId, Micros)],
) -> Result<Vec<bool>, StoreError> {
    let mut renewed = Vec::with_capacity(holds.len());
    let mut failed = Ok(());
    for holds in holds.chunks(MAX_RENEWALS) {
        let deadline = decider.servers.deadline();
        let outcomes = if decider.servers.is_cluster(deadline).await? {
            renew_on_cluster(decider, holds, deadline).await
        } else {
            renew_on_server(decider, holds, deadline).await
        };
        match outcomes {
            Ok(outcomes) => renewed.extend(outcomes),
            // The others are still renewed.
            Err(cause) => failed = Err(cause),
        }
    }
    failed.map(|()| renewed)
}

async fn renew_on_server(
    decider: &Arc<Decider>,
    holds: &[(HoldId, Micros)],
    deadline: Instant,
) -> Result<Vec<bool>, StoreError> {
    let keys: Vec<_> = holds
        .iter()
        .map(|(id, _)| decider.naming.hold(*id))
        .collect();
    let Some(first) = keys.first() else {
        return Ok(Vec::new());
    };
    let mut get = redis::cmd("MGET");
    get.arg(&keys);
    let get = Operation::Command(&get);
    let records = decider.servers.perform(get, first, deadline).await?;
    let records: Vec<Option<Vec<u8>>> =
        redis::from_redis_value(records).map_err(|_| unexpected("MGET"))?;
    if records.len() != keys.len() {
        return Err(unexpected("MGET"));
    }
    let mut requests = Vec::new();
    for ((key, record), (id, span)) in keys.iter().zip(&records).zip(holds) {
        if let Some(record) = record {
            let charges = read_record(record)?;
            requests.push(Request::renew(key, *id, &charges, *span, *span));
        }
    }
    let mut outcomes = send_all(decider, requests, deadline).await.into_iter();
    let renewed = records.iter().map(|record| match record {
        Some(_) => Ok(outcomes.next().transpose()? == Some(HoldOutcome::Renewed)),
        None => Ok(false),
    });
    renewed.collect()
}

async fn renew_on_cluster(
    decider: &Arc<Decider>,
    holds: &[(HoldId, Micros)],
    deadline: Instant,
) -> Result<Vec<bool>, StoreError> {
    let mut tasks = JoinSet::new();
    for (at, (id, span)) in holds.iter().copied().enumerate() {
        let decider = Arc::clone(decider);
        tasks.spawn(async move { (at, renew_parts(&decider, id, span, deadline).await) });
    }
    let mut renewed = vec![Ok(false); holds.len()];
    while let Some(task) = tasks.join_next().await {
        let (at, outcome) = task.map_err(|_| unexpected("a renewal"))?;
        renewed[at] = outcome;
    }
    renewed.into_iter().collect()
}

/// Renews all parts of a hold. It exists as long as one of them does.
async fn renew_parts(
    decider: &Arc<Decider>,
    id: HoldId,
    span: Micros,
    deadline: Instant,
) -> Result<bool, StoreError> {
    let key = decider.naming.hold(id);
    let Some(parts) = parts_of(decider, &key, deadline).await? else {
        return Ok(false);
    };
    let charges = parts.iter().flat_map(|part| &part.charges);
    let life = charges
        .clone()
        .filter(|charge| charge.units > 0)
        .filter_map(RecordedCharge::longest)
        .map(|longest| Micros::new(longest).min(span))
        .max()
        .unwrap_or(span);
    // Extended before the parts, so that it does not expire before them or while the request
    // may wait.
    let list_life = charges
        .map(RecordedCharge::longest_wait)
        .fold(life, Micros::max);
    let mut expire = redis::cmd("PEXPIRE");
    expire.arg(&key).arg(time_to_live(decider, list_life));
    let expire = Operation::Command(&expire);
    decider.servers.perform(expire, &key, deadline).await?;
    let requests = parts
        .iter()
        .map(|part| Request::renew(&part.key, id, &part.charges, span, life));
    let mut exists = false;
    for outcome in send_all(decider, requests.collect(), deadline).await {
        exists |= outcome? == HoldOutcome::Renewed;
    }
    Ok(exists)
}

/// Writes the list of the parts of a hold, which lives at least as long as they do.
pub(crate) async fn write_list(
    decider: &Decider,
    id: HoldId,
    parts: &[RecordedPart],
    life: Micros,
    deadline: Instant,
) -> Result<(), StoreError> {
    let key = decider.naming.hold(id);
    let mut set = redis::cmd("SET");
    set.arg(&key).arg(write_parts(parts)).arg("PX");
    set.arg(time_to_live(decider, life));
    let set = Operation::Command(&set);
    decider.servers.perform(set, &key, deadline).await?;
    Ok(())
}

/// Deletes the list of the parts of a hold. If that fails, the list expires.
pub(crate) async fn delete_list(decider: &Decider, id: HoldId, deadline: Instant) {
    let key = decider.naming.hold(id);
    let _ = decider.servers.unlink(&[key], deadline).await;
}

/// Returns the time to live of a key that is needed for this long.
fn time_to_live(decider: &Decider, life: Micros) -> u64 {
    if decider.servers.test_time().is_some() {
        // The server's clock does not follow that of a test.
        TEST_MILLIS
    } else {
        life.ceil_millis() + MARGIN_MS
    }
}

/// Returns the parts of the hold with this key, if there is one. On a single server it has only
/// one.
async fn parts_of(
    decider: &Decider,
    key: &[u8],
    deadline: Instant,
) -> Result<Option<Vec<RecordedPart>>, StoreError> {
    let get = Cmd::get(key);
    let get = Operation::Command(&get);
    let record = match decider.servers.perform(get, key, deadline).await? {
        Value::Nil => return Ok(None),
        Value::BulkString(record) => record,
        _ => return Err(unexpected("GET")),
    };
    if decider.servers.is_cluster(deadline).await? {
        return read_parts(&record).map(Some);
    }
    Ok(Some(vec![RecordedPart {
        key: key.to_vec(),
        charges: read_record(&record)?,
    }]))
}

/// Sends requests, all at once. Returns the outcome of each.
async fn send_all(
    decider: &Arc<Decider>,
    mut requests: Vec<Request>,
    deadline: Instant,
) -> Vec<Result<HoldOutcome, StoreError>> {
    let servers = &decider.servers;
    if requests.len() == 1
        && let Some(request) = requests.pop()
    {
        let answer = servers.send(request, deadline).await;
        return vec![answer.and_then(Answer::into_hold_outcome)];
    }
    let mut outcomes = vec![Err(unexpected("the script")); requests.len()];
    let mut tasks = JoinSet::new();
    for (at, request) in requests.into_iter().enumerate() {
        let servers = Arc::clone(servers);
        tasks.spawn(async move { (at, servers.send(request, deadline).await) });
    }
    while let Some(task) = tasks.join_next().await {
        if let Ok((at, answer)) = task {
            outcomes[at] = answer.and_then(Answer::into_hold_outcome);
        }
    }
    outcomes
}

static TAKE: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("lua/take_reservation.lua")));

/// Writes the record of a reservation. Returns whether there is one: without any charge, there
/// is nothing to cancel.
pub(crate) async fn keep_reservation(
    decider: &Decider,
    reservation: &KeptReservation<'_>,
) -> Result<bool, StoreError> {
    let naming = &decider.naming;
    let requests = reservation
        .charges
        .iter()
        .filter(|charge| !charge.bands.is_empty() && !charge.charged.is_empty())
        .map(|charge| {
            Request::cancel(
                charge.subject,
                charge.bands,
                charge.units,
                charge.charged,
                naming,
            )
        });
    let record = ReservationRecord {
        until: reservation.until,
        is_held: reservation.is_held,
        requests: requests.collect(),
    };
    if record.requests.is_empty() {
        return Ok(false);
    }
    let millis = time_to_live(decider, reservation.wait);
    let key = naming.reservation(reservation.id);
    let mut set = redis::cmd("PSETEX");
    set.arg(&key).arg(millis).arg(record.write());
    let deadline = decider.servers.deadline();
    let set = Operation::Command(&set);
    decider.servers.perform(set, &key, deadline).await?;
    Ok(true)
}

/// Cancels a reservation. Returns `false` if there is none, or if the request has proceeded.
pub(crate) async fn cancel_reservation(
    decider: &Arc<Decider>,
    id: HoldId,
) -> Result<bool, StoreError> {
    let Some(record) = take_reservation(decider, id).await? else {
        return Ok(false);
    };
    // Releases the slots; the charges of rates are cancelled below. If the hold has been settled,
    // the settlement has decided its units.
    if record.is_held && settle(decider, id, Settlement::Cancelled).await?.is_none() {
        return Ok(false);
    }
    let servers = &decider.servers;
    let mut cancelled = Ok(());
    for request in record.requests {
        let answer = servers.send(request, servers.deadline()).await;
        cancelled = cancelled.and(answer.map(drop));
    }
    // Denials from before may no longer hold, including those on their way.
    decider.forget_denials();
    cancelled.map(|()| true)
}

/// Removes and returns the record of a reservation whose request still waits.
async fn take_reservation(
    decider: &Decider,
    id: HoldId,
) -> Result<Option<ReservationRecord>, StoreError> {
    let key = decider.naming.reservation(id);
    let call = Call::on_key(&key, Vec::new());
    let take = Operation::Script(&TAKE, &call);
    let servers = &decider.servers;
    let taken = servers.perform(take, &key, servers.deadline()).await?;
    let (record, time) =
        parse_taken(&taken).ok_or_else(|| unexpected("the script for reservations"))?;
    let record = record.map(ReservationRecord::read).transpose()?;
    let now = servers.test_time().map_or(time, Timestamp::micros);
    Ok(record.filter(|record| record.until.micros() > now))
}

/// Returns the record, if there is one, and the time in microseconds.
fn parse_taken(reply: &Value) -> Option<(Option<&[u8]>, u64)> {
    let Value::Array(reply) = reply else {
        return None;
    };
    let [record, Value::BulkString(time)] = &reply[..] else {
        return None;
    };
    let time = str::from_utf8(time).ok()?.parse().ok()?;
    match record {
        Value::Nil => Some((None, time)),
        Value::BulkString(record) => Some((Some(record), time)),
        _ => None,
    }
}
