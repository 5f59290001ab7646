//! Several requests in one call of the script.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};

use fluxgate_core::StoreError;

use super::request::Request;
use super::{Answer, bad_response, parse_reply};

/// The keys and the argument of one call.
///
/// Its requests are decided one after the other, each by itself; a later one
/// sees what an earlier one wrote.
#[derive(Debug)]
pub(crate) struct Call<'r> {
    /// Every key once: those of cells, then those of logs.
    pub(crate) keys: Vec<&'r [u8]>,
    /// The one argument.
    pub(crate) argument: Vec<u8>,
    /// The time, for the script of the tests.
    pub(crate) now: Option<String>,
}

impl<'r> Call<'r> {
    pub(crate) fn new(requests: &[&'r Request], now: Option<String>) -> Self {
        let mut cells = Vec::new();
        let mut logs = Vec::new();
        let mut known = HashMap::new();
        let mut places = Vec::new();
        for request in requests {
            for (name, is_log) in request.keys() {
                let mut add = || {
                    let list = if is_log { &mut logs } else { &mut cells };
                    list.push(name);
                    (is_log, list.len() as u32)
                };
                // The keys of one request are different ones.
                let is_alone = requests.len() == 1;
                let place = if is_alone {
                    add()
                } else {
                    *known.entry(name).or_insert_with(add)
                };
                places.push(place);
            }
        }
        let cell_count = cells.len() as u32;
        let bytes: usize = requests.iter().map(|request| request.checks.len()).sum();
        let mut argument = Vec::with_capacity(8 + bytes);
        argument.extend_from_slice(&next_number());
        argument.extend_from_slice(&cell_count.to_le_bytes());
        let mut places = &places[..];
        for request in requests {
            let start = argument.len();
            argument.extend_from_slice(&request.checks);
            for check in argument[start..].chunks_exact_mut(request.check_size()) {
                for at in request.keys_at() {
                    let number = &mut check[at.clone()];
                    let mut local = [0; 4];
                    local.copy_from_slice(number);
                    // Lua counts from one; logs stand after the cells.
                    let (is_log, place) = places[u32::from_le_bytes(local) as usize];
                    let place = if is_log { cell_count + place } else { place };
                    number.copy_from_slice(&place.to_le_bytes());
                }
            }
            places = &places[request.keys().count()..];
        }
        cells.extend_from_slice(&logs);
        Self {
            keys: cells,
            argument,
            now,
        }
    }

    /// One answer for each of its `count` requests, if this is its own reply.
    pub(crate) fn answers(
        &self,
        reply: &[u8],
        count: usize,
    ) -> Result<Vec<Result<Answer, StoreError>>, StoreError> {
        match (
            reply.split_at_checked(NUMBER_SIZE),
            self.argument.get(..NUMBER_SIZE),
        ) {
            (Some((number, rest)), Some(own)) if number == own => parse_reply(rest, count),
            _ => Err(bad_response("the reply is that of another call")),
        }
    }
}

const NUMBER_SIZE: usize = size_of::<u32>();

/// Calls that are under way at the same time have different numbers.
fn next_number() -> [u8; NUMBER_SIZE] {
    static NUMBERS: AtomicU32 = AtomicU32::new(0);
    NUMBERS.fetch_add(1, Ordering::Relaxed).to_le_bytes()
}
