//! From those who log to the one who writes, without waiting for him.

use std::cell::RefCell;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::Duration;

use tracing::Metadata;
use tracing_subscriber::fmt::MakeWriter;

use super::AUDIT;
use super::audit::{self, AuditLine, AuditQueue};
use super::sampling;
use crate::telemetry::clock;

/// How many lines may wait to be written. What comes then is dropped.
const MOST_LINES: usize = 4096;
/// How many bytes a line may have. Those of JSON have less, for its texts are
/// bounded.
const LONGEST: usize = 32 * 1024;
/// How many bytes are written at once.
const AT_ONCE: usize = 64 * 1024;
/// How often the log says what is missing in it.
const REPORT_EVERY: Duration = Duration::from_secs(1);
/// How long to wait before what could not be written is tried again.
const PAUSE: Duration = Duration::from_millis(100);
/// How long what is left may take to be written at the end.
const LAST_MOMENT: Duration = Duration::from_secs(1);
/// The same while there are audit lines among it.
const LAST_AUDIT: Duration = Duration::from_secs(3);

/// Lines that nobody could take; of the process, as the log is.
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// How many lines were dropped.
pub(in crate::telemetry) fn dropped() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}

/// Takes lines, and never makes anybody wait.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    lines: SyncSender<Item>,
    audit: AuditQueue,
}

/// Writes what is left when it is dropped, if somebody takes it.
#[derive(Debug)]
#[must_use = "lines may be lost at the end without it"]
pub(crate) struct Flush {
    queue: Queue,
    /// Nothing comes out of it; it closes when everything is written.
    written: Receiver<()>,
}

#[derive(Debug)]
enum Item {
    Line(String),
    /// There is something to do besides.
    Wake,
    End,
}

impl Queue {
    /// A queue, and the thread that writes to standard error what comes in.
    pub(super) fn start() -> (Self, Flush) {
        let (lines, receiver) = mpsc::sync_channel(MOST_LINES);
        let (audit, audit_lines) = AuditQueue::new();
        let (writing, written) = mpsc::channel();
        let write = move || {
            OWN.set(Some(String::new()));
            Writer::new(receiver, audit_lines).run();
            drop(writing);
        };
        let thread = thread::Builder::new().name("fluxgate-log".into());
        if let Err(error) = thread.spawn(write) {
            // There is no log to say so in.
            eprintln!("nothing can be logged: {error}");
        }
        let queue = Self { lines, audit };
        let flush = Flush {
            queue: queue.clone(),
            written,
        };
        (queue, flush)
    }

    /// Has the thread look what there is to do besides lines. If the queue is
    /// full, it looks anyway, after the next line.
    pub(super) fn wake(&self) {
        let _ = self.lines.try_send(Item::Wake);
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

/// Takes one line, in one piece, as the formatter gives it.
pub(super) struct OneLine<'a> {
    queue: &'a Queue,
    is_audit: bool,
}

thread_local! {
    /// What the one who writes has to say himself: he cannot wait for room in
    /// the queue, for it is he who makes it. `None` for all others.
    static OWN: RefCell<Option<String>> = const { RefCell::new(None) };
}

impl Write for OneLine<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let line = one_line(bytes);
        let line = OWN.with_borrow_mut(|own| match own {
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

/// The same, as one line: no value can begin another, or talk to a terminal.
/// What is JSON has nothing like that in it, and stays as it is.
fn one_line(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let text = text.strip_suffix('\n').unwrap_or(&text);
    let text = &text[..text.floor_char_boundary(LONGEST)];
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

/// Writes lines to standard error.
#[derive(Debug)]
struct Writer {
    lines: Receiver<Item>,
    audit: Receiver<AuditLine>,
    /// How many dropped lines the log has counted.
    told: u64,
    /// When the log says next what is missing in it, if anything is; by
    /// [`clock::uptime`].
    report_at: Option<Duration>,
}

impl Writer {
    fn new(lines: Receiver<Item>, audit: Receiver<AuditLine>) -> Self {
        Self {
            lines,
            audit,
            told: 0,
            report_at: None,
        }
    }

    /// Writes until the end.
    fn run(mut self) {
        let mut bytes = Vec::new();
        let mut audit_lines = Vec::new();
        let mut ended = false;
        while !ended {
            let Some(end) = self.take(&mut bytes) else {
                return;
            };
            ended = end;
            // After the others: what woke this thread is there by now.
            for line in self.audit.try_iter() {
                bytes.extend_from_slice(line.text.as_bytes());
                audit_lines.push(line);
            }
            self.report(&mut bytes, ended);
            write_whole(&bytes);
            bytes.clear();
            // Only now are their places free.
            audit_lines.clear();
        }
    }

    /// Waits for lines and takes them. Whether the last has come; nothing if there
    /// is nobody left to send any.
    fn take(&self, bytes: &mut Vec<u8>) -> Option<bool> {
        let mut next = match self.report_at {
            None => Some(self.lines.recv().ok()?),
            Some(at) => {
                let left = at.saturating_sub(clock::uptime());
                match self.lines.recv_timeout(left) {
                    Ok(item) => Some(item),
                    Err(RecvTimeoutError::Timeout) => None,
                    Err(RecvTimeoutError::Disconnected) => return None,
                }
            }
        };
        while let Some(item) = next {
            match item {
                Item::Line(line) => bytes.extend_from_slice(line.as_bytes()),
                Item::Wake => {}
                Item::End => return Some(true),
            }
            if bytes.len() >= AT_ONCE {
                break;
            }
            next = self.lines.try_recv().ok();
        }
        Some(false)
    }

    /// Says what is missing, a second after something is, and at the end.
    fn report(&mut self, bytes: &mut Vec<u8>, ended: bool) {
        let dropped = dropped();
        let is_due = match self.report_at {
            Some(at) => ended || at <= clock::uptime(),
            None if dropped > self.told || sampling::is_unreported() => {
                self.report_at = Some(clock::uptime() + REPORT_EVERY);
                ended
            }
            None => false,
        };
        if !is_due {
            return;
        }
        self.report_at = None;
        sampling::report();
        if dropped > self.told {
            tracing::warn!(lines = dropped - self.told, "log lines were dropped");
            self.told = dropped;
        }
        OWN.with_borrow_mut(|own| {
            let own = own.as_mut().map(std::mem::take).unwrap_or_default();
            bytes.extend_from_slice(own.as_bytes());
        });
    }
}

/// Writes all of it, however long that takes: a log that cannot be written, for
/// its disk is full, is one that is not read.
fn write_whole(mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match io::stderr().write(bytes) {
            Ok(0) => thread::sleep(PAUSE),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => thread::sleep(PAUSE),
        }
    }
}

impl Drop for Flush {
    fn drop(&mut self) {
        const STEP: Duration = Duration::from_millis(10);
        let began = clock::uptime();
        let is_time_left = || {
            let most = match audit::is_pending() {
                true => LAST_AUDIT,
                false => LAST_MOMENT,
            };
            clock::uptime() < began + most
        };
        // If the queue is full, there is more to write, or nobody takes it.
        while self.queue.lines.try_send(Item::End).is_err() {
            if !is_time_left() {
                return;
            }
            thread::sleep(STEP);
        }
        // If it is not written by then, nobody reads, and nobody can be told.
        while self.written.recv_timeout(STEP) == Err(RecvTimeoutError::Timeout) && is_time_left() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_it_holds_it_is_one_line() {
        let line = one_line("a\r\nb\x1b[31mc\x7f\tä\u{9b}\n".as_bytes());
        assert_eq!(line, "a\\r\\nb\\u{1b}[31mc\\u{7f}\\tä\\u{9b}\n");
        assert_eq!(one_line(b"plain"), "plain\n");
        let long = "ä".repeat(LONGEST);
        assert_eq!(one_line(long.as_bytes()).len(), LONGEST + 1);
    }
}
