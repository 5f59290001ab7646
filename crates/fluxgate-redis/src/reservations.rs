//! Reservations, which any process can cancel by id, once.
//!
//! The record of a reservation has the requests that cancel it. A script removes the record
//! before any units return. If a reply is lost or a process crashes after that, units stay
//! charged, and none returns twice.

use std::sync::{Arc, LazyLock};

use fluxgate_core::StoreError;
use fluxgate_core::store::{HoldId, KeptReservation, Settlement, Timestamp};
use redis::Value;

use crate::codec::{Call, Request, ReservationRecord};
use crate::decider::Decider;
use crate::error::unexpected;
use crate::holds::{self, time_to_live};
use crate::node::Operation;
use crate::script::Script;

static TAKE: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("lua/take_reservation.lua")));

/// Writes the record of a reservation. Returns whether there is one: without any charge, there
/// is nothing to cancel.
pub(crate) async fn keep(
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
pub(crate) async fn cancel(decider: &Arc<Decider>, id: HoldId) -> Result<bool, StoreError> {
    let Some(record) = take(decider, id).await? else {
        return Ok(false);
    };
    // Releases the slots; the charges of rates are cancelled below. If the hold has been settled,
    // the settlement has decided its units.
    if record.is_held
        && holds::settle(decider, id, Settlement::Cancelled)
            .await?
            .is_none()
    {
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
async fn take(decider: &Decider, id: HoldId) -> Result<Option<ReservationRecord>, StoreError> {
    let key = decider.naming.reservation(id);
    let call = Call::on_key(&key, Vec::new());
    let take = Operation::Script(&TAKE, &call);
    let servers = &decider.servers;
    let taken = servers.perform(take, &key, servers.deadline()).await?;
    let (record, time) = parse(&taken).ok_or_else(|| unexpected("the script for reservations"))?;
    let record = record.map(ReservationRecord::read).transpose()?;
    let now = servers.test_time().map_or(time, Timestamp::micros);
    Ok(record.filter(|record| record.until.micros() > now))
}

/// Returns the record, if there is one, and the time in microseconds.
fn parse(reply: &Value) -> Option<(Option<&[u8]>, u64)> {
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
