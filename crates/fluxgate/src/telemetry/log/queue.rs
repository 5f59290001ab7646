//! From those who log to the one who writes, without waiting for him.

use std::cell::RefCell;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

/// How many lines may wait to be written. What comes then is dropped.
const MOST_LINES: usize = 4096;
/// How many bytes a line may have. Those of JSON have less, for its texts are
/// bounded.
const LONGEST: usize = 32 * 1024;
/// How many bytes are written at once.
const AT_ONCE: usize = 64 * 1024;
/// How long what is left may take to be written at the end.
const LAST_MOMENT: Duration = Duration::from_secs(1);

/// Lines that nobody could take; of the process, as the log is.
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// How many lines were dropped.
pub(in crate::telemetry) fn dropped() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}

/// Takes lines, and never makes anybody wait.
#[derive(Clone, Debug)]
pub(super) struct Queue(SyncSender<Item>);

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
    End,
}

impl Queue {
    /// A queue, and the thread that writes to standard error what comes in.
    pub(super) fn start() -> (Self, Flush) {
        let (queue, lines) = mpsc::sync_channel(MOST_LINES);
        let (writing, written) = mpsc::channel();
        let write = move || {
            write_all(&lines);
            drop(writing);
        };
        let thread = thread::Builder::new().name("fluxgate-log".into());
        if let Err(error) = thread.spawn(write) {
            // There is no log to say so in.
            eprintln!("nothing can be logged: {error}");
        }
        let queue = Self(queue);
        let flush = Flush {
            queue: queue.clone(),
            written,
        };
        (queue, flush)
    }
}

impl<'a> MakeWriter<'a> for Queue {
    type Writer = OneLine<'a>;

    fn make_writer(&'a self) -> OneLine<'a> {
        OneLine(self)
    }
}

/// Takes one line, in one piece, as the formatter gives it.
pub(super) struct OneLine<'a>(&'a Queue);

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
        if let Some(line) = line
            && self.0.0.try_send(Item::Line(line)).is_err()
        {
            DROPPED.fetch_add(1, Ordering::Relaxed);
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

/// Writes lines until the end.
fn write_all(lines: &Receiver<Item>) {
    OWN.set(Some(String::new()));
    let mut told = 0;
    let mut ended = false;
    let mut bytes = Vec::new();
    while !ended {
        bytes.clear();
        let Ok(mut item) = lines.recv() else {
            return;
        };
        loop {
            match item {
                Item::Line(line) => bytes.extend_from_slice(line.as_bytes()),
                Item::End => ended = true,
            }
            if ended || bytes.len() >= AT_ONCE {
                break;
            }
            match lines.try_recv() {
                Ok(next) => item = next,
                Err(_) => break,
            }
        }
        let dropped = dropped();
        if dropped > told {
            tracing::warn!(lines = dropped - told, "log lines were dropped");
            told = dropped;
        }
        OWN.with_borrow_mut(|own| {
            let own = own.as_mut().map(std::mem::take).unwrap_or_default();
            bytes.extend_from_slice(own.as_bytes());
        });
        // Whoever cannot be written to cannot be told of it.
        let _ = io::stderr().write_all(&bytes);
    }
}

impl Drop for Flush {
    fn drop(&mut self) {
        const STEP: Duration = Duration::from_millis(10);
        let mut left = LAST_MOMENT;
        // If the queue is full, there is more to write, or nobody takes it.
        while self.queue.0.try_send(Item::End).is_err() {
            if left.is_zero() {
                return;
            }
            thread::sleep(STEP);
            left = left.saturating_sub(STEP);
        }
        // If it is not written by then, nobody reads, and nobody can be told.
        let _ = self.written.recv_timeout(left);
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
