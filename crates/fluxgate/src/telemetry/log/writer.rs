//! The thread that writes log lines to standard error.

use std::io::{self, Write};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use super::audit::{self, AuditLine};
use super::queue::{LineQueue, QueueItem, collect_own_lines, dropped, take_own_lines};
use super::sampling;
use crate::telemetry::clock;

/// How many bytes are collected for one write.
const BATCH_BYTES: usize = 64 * 1024;
/// How often dropped and suppressed lines are reported.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// The wait before a failed write is retried.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// How long writing the last lines may take.
const LAST_TIMEOUT: Duration = Duration::from_secs(1);
/// How long it may take if there are audit lines among them.
const LAST_AUDIT_TIMEOUT: Duration = Duration::from_secs(3);

/// Starts the thread. Returns its queue, and the guard that flushes it.
pub(super) fn start() -> (LineQueue, FlushGuard) {
    let (queue, lines, audit_lines) = LineQueue::new();
    let (writing, written) = mpsc::channel();
    let write = move || {
        collect_own_lines();
        Writer::new(lines, audit_lines).run();
        drop(writing);
    };
    let thread = thread::Builder::new().name("fluxgate-log".into());
    if let Err(error) = thread.spawn(write) {
        // The log does not work, so this cannot be logged.
        eprintln!("cannot start the thread that writes the log: {error}");
    }
    let flush = FlushGuard {
        queue: queue.clone(),
        written,
    };
    (queue, flush)
}

/// A guard that writes the queued lines when it is dropped, if standard error accepts them.
#[derive(Debug)]
#[must_use = "dropping it early loses the last lines"]
pub(crate) struct FlushGuard {
    queue: LineQueue,
    /// Closes when everything is written.
    written: Receiver<()>,
}

/// Writes lines to standard error.
#[derive(Debug)]
struct Writer {
    lines: Receiver<QueueItem>,
    audit: Receiver<AuditLine>,
    /// How many dropped lines were reported.
    reported: u64,
    /// The [`clock::monotonic`] of the next report, if lines are missing.
    report_at: Option<Duration>,
}

impl Writer {
    fn new(lines: Receiver<QueueItem>, audit: Receiver<AuditLine>) -> Self {
        Self {
            lines,
            audit,
            reported: 0,
            report_at: None,
        }
    }

    /// Writes lines until [`QueueItem::End`].
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
            write_all(&bytes);
            bytes.clear();
            // They are written, so this frees their permits.
            audit_lines.clear();
        }
    }

    /// Waits for lines and takes them. Returns whether the queue has ended, or `None` if all
    /// senders are gone.
    fn take(&self, bytes: &mut Vec<u8>) -> Option<bool> {
        let mut next = match self.report_at {
            None => Some(self.lines.recv().ok()?),
            Some(at) => {
                let left = at.saturating_sub(clock::monotonic());
                match self.lines.recv_timeout(left) {
                    Ok(item) => Some(item),
                    Err(RecvTimeoutError::Timeout) => None,
                    Err(RecvTimeoutError::Disconnected) => return None,
                }
            }
        };
        while let Some(item) = next {
            match item {
                QueueItem::Line(line) => bytes.extend_from_slice(line.as_bytes()),
                QueueItem::Wake => {}
                QueueItem::End => return Some(true),
            }
            if bytes.len() >= BATCH_BYTES {
                break;
            }
            next = self.lines.try_recv().ok();
        }
        Some(false)
    }

    /// Reports missing lines a second after the first one, and at the end.
    fn report(&mut self, bytes: &mut Vec<u8>, ended: bool) {
        let dropped = dropped();
        let is_due = match self.report_at {
            Some(at) => ended || at <= clock::monotonic(),
            None if dropped > self.reported || sampling::is_unreported() => {
                self.report_at = Some(clock::monotonic() + REPORT_INTERVAL);
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

/// Writes all bytes, however long that takes. Errors such as a full disk are retried, as if
/// standard error blocked.
fn write_all(mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match io::stderr().write(bytes) {
            Ok(0) => thread::sleep(RETRY_PAUSE),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => thread::sleep(RETRY_PAUSE),
        }
    }
}

impl Drop for FlushGuard {
    fn drop(&mut self) {
        const STEP: Duration = Duration::from_millis(10);
        let started = clock::monotonic();
        let is_time_left = || {
            let timeout = if audit::is_pending() {
                LAST_AUDIT_TIMEOUT
            } else {
                LAST_TIMEOUT
            };
            clock::monotonic() < started + timeout
        };
        // Retries while the queue is full.
        while !self.queue.try_end() {
            if !is_time_left() {
                return;
            }
            thread::sleep(STEP);
        }
        // Lines that are not written in time are lost.
        while self.written.recv_timeout(STEP) == Err(RecvTimeoutError::Timeout) && is_time_left() {}
    }
}
