//! What happened in a run, as a hash and, if wanted, as lines.

use std::fmt::{self, Write as _};

/// The trace of a run.
#[derive(Clone, Debug)]
pub(crate) struct Trace {
    hash: u64,
    lines: Option<Vec<String>>,
}

impl Trace {
    pub(crate) fn new(keeps_lines: bool) -> Self {
        Self {
            hash: 0xcbf2_9ce4_8422_2325,
            lines: keeps_lines.then(Vec::new),
        }
    }

    pub(crate) fn record(&mut self, now: u64, what: fmt::Arguments<'_>) {
        // A hash does not fail.
        let _ = writeln!(Fnv(&mut self.hash), "{now} {what}");
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{} {what}", Seconds(now)));
        }
    }

    /// Returns a hash (FNV-1a) of all that happened.
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn into_lines(self) -> Vec<String> {
        self.lines.unwrap_or_default()
    }
}

/// Microseconds, written as seconds.
struct Seconds(u64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>5}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

struct Fnv<'h>(&'h mut u64);

impl fmt::Write for Fnv<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            *self.0 = (*self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        Ok(())
    }
}
