//! The queue of log lines: threads that log never wait for the thread that writes.

use std::cell::RefCell;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};

use tracing::Metadata;
use tracing_subscriber::fmt::MakeWriter;

use super::audit::{AUDIT, AuditLine, AuditQueue};

/// How many lines may wait to be written. Further lines are dropped.
const MAX_LINES: usize = 4096;
/// How many bytes a line may have. JSON lines have fewer, for their values are bounded.
const MAX_BYTES: usize = 32 * 1024;
/// Dropped lines of the process.
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Returns how many lines were dropped.
pub(in crate::telemetry) fn dropped() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}

/// Takes lines without blocking.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    lines: SyncSender<Item>,
    audit: AuditQueue,
}

/// What the queue holds.
#[derive(Debug)]
pub(super) enum Item {
    Line(String),
    /// Wakes the writer for audit lines and reports.
    Wake,
    /// Ends the writer.
    End,
}

impl Queue {
    /// Creates a queue, and the receivers of its lines and its audit lines.
    pub(super) fn new() -> (Self, Receiver<Item>, Receiver<AuditLine>) {
        let (lines, receiver) = mpsc::sync_channel(MAX_LINES);
        let (audit, audit_lines) = AuditQueue::new();
        (Self { lines, audit }, receiver, audit_lines)
    }

    /// Wakes the writer for audit lines and reports. If the queue is full, the next line
    /// wakes it.
    pub(super) fn wake(&self) {
        let _ = self.lines.try_send(Item::Wake);
    }

    /// Ends the writer; `false` if the queue is full.
    pub(super) fn try_end(&self) -> bool {
        self.lines.try_send(Item::End).is_ok()
    }

    fn push(&self, line: String, is_audit: bool) {
        if is_audit {
            self.audit.push(line);
            self.wake();
        } else if self.lines.try_send(Item::Line(line)).is_err() {
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl<'a> MakeWriter<'a> for Queue {
    type Writer = OneLine<'a>;

    fn make_writer(&'a self) -> OneLine<'a> {
        OneLine {
            queue: self,
            is_audit: false,
        }
    }

    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> OneLine<'a> {
        OneLine {
            queue: self,
            is_audit: metadata.target() == AUDIT,
        }
    }
}

/// Writes one line, which the formatter gives in one piece.
pub(super) struct OneLine<'a> {
    queue: &'a Queue,
    is_audit: bool,
}

thread_local! {
    /// The lines that the writer logs itself: it cannot wait for room in the queue that it
    /// drains. `None` on other threads.
    static OWN_LINES: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Collects the lines of this thread, which is the writer, apart from the queue.
pub(super) fn collect_own_lines() {
    OWN_LINES.set(Some(String::new()));
}

/// Takes the lines that this thread has collected.
pub(super) fn take_own_lines() -> String {
    OWN_LINES.with_borrow_mut(|own| own.as_mut().map(std::mem::take).unwrap_or_default())
}

impl Write for OneLine<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let line = one_line(bytes);
        let line = OWN_LINES.with_borrow_mut(|own| match own {
            Some(own) => {
                own.push_str(&line);
                None
            }
            None => Some(line),
        });
        if let Some(line) = line {
            self.queue.push(line, self.is_audit);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Escapes control characters: no value can start another line, or control a terminal.
/// JSON has none, and stays as it is.
fn one_line(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let text = text.strip_suffix('\n').unwrap_or(&text);
    let text = &text[..text.floor_char_boundary(MAX_BYTES)];
    let mut line = String::with_capacity(text.len() + 1);
    for char in text.chars() {
        match char.is_control() {
            true => line.extend(char.escape_default()),
            false => line.push(char),
        }
    }
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_it_holds_it_is_one_line() {
        let line = one_line("a\r\nb\x1b[31mc\x7f\tä\u{9b}\n".as_bytes());
        assert_eq!(line, "a\\r\\nb\\u{1b}[31mc\\u{7f}\\tä\\u{9b}\n");
        assert_eq!(one_line(b"plain"), "plain\n");
        let long = "ä".repeat(MAX_BYTES);
        assert_eq!(one_line(long.as_bytes()).len(), MAX_BYTES + 1);
    }
}
