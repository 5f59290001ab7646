//! A progress bar on standard error.

use std::io::{self, Write};
use std::time::{Duration, Instant};

/// How often the bar is drawn.
const PAUSE: Duration = Duration::from_millis(100);
const WIDTH: u64 = 30;

/// Shows how much of a file has been read, if anybody watches.
pub(super) struct Progress(Option<Bar>);

struct Bar {
    size: u64,
    started: Instant,
    drawn: Instant,
}

impl Progress {
    pub(super) fn off() -> Self {
        Self(None)
    }

    pub(super) fn new(size: u64) -> Self {
        let now = now();
        Self(Some(Bar {
            size,
            started: now,
            drawn: now,
        }))
    }

    pub(super) fn show(&mut self, read: u64, lines: u64) {
        let Some(bar) = &mut self.0 else { return };
        let now = now();
        if now.duration_since(bar.drawn) < PAUSE {
            return;
        }
        bar.drawn = now;
        let _ = io::stderr().write_all(bar.text(read, lines, now).as_bytes());
    }
}

impl Drop for Progress {
    /// Leaves the line empty for whatever is printed next.
    fn drop(&mut self) {
        if self.0.is_some() {
            let _ = io::stderr().write_all(b"\r\x1b[K");
        }
    }
}

impl Bar {
    fn text(&self, read: u64, lines: u64, now: Instant) -> String {
        let read = read.min(self.size);
        let done = (read * WIDTH / self.size.max(1)) as usize;
        let percent = read * 100 / self.size.max(1);
        let millis = now.duration_since(self.started).as_millis().max(1) as u64;
        let rate = lines * 1000 / millis;
        let left = (self.size - read) * millis / read.max(1) / 1000;
        format!(
            "\r\x1b[K[{}{}] {percent:3}%  {lines} lines, {rate}/s, {left} s left",
            "#".repeat(done),
            ".".repeat(WIDTH as usize - done),
        )
    }
}

#[expect(clippy::disallowed_methods, reason = "people watch this one")]
fn now() -> Instant {
    Instant::now()
}
