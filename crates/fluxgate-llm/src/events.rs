//! Splits a stream of server-sent events, which comes in chunks that are cut anywhere.

use memchr::memchr2;

/// Data of an event beyond this size is not kept.
pub(crate) const MAX_EVENT: usize = 1024 * 1024;

/// Buffers keep no more than this between events.
const KEPT_CAPACITY: usize = 64 * 1024;

/// The data of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventData<'a> {
    /// There is none: comments, or other fields.
    None,
    /// The lines of data, joined by line feeds.
    Whole(&'a [u8]),
    /// The size of data that was too large to keep.
    TooLarge(u64),
}

/// Finds the events of a stream, as the HTML standard defines them: lines end with CR, LF or
/// both, and an empty line ends an event. An event that the end of the stream cuts off is
/// read as well.
#[derive(Debug, Default)]
pub(crate) struct EventSplitter {
    /// The start of a line that has no end yet, up to `MAX_EVENT` and the field's name.
    line: Vec<u8>,
    /// Bytes of that line beyond those.
    line_excess: u64,
    data: Vec<u8>,
    /// Bytes of data, kept or not.
    data_size: u64,
    has_data: bool,
    /// Whether the last byte was a CR, so that an LF belongs to the same line end.
    after_cr: bool,
    /// Whether the first line, which may start with a byte order mark, has passed.
    began: bool,
    /// Whether an event has ended whose data was not cleared yet.
    ended: bool,
}

impl EventSplitter {
    /// Returns how many bytes at the start of a chunk belong to the line end of the chunk
    /// before it. Call it once for each chunk, and `next` for the rest.
    pub(crate) fn rest_of_line_end(&mut self, chunk: &[u8]) -> usize {
        if chunk.is_empty() {
            return 0;
        }
        let after_cr = std::mem::replace(&mut self.after_cr, false);
        usize::from(after_cr && chunk[0] == b'\n')
    }

    /// Returns whether an event has ended and the next one has not begun.
    pub(crate) fn is_between_events(&self) -> bool {
        self.ended
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
            let is_empty = len == 0 && self.line.is_empty();
            self.end_line(&rest[..len]);
            at += len + 1;
            if rest[len] == b'\r' {
                match chunk.get(at) {
                    Some(b'\n') => at += 1,
                    Some(_) => (),
                    None => self.after_cr = true,
                }
            }
            if is_empty {
                self.ended = true;
                return Some(at);
            }
        }
    }

    /// Returns the data of the event that `next` came to the end of.
    pub(crate) fn data(&self) -> EventData<'_> {
        match self.has_data {
            false => EventData::None,
            true if self.data_size > MAX_EVENT as u64 => EventData::TooLarge(self.data_size),
            true => EventData::Whole(&self.data),
        }
    }

    /// Returns the data of the event that the end of the stream cuts off.
    pub(crate) fn finish(&mut self) -> EventData<'_> {
        if std::mem::replace(&mut self.ended, true) {
            self.clear_event();
        }
        if !self.line.is_empty() {
            self.end_line(&[]);
        }
        self.data()
    }

    fn clear_event(&mut self) {
        self.data.clear();
        self.data.shrink_to(KEPT_CAPACITY);
        self.data_size = 0;
        self.has_data = false;
    }

    fn extend_line(&mut self, bytes: &[u8]) {
        let room = (MAX_EVENT + 16).saturating_sub(self.line.len());
        let (kept, excess) = bytes.split_at(bytes.len().min(room));
        self.line.extend_from_slice(kept);
        self.line_excess += excess.len() as u64;
    }

    /// Reads the line that ends with `bytes`.
    fn end_line(&mut self, bytes: &[u8]) {
        if self.line.is_empty() {
            return self.read_line(bytes);
        }
        self.extend_line(bytes);
        let mut line = std::mem::take(&mut self.line);
        self.read_line(&line);
        line.clear();
        line.shrink_to(KEPT_CAPACITY);
        self.line = line;
    }

    fn read_line(&mut self, line: &[u8]) {
        let excess = std::mem::replace(&mut self.line_excess, 0);
        let line = match std::mem::replace(&mut self.began, true) {
            true => line,
            false => line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line),
        };
        let value = match line.strip_prefix(b"data") {
            Some([]) => &[],
            Some([b':', b' ', value @ ..] | [b':', value @ ..]) => value,
            _ => return,
        };
        let line_feed: &[u8] = if self.has_data { b"\n" } else { b"" };
        self.has_data = true;
        self.data_size += (line_feed.len() + value.len()) as u64 + excess;
        if self.data_size <= MAX_EVENT as u64 {
            self.data.extend_from_slice(line_feed);
            self.data.extend_from_slice(value);
        }
    }
}
