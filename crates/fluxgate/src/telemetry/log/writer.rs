//! The thread that writes log lines to standard error.

use std::io::{self, Write};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use super::audit::{self, AuditLine};
use super::queue::{Item, Queue, collect_own_lines, dropped, take_own_lines};
use super::sampling;
use crate::telemetry::clock;

/// How many bytes are gathered for one write.
const BATCH_BYTES: usize = 64 * 1024;
/// How often the log reports the lines that it lacks.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// The wait before a failed write is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// How long the last lines may take to be written.
const LAST_TIMEOUT: Duration = Duration::from_secs(1);
/// The same while there are audit lines among them.
const LAST_AUDIT_TIMEOUT: Duration = Duration::from_secs(3);

/// Starts the thread, and returns the queue of the lines that it writes.
pub(super) fn start() -> (Queue, Flush) {
    let (queue, lines, audit_lines) = Queue::new();
    let (writing, written) = mpsc::channel();
    let write = move || {
        collect_own_lines();
        Writer::new(lines, audit_lines).run();
        drop(writing);
    };
    let thread = thread::Builder::new().name("fluxgate-log".into());
    if let Err(error) = thread.spawn(write) {
        // There is no log to write this to.
        eprintln!("nothing can be logged: {error}");
    }
    let flush = Flush {
        queue: queue.clone(),
        written,
    };
    (queue, flush)
}

/// Writes the remaining lines when it is dropped, if standard error accepts them.
#[derive(Debug)]
#[must_use = "lines may be lost at the end without it"]
pub(crate) struct Flush {
    queue: Queue,
    /// Closes when everything is written.
    written: Receiver<()>,
}

/// Writes lines to standard error.
#[derive(Debug)]
struct Writer {
    lines: Receiver<Item>,
    audit: Receiver<AuditLine>,
    /// How many dropped lines were reported.
    reported: u64,
    /// When the next report is due, if lines are missing; by [`clock::uptime`].
    report_at: Option<Duration>,
}

impl Writer {
    fn new(lines: Receiver<Item>, audit: Receiver<AuditLine>) -> Self {
        Self {
            lines,
            audit,
            reported: 0,
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
            // After the other lines: an audit line is queued before it wakes this thread.
            for line in self.audit.try_iter() {
                bytes.extend_from_slice(line.text.as_bytes());
                audit_lines.push(line);
            }
            self.report(&mut bytes, ended);
            write_whole(&bytes);
            bytes.clear();
            // Frees their places, now that they are written.
            audit_lines.clear();
        }
    }

    /// Waits for lines and takes them. Returns whether the last has come, or `None` if all
    /// senders are gone.
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
            if bytes.len() >= BATCH_BYTES {
                break;
            }
            next = self.lines.try_recv().ok();
        }
        Some(false)
    }

    /// Reports missing lines, a second after the first, and at the end.
    fn report(&mut self, bytes: &mut Vec<u8>, ended: bool) {
        let dropped = dropped();
        let is_due = match self.report_at {
            Some(at) => ended || at <= clock::uptime(),
            None if dropped > self.reported || sampling::is_unreported() => {
                self.report_at = Some(clock::uptime() + REPORT_INTERVAL);
                ended
            }
            None => false,
        };
        if !is_due {
            return;
        }
        self.report_at = None;
        sampling::report();
        if dropped > self.reported {
            tracing::warn!(lines = dropped - self.reported, "log lines were dropped");
            self.reported = dropped;
        }
        bytes.extend_from_slice(take_own_lines().as_bytes());
    }
}

/// Writes all bytes, however long that takes: a full disk is treated like a reader that
/// does not read.
fn write_whole(mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match io::stderr().write(bytes) {
            Ok(0) => thread::sleep(RETRY_PAUSE),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => thread::sleep(RETRY_PAUSE),
        }
    }
}

impl Drop for Flush {
    fn drop(&mut self) {
        const STEP: Duration = Duration::from_millis(10);
        let began = clock::uptime();
        let is_time_left = || {
            let most = match audit::is_pending() {
                true => LAST_AUDIT_TIMEOUT,
                false => LAST_TIMEOUT,
            };
            clock::uptime() < began + most
        };
        // If the queue is full, there is more to write, or standard error blocks.
        while !self.queue.try_end() {
            if !is_time_left() {
                return;
            }
            thread::sleep(STEP);
        }
        // Lines that are not written by then are lost.
        while self.written.recv_timeout(STEP) == Err(RecvTimeoutError::Timeout) && is_time_left() {}
    }
}
