//! Splits a stream of server-sent events, which comes in chunks that are cut anywhere.

use memchr::memchr2;

use crate::api::Api;
use crate::usage::ReportedUsage;
use crate::usage_finder::UsageFinder;

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
            (Some(finder), true) => EventData::TooLarge(self.data_size, finder.found()),
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
