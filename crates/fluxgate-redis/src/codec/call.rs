//! Several requests in one call of the script.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};

use fluxgate_core::StoreError;

use super::request::{KeyKind, Request};
use super::{Answer, bad_response, parse_reply};

/// The keys and the argument of one call.
///
/// Its requests are decided one after the other, each by itself; a later one
/// sees what an earlier one wrote.
#[derive(Debug)]
pub(crate) struct Call<'r> {
    /// Every key once: those of cells, those of logs, then others.
    pub(crate) keys: Vec<&'r [u8]>,
    /// The one argument.
    pub(crate) argument: Vec<u8>,
    /// The time, for the script of the tests.
    pub(crate) now: Option<String>,
}

impl<'r> Call<'r> {
    pub(crate) fn new(requests: &[&'r Request], now: Option<String>) -> Self {
        // By what stands at them.
        let mut lists: [Vec<&[u8]>; 3] = Default::default();
        let mut known = HashMap::new();
        let mut places = Vec::new();
        for request in requests {
            for (name, kind) in request.keys() {
                let mut add = || {
                    let list = &mut lists[kind as usize];
                    list.push(name);
                    (kind, list.len() as u32)
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
        let cell_count = lists[KeyKind::Cell as usize].len() as u32;
        let state_count = cell_count + lists[KeyKind::Log as usize].len() as u32;
        let bytes = requests.iter();
        let bytes: usize = { bytes }.map(|it| it.checks.len() + it.place.len()).sum();
        let mut argument = Vec::with_capacity(12 + bytes);
        argument.extend_from_slice(&next_number());
        argument.extend_from_slice(&cell_count.to_le_bytes());
        argument.extend_from_slice(&state_count.to_le_bytes());
        let mut places = &places[..];
        for request in requests {
            let set_key = |number: &mut [u8]| {
                let mut local = [0; 4];
                local.copy_from_slice(number);
                // Lua counts from one; logs come after the cells, and others last.
                let (kind, place) = places[u32::from_le_bytes(local) as usize];
                let before = match kind {
                    KeyKind::Cell => 0,
                    KeyKind::Log => cell_count,
                    KeyKind::Places => state_count,
                };
                number.copy_from_slice(&(before + place).to_le_bytes());
            };
            let start = argument.len();
            argument.extend_from_slice(&request.checks);
            for check in argument[start..].chunks_exact_mut(request.check_size()) {
                for at in request.keys_at() {
                    set_key(&mut check[at.clone()]);
                }
            }
            let start = argument.len();
            argument.extend_from_slice(&request.place);
            if let Some(number) = argument[start..].get_mut(..4) {
                set_key(number);
            }
            places = &places[request.keys().count()..];
        }
        Self {
            keys: lists.concat(),
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
