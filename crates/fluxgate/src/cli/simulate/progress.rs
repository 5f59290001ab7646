//! A progress bar on standard error.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use fluxgate_simulate::Progress;

/// How often the bar is drawn.
const INTERVAL: Duration = Duration::from_millis(100);
const WIDTH: u64 = 30;

/// Shows how much of a file has been read, if its size was given.
pub(super) struct ProgressBar {
    size: Option<u64>,
    started: Instant,
    drawn: Instant,
}

impl ProgressBar {
    pub(super) fn new(size: Option<u64>) -> Self {
        let now = now();
        Self {
            size,
            started: now,
            drawn: now,
        }
    }

    pub(super) fn show(&mut self, progress: Progress) {
        let Some(size) = self.size else { return };
        let now = now();
        if now.duration_since(self.drawn) < INTERVAL {
            return;
        }
        self.drawn = now;
        let elapsed = now.duration_since(self.started);
        let _ = io::stderr().write_all(bar(size, progress, elapsed).as_bytes());
    }
}

impl Drop for ProgressBar {
    /// Clears the line for whatever is printed next.
    fn drop(&mut self) {
        if self.size.is_some() {
            let _ = io::stderr().write_all(b"\r\x1b[K");
        }
    }
}

fn bar(size: u64, Progress { bytes, lines }: Progress, elapsed: Duration) -> String {
    let read = bytes.min(size);
    let done = (read * WIDTH / size.max(1)) as usize;
    let percent = read * 100 / size.max(1);
    let millis = elapsed.as_millis().max(1) as u64;
    let rate = lines * 1000 / millis;
    let left = (size - read) * millis / read.max(1) / 1000;
    format!(
        "\r\x1b[K[{}{}] {percent:3}%  {lines} lines, {rate}/s, {left} s left",
        "#".repeat(done),
        ".".repeat(WIDTH as usize - done),
    )
}

#[expect(clippy::disallowed_methods, reason = "a person watches the bar")]
fn now() -> Instant {
    Instant::now()
}
