//! The queue of log lines, so that threads that log never wait for standard error.

use std::cell::RefCell;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};

use tracing::Metadata;
use tracing_subscriber::fmt::MakeWriter;

use super::audit::{AUDIT, AuditLine, AuditQueue};

/// How many lines may be queued. Further lines are dropped.
const MAX_LINES: usize = 4096;
/// The maximum length of a line. JSON lines are shorter because their values are truncated.
const MAX_BYTES: usize = 32 * 1024;
/// The number of lines that this process has dropped.
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Returns how many lines were dropped.
pub(in crate::telemetry) fn dropped() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}

/// A queue that accepts lines without blocking.
#[derive(Clone, Debug)]
pub(super) struct LineQueue {
    lines: SyncSender<QueueItem>,
    audit: AuditQueue,
}

/// An entry of the queue.
#[derive(Debug)]
pub(super) enum QueueItem {
    Line(String),
    /// Wakes the writer for audit lines and summaries.
    Wake,
    /// Ends the writer.
    End,
}

impl LineQueue {
    /// Creates a queue and the receivers of its lines and its audit lines.
    pub(super) fn new() -> (Self, Receiver<QueueItem>, Receiver<AuditLine>) {
        let (lines, receiver) = mpsc::sync_channel(MAX_LINES);
        let (audit, audit_lines) = AuditQueue::new();
        (Self { lines, audit }, receiver, audit_lines)
    }

    /// Wakes the writer for audit lines and summaries. If the queue is full, the writer is
    /// awake already.
    pub(super) fn wake(&self) {
        let _ = self.lines.try_send(QueueItem::Wake);
    }

    /// Ends the writer. Returns `false` if the queue is full.
    pub(super) fn try_end(&self) -> bool {
        self.lines.try_send(QueueItem::End).is_ok()
    }

    fn push(&self, line: String, is_audit: bool) {
        if is_audit {
            self.audit.push(line);
            self.wake();
        } else if self.lines.try_send(QueueItem::Line(line)).is_err() {
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl<'a> MakeWriter<'a> for LineQueue {
    type Writer = LineWriter<'a>;

    fn make_writer(&'a self) -> LineWriter<'a> {
        LineWriter {
            queue: self,
            is_audit: false,
        }
    }

    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> LineWriter<'a> {
        LineWriter {
            queue: self,
            is_audit: metadata.target() == AUDIT,
        }
    }
}

/// Queues one line, which the formatter writes in one piece.
pub(super) struct LineWriter<'a> {
    queue: &'a LineQueue,
    is_audit: bool,
}

thread_local! {
    /// Lines that the writer thread logs itself, because the queue that it drains may be
    /// full. `None` on other threads.
    static OWN_LINES: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Makes this thread, the writer, collect its own lines instead of queueing them.
pub(super) fn collect_own_lines() {
    OWN_LINES.set(Some(String::new()));
}

/// Takes the lines that this thread collected.
pub(super) fn take_own_lines() -> String {
    OWN_LINES.with_borrow_mut(|own| own.as_mut().map(std::mem::take).unwrap_or_default())
}

impl Write for LineWriter<'_> {
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

/// Escapes control characters, so that no value can start another line or control a
/// terminal. JSON contains none and stays as it is.
fn one_line(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let text = text.strip_suffix('\n').unwrap_or(&text);
    let text = &text[..text.floor_char_boundary(MAX_BYTES)];
    let mut line = String::with_capacity(text.len() + 1);
    for char in text.chars() {
        if char.is_control() {
            line.extend(char.escape_default());
        } else {
            line.push(char);
        }
    }
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_and_long_lines_truncated() {
        let line = one_line("a\r\nb\x1b[31mc\x7f\tä\u{9b}\n".as_bytes());
        assert_eq!(line, "a\\r\\nb\\u{1b}[31mc\\u{7f}\\tä\\u{9b}\n");
        assert_eq!(one_line(b"plain"), "plain\n");
        let long = "ä".repeat(MAX_BYTES);
        assert_eq!(one_line(long.as_bytes()).len(), MAX_BYTES + 1);
    }
}
