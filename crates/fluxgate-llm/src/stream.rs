//! Streamed answers.

use memchr::{memchr2, memmem};

use crate::api::Api;
use crate::usage::{ReportedUsage, UsageFinder};
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
        if self.splitter.ended && line_feed > 0 {
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

/// The most data of an event that is kept.
pub(crate) const MAX_EVENT: usize = 1024 * 1024;

/// The capacity that buffers keep between events.
const KEPT_CAPACITY: usize = 64 * 1024;

/// The number of bytes that tell which field a line has: a byte order mark and `data: `.
const FIELD_LEN: usize = 9;

/// The data of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventData<'a> {
    /// No data, only comments or other fields.
    None,
    /// The lines of data, joined by line feeds.
    Whole(&'a [u8]),
    /// The size of data that was too large to keep, and the usage in it.
    TooLarge(u64, ReportedUsage),
}

/// Finds the events of a stream, as the HTML standard defines them: lines end with CR, LF or
/// both, and an empty line ends an event. An event that the end of the stream cuts off is
/// read as well. A comment before the fields of an event is an event by itself.
#[derive(Debug)]
pub(crate) struct EventSplitter {
    api: Api,
    /// The start of a line whose field is not known yet.
    line: Vec<u8>,
    /// The field of the current line, once it is known.
    field: Option<Field>,
    /// The data of the current event, while it is small enough.
    data: Vec<u8>,
    /// Bytes of data, kept or not.
    data_size: u64,
    /// Reads data that is too large to keep.
    finder: Option<Box<UsageFinder>>,
    has_data: bool,
    /// Whether the current event has fields.
    has_fields: bool,
    /// Whether the last byte was a CR, so that an LF belongs to the same line end.
    after_cr: bool,
    /// Whether the first line, which may start with a byte order mark, has passed.
    began: bool,
    /// Whether an event has ended whose data was not cleared yet.
    ended: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Data,
    Comment,
    Other,
}

impl EventSplitter {
    pub(crate) fn new(api: Api) -> Self {
        Self {
            api,
            line: Vec::new(),
            field: None,
            data: Vec::new(),
            data_size: 0,
            finder: None,
            has_data: false,
            has_fields: false,
            after_cr: false,
            began: false,
            ended: false,
        }
    }

    /// Returns how many bytes at the start of a chunk belong to the line end of the chunk
    /// before it. Call it once for each chunk, and `next` for the rest.
    pub(crate) fn rest_of_line_end(&mut self, chunk: &[u8]) -> usize {
        if chunk.is_empty() {
            return 0;
        }
        let after_cr = std::mem::replace(&mut self.after_cr, false);
        usize::from(after_cr && chunk[0] == b'\n')
    }

    /// Reads `chunk` from `from` to the end of an event. Returns where that is, or `None` if
    /// the event goes on in the next chunk.
    pub(crate) fn next(&mut self, chunk: &[u8], from: usize) -> Option<usize> {
        if from == chunk.len() {
            return None;
        }
        if std::mem::replace(&mut self.ended, false) {
            self.clear_event();
        }
        let mut at = from;
        loop {
            let rest = &chunk[at..];
            let Some(len) = memchr2(b'\r', b'\n', rest) else {
                self.extend_line(rest);
                return None;
            };
            let is_empty = len == 0 && self.is_at_line_start();
            let field = self.end_line(&rest[..len]);
            at += len + 1;
            if rest[len] == b'\r' {
                match chunk.get(at) {
                    Some(b'\n') => at += 1,
                    Some(_) => (),
                    None => self.after_cr = true,
                }
            }
            if is_empty || (field == Field::Comment && !self.has_fields) {
                self.ended = true;
                return Some(at);
            }
            self.has_fields = true;
        }
    }

    /// Returns the data of the event that `next` came to the end of.
    pub(crate) fn data(&self) -> EventData<'_> {
        match (&self.finder, self.has_data) {
            (_, false) => EventData::None,
            (None, true) => EventData::Whole(&self.data),
            (Some(finder), true) => EventData::TooLarge(self.data_size, finder.found),
        }
    }

    /// Returns the data of the event that the end of the stream cuts off.
    pub(crate) fn finish(&mut self) -> EventData<'_> {
        if std::mem::replace(&mut self.ended, true) {
            self.clear_event();
        }
        if !self.is_at_line_start() {
            self.end_line(&[]);
        }
        self.data()
    }

    fn clear_event(&mut self) {
        self.data.clear();
        self.data.shrink_to(KEPT_CAPACITY);
        self.data_size = 0;
        self.finder = None;
        self.has_data = false;
        self.has_fields = false;
    }

    fn is_at_line_start(&self) -> bool {
        self.line.is_empty() && self.field.is_none()
    }

    /// Reads the start of a line, or more of it.
    fn extend_line(&mut self, bytes: &[u8]) {
        match self.field {
            Some(Field::Data) => self.add_data(bytes),
            Some(_) => (),
            None => {
                let missing = FIELD_LEN - self.line.len();
                let (start, rest) = bytes.split_at(bytes.len().min(missing));
                self.line.extend_from_slice(start);
                if self.line.len() == FIELD_LEN {
                    let line = std::mem::take(&mut self.line);
                    self.field = Some(self.start_line(&line));
                    self.extend_line(rest);
                }
            }
        }
    }

    /// Reads the line that ends with `bytes`. Returns its field.
    fn end_line(&mut self, bytes: &[u8]) -> Field {
        if self.is_at_line_start() {
            return self.start_line(bytes);
        }
        self.extend_line(bytes);
        match self.field.take() {
            Some(field) => field,
            None => {
                let line = std::mem::take(&mut self.line);
                self.start_line(&line)
            }
        }
    }

    /// Reads a line up to where it is known. Returns its field.
    fn start_line(&mut self, line: &[u8]) -> Field {
        let line = if std::mem::replace(&mut self.began, true) {
            line
        } else {
            line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line)
        };
        let value = match line.strip_prefix(b"data") {
            Some([]) => &[],
            Some([b':', b' ', value @ ..] | [b':', value @ ..]) => value,
            _ if line.starts_with(b":") => return Field::Comment,
            _ => return Field::Other,
        };
        if std::mem::replace(&mut self.has_data, true) {
            self.add_data(b"\n");
        }
        self.add_data(value);
        Field::Data
    }

    fn add_data(&mut self, bytes: &[u8]) {
        self.data_size += bytes.len() as u64;
        if self.data_size <= MAX_EVENT as u64 {
            return self.data.extend_from_slice(bytes);
        }
        let finder = self.finder.get_or_insert_default();
        finder.feed(self.api, &std::mem::take(&mut self.data));
        finder.feed(self.api, bytes);
    }
}
