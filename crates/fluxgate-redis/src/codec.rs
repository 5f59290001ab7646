//! Encodes calls of the script and decodes its replies.
//!
//! A [`Request`] is one decision, refund, undo, cancellation, settlement, renewal or lease. A
//! [`Call`] sends several of them at once and splits the reply into one [`Answer`] each.

mod answer;
mod operations;
mod record;
mod reply;
mod request;
mod reservation;
mod settlement;
mod state;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};

use fluxgate_core::StoreError;

use crate::error::bad_response;
pub(crate) use answer::{Answer, HoldOutcome};
use operations::NO_KEY;
pub(crate) use operations::{HoldPart, PermitRequest, has_slots};
pub(crate) use record::{
    RecordedCharge, RecordedPart, charges_of, read_parts, read_record, write_parts,
};
pub(crate) use reply::parse_reply;
use request::KeyKind;
pub(crate) use request::Request;
pub(crate) use reservation::ReservationRecord;
pub(crate) use settlement::SettlementTotal;

/// One call of the script, for several requests.
///
/// The script decides the requests in order, each by itself; a later one sees
/// what an earlier one wrote.
#[derive(Debug, Default)]
pub(crate) struct Call<'r> {
    /// Every key once: first those of cells, then of logs, then others.
    pub(crate) keys: Vec<&'r [u8]>,
    pub(crate) argument: Vec<u8>,
    /// The time, for the script of tests.
    pub(crate) now: Option<String>,
    /// How many lease requests go with each request; empty if none does.
    lease_counts: Vec<usize>,
    pub(crate) has_leases: bool,
}

impl<'r> Call<'r> {
    pub(crate) fn new(requests: &[&'r Request], now: Option<String>) -> Self {
        if !requests.iter().any(|request| request.has_leases()) {
            return Self::of(requests, now);
        }
        let all: Vec<_> = requests
            .iter()
            .flat_map(|request| std::iter::once(*request).chain(&request.lease_requests))
            .collect();
        let counts = requests.iter().map(|request| request.lease_requests.len());
        Self {
            lease_counts: counts.collect(),
            has_leases: true,
            ..Self::of(&all, now)
        }
    }

    /// Returns a call of another script, on one key.
    pub(crate) fn on_key(key: &'r [u8], argument: Vec<u8>) -> Self {
        Self {
            keys: vec![key],
            argument,
            ..Self::default()
        }
    }

    fn of(requests: &[&'r Request], now: Option<String>) -> Self {
        // The keys, by kind.
        let mut lists: [Vec<&[u8]>; 3] = Default::default();
        let mut known = HashMap::new();
        let mut positions = Vec::new();
        for request in requests {
            for (name, kind) in request.keys() {
                let mut add = || {
                    let list = &mut lists[kind as usize];
                    list.push(name);
                    (kind, list.len() as u32)
                };
                // The keys of one request differ from each other.
                positions.push(if requests.len() == 1 {
                    add()
                } else {
                    *known.entry(name).or_insert_with(add)
                });
            }
        }
        let cell_count = lists[KeyKind::Cell as usize].len() as u32;
        let state_count = cell_count + lists[KeyKind::Log as usize].len() as u32;
        let sizes = requests
            .iter()
            .map(|it| it.checks.len() + it.trailers.len());
        let mut argument = Vec::with_capacity(12 + sizes.sum::<usize>());
        argument.extend_from_slice(&next_number());
        argument.extend_from_slice(&cell_count.to_le_bytes());
        let has_holds = requests.iter().any(|request| request.has_holds());
        // No call has as many keys as three bytes count.
        argument.extend_from_slice(&state_count.to_le_bytes()[..3]);
        argument.push(has_holds.into());
        let mut positions = &positions[..];
        for request in requests {
            let set_key = |number: &mut [u8]| {
                let mut bytes = [0; 4];
                bytes.copy_from_slice(number);
                let local = u32::from_le_bytes(bytes);
                if local == NO_KEY {
                    return number.fill(0);
                }
                // Lua counts from one.
                let (kind, position) = positions[local as usize];
                let before = match kind {
                    KeyKind::Cell => 0,
                    KeyKind::Log => cell_count,
                    KeyKind::Other => state_count,
                };
                number.copy_from_slice(&(before + position).to_le_bytes());
            };
            let start = argument.len();
            argument.extend_from_slice(&request.checks);
            for check in argument[start..].chunks_exact_mut(request.check_size()) {
                for at in request.key_ranges() {
                    set_key(&mut check[at.clone()]);
                }
            }
            let start = argument.len();
            argument.extend_from_slice(&request.trailers);
            for at in request.trailer_key_ranges() {
                set_key(&mut argument[start..][at]);
            }
            positions = &positions[request.keys().count()..];
        }
        Self {
            keys: lists.concat(),
            argument,
            now,
            lease_counts: Vec::new(),
            has_leases: false,
        }
    }

    /// Returns one answer for each of its `count` requests, if the reply is its own.
    pub(crate) fn answers(
        &self,
        reply: &[u8],
        count: usize,
    ) -> Result<Vec<Result<Answer, StoreError>>, StoreError> {
        match reply.split_at_checked(NUMBER_SIZE) {
            Some((number, rest)) if self.argument.starts_with(number) => {
                if self.has_leases {
                    self.answers_with_leases(rest)
                } else {
                    parse_reply(rest, count)
                }
            }
            _ => Err(bad_response("the reply belongs to another call")),
        }
    }

    fn answers_with_leases(
        &self,
        reply: &[u8],
    ) -> Result<Vec<Result<Answer, StoreError>>, StoreError> {
        let count = self.lease_counts.iter().map(|leases| leases + 1).sum();
        let mut answers = parse_reply(reply, count)?.into_iter();
        let with_leases = |leases: &usize| {
            let answer = answers
                .next()
                .unwrap_or_else(|| Err(bad_response("an answer is missing")));
            let lease_answers = answers.by_ref().take(*leases).collect();
            answer.map(|answer| Answer {
                lease_answers,
                ..answer
            })
        };
        Ok(self.lease_counts.iter().map(with_leases).collect())
    }
}

const NUMBER_SIZE: usize = size_of::<u32>();

/// Returns a number that no other call in flight has.
fn next_number() -> [u8; NUMBER_SIZE] {
    static NUMBERS: AtomicU32 = AtomicU32::new(0);
    NUMBERS.fetch_add(1, Ordering::Relaxed).to_le_bytes()
}
