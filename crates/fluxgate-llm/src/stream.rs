//! Streamed answers.

use memchr::memmem;

use crate::api::Api;
use crate::events::{EventData, EventSplitter};
use crate::usage_tally::UsageTally;

/// The most bytes of an event that are held. A longer event is not the one with the usage.
const MAX_HELD: usize = 64 * 1024;

/// The most bytes, white space included, in which the start of a choice is recognized.
const MAX_CHOICE: usize = 32;

/// Reads a stream of events while it passes.
///
/// Bytes pass at once, with one exception: if the event with the usage must be removed, the
/// start of an event is held until it cannot be that event, at the latest until it ends.
/// Servers write whole events, so that is rare.
///
/// Only the event that `include_usage` adds at the end is removed. The `"usage":null` that it
/// adds to the others stays: clients ignore it, and events stay as the upstream wrote them.
#[derive(Debug)]
pub(crate) struct StreamScanner {
    splitter: EventSplitter,
    pub(crate) tally: UsageTally,
    removes_usage: bool,
    /// The start of the current event that came in earlier chunks and was not passed on.
    held: Vec<u8>,
    /// Whether the start of the current event was passed on.
    is_released: bool,
    /// Whether the last event that ended was removed.
    was_removed: bool,
}

impl StreamScanner {
    pub(crate) fn new(api: Api, removes_usage: bool) -> Self {
        Self {
            splitter: EventSplitter::new(api),
            tally: UsageTally::new(api),
            removes_usage,
            held: Vec::new(),
            is_released: false,
            was_removed: false,
        }
    }

    /// Reads a chunk. Returns the bytes to pass on instead of it, if they differ.
    pub(crate) fn feed(&mut self, chunk: &[u8]) -> Option<Vec<u8>> {
        let mut output = ChunkOutput::new(chunk);
        let line_feed = self.splitter.rest_of_line_end(chunk);
        // Where the current event starts, or goes on from the chunk before.
        let mut start = 0;
        if self.splitter.is_between_events() && line_feed > 0 {
            start = line_feed;
            if self.was_removed {
                output.remove(0, start);
            }
        }
        let mut from = line_feed;
        while let Some(end) = self.splitter.next(chunk, from) {
            let is_usage_only = add_event(&mut self.tally, self.splitter.data());
            self.was_removed = is_usage_only && self.removes_usage && !self.is_released;
            if self.was_removed {
                self.held.clear();
                output.remove(start, end);
            } else {
                output.put_before(std::mem::take(&mut self.held));
            }
            self.is_released = false;
            (start, from) = (end, end);
        }
        if self.removes_usage && !self.is_released && start < chunk.len() {
            self.hold(start, &mut output);
        }
        output.finish()
    }

    /// Ends the stream, which may have been cut off. Returns the bytes that are left to pass on.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        let held = std::mem::take(&mut self.held);
        if add_event(&mut self.tally, self.splitter.finish()) {
            Vec::new()
        } else {
            held
        }
    }

    /// Holds the chunk from `start` on, unless that cannot be the start of the usage.
    fn hold(&mut self, start: usize, output: &mut ChunkOutput<'_>) {
        let searched = self.held.len().saturating_sub(MAX_CHOICE);
        self.held.extend_from_slice(&output.chunk[start..]);
        output.remove(start, output.chunk.len());
        if self.held.len() > MAX_HELD || has_choice(&self.held[searched..]) {
            output.append(&self.held);
            self.held.clear();
            self.is_released = true;
        }
    }
}

/// Returns whether an event has the start of a choice, so that it is not usage alone.
fn has_choice(event: &[u8]) -> bool {
    let name = br#""choices""#;
    let mut found = memmem::find_iter(event, name);
    found.any(|at| {
        let after = event[at + name.len()..].iter();
        let significant = after.filter(|byte| !byte.is_ascii_whitespace());
        significant.take(3).eq(b":[{")
    })
}

/// Adds the data of an event. Returns whether it is the one that only `include_usage` adds.
fn add_event(tally: &mut UsageTally, data: EventData<'_>) -> bool {
    match data {
        EventData::None => false,
        EventData::Whole(data) => tally.add_event(data),
        EventData::TooLarge(size, usage) => {
            tally.add_large_event(size, usage);
            false
        }
    }
}

/// The bytes to pass on for a chunk. They are copied only if they differ from it.
struct ChunkOutput<'a> {
    chunk: &'a [u8],
    /// The bytes in place of the first `done` ones, once something differs.
    changed: Option<Vec<u8>>,
    done: usize,
}

impl<'a> ChunkOutput<'a> {
    fn new(chunk: &'a [u8]) -> Self {
        Self {
            chunk,
            changed: None,
            done: 0,
        }
    }

    /// Adds bytes of earlier chunks, before all of this one.
    fn put_before(&mut self, held: Vec<u8>) {
        if !held.is_empty() {
            self.changed = Some(held);
        }
    }

    fn remove(&mut self, start: usize, end: usize) {
        let changed = self.changed.get_or_insert_default();
        changed.extend_from_slice(&self.chunk[self.done..start]);
        self.done = end;
    }

    /// Adds bytes after those that are done.
    fn append(&mut self, bytes: &[u8]) {
        self.changed
            .get_or_insert_default()
            .extend_from_slice(bytes);
    }

    fn finish(self) -> Option<Vec<u8>> {
        let mut changed = self.changed?;
        changed.extend_from_slice(&self.chunk[self.done..]);
        Some(changed)
    }
}
