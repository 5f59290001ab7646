//! Limits how many lines of one cause are written.
//!
//! Clients can cause any number of some lines, even of libraries: `h2` warns about each
//! unexpected frame. A cause is a call site, so a flood from one does not suppress the lines
//! of others.

use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

use super::audit::AUDIT;
use super::queue::LineQueue;
use crate::telemetry::clock;
use crate::telemetry::sampler::Sampler;

/// How many lines of one cause may be written at once.
const BURST: u64 = 100;
/// How many lines of one cause may be written per second on average.
const PER_SECOND: u64 = 10;

/// How many causes are distinguished: several times the number of call sites.
const MAX_CAUSES: usize = 1024;
/// How many entries are tried before two causes share one.
const PROBES: usize = 32;
/// How many bytes of a suppressed message its summary quotes.
const MAX_BYTES: usize = 200;

/// The target of the log's own lines, which are exempt.
const OWN_TARGET: &str = "fluxgate::telemetry::log::";

/// The causes that this process has seen.
static CAUSES: [OnceLock<Cause>; MAX_CAUSES] = [const { OnceLock::new() }; MAX_CAUSES];
/// Whether there are suppressed lines that no summary has reported.
static UNREPORTED: AtomicBool = AtomicBool::new(false);

/// Returns how many lines were suppressed.
pub(in crate::telemetry) fn suppressed() -> u64 {
    let causes = CAUSES.iter().filter_map(OnceLock::get);
    causes
        .map(|cause| cause.suppressed.load(Ordering::Relaxed))
        .sum()
}

/// Returns whether there are suppressed lines that no summary has reported.
pub(super) fn is_unreported() -> bool {
    UNREPORTED.load(Ordering::SeqCst)
}

/// Writes a summary for each cause with lines suppressed since the last one.
pub(super) fn report() {
    // Cleared before the loop, so that lines suppressed meanwhile set it again.
    UNREPORTED.store(false, Ordering::SeqCst);
    for cause in CAUSES.iter().filter_map(OnceLock::get) {
        cause.report();
    }
}

/// A layer that passes a burst of lines of each cause, and then a few per second. Lines at
/// `debug` and `trace` are not sampled: an operator has enabled them.
#[derive(Debug)]
pub(super) struct SamplingLayer {
    /// Wakes the thread that writes the summaries.
    queue: LineQueue,
}

impl SamplingLayer {
    pub(super) fn new(queue: LineQueue) -> Self {
        Self { queue }
    }
}

impl<S: Subscriber> Layer<S> for SamplingLayer {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        if *metadata.level() > Level::INFO {
            return true;
        }
        let cause = Cause::of(metadata);
        if cause.is_exempt || cause.sampler.allows(clock::monotonic()) {
            return true;
        }
        if cause.suppress() {
            cause.keep_message(event);
            UNREPORTED.store(true, Ordering::SeqCst);
            self.queue.wake();
        }
        false
    }
}

/// A call site and the number of its lines.
#[derive(Debug)]
struct Cause {
    metadata: &'static Metadata<'static>,
    /// Audit lines and those of the log itself are never suppressed.
    is_exempt: bool,
    sampler: Sampler,
    /// How many lines were suppressed.
    suppressed: AtomicU64,
    /// How many of them summaries have reported.
    reported: AtomicU64,
    /// Whether there may be unreported ones.
    is_unreported: AtomicBool,
    /// The message of one of the unreported lines.
    message: Mutex<String>,
}

impl Cause {
    fn new(metadata: &'static Metadata<'static>) -> Self {
        Self {
            metadata,
            is_exempt: metadata.target() == AUDIT || metadata.target().starts_with(OWN_TARGET),
            sampler: Sampler::new(BURST, PER_SECOND),
            suppressed: AtomicU64::new(0),
            reported: AtomicU64::new(0),
            is_unreported: AtomicBool::new(false),
            message: Mutex::default(),
        }
    }

    /// Returns the cause of a call site. Takes no lock, because this is the main cost of a
    /// suppressed line.
    fn of(metadata: &'static Metadata<'static>) -> &'static Self {
        // Fibonacci hashing. The lowest bits of an address are always zero.
        let hash = (ptr::from_ref(metadata).addr() as u64 >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let start = (hash >> 32) as usize % MAX_CAUSES;
        let entries = (start..start + PROBES).map(|entry| &CAUSES[entry % MAX_CAUSES]);
        let mut causes = entries.map(|entry| entry.get_or_init(|| Self::new(metadata)));
        let found = causes.find(|cause| ptr::eq(cause.metadata, metadata));
        found.unwrap_or_else(|| CAUSES[start].get_or_init(|| Self::new(metadata)))
    }

    /// Counts a suppressed line. Returns whether it is the first since the last summary.
    fn suppress(&self) -> bool {
        // `report` clears the flag before it reads the count. So a line that finds the flag
        // set is part of the next summary.
        self.suppressed.fetch_add(1, Ordering::SeqCst);
        let is_unreported = self.is_unreported.load(Ordering::SeqCst);
        !is_unreported && !self.is_unreported.swap(true, Ordering::SeqCst)
    }

    /// Keeps the message of a suppressed line for the summary.
    fn keep_message(&self, event: &Event<'_>) {
        // Only `report` holds the lock, and only briefly.
        if let Ok(mut message) = self.message.try_lock() {
            message.clear();
            event.record(&mut MessageVisitor(&mut message));
        }
    }

    fn report(&self) {
        if !self.is_unreported.swap(false, Ordering::SeqCst) {
            return;
        }
        let suppressed = self.suppressed.load(Ordering::SeqCst);
        let lines = suppressed - self.reported.swap(suppressed, Ordering::SeqCst);
        if lines == 0 {
            return;
        }
        let message = match self.message.lock() {
            Ok(message) => message.clone(),
            Err(message) => message.into_inner().clone(),
        };
        let source = self.metadata.target();
        // At the level of the suppressed lines.
        match *self.metadata.level() {
            Level::ERROR => tracing::error!(lines, source, like = message, "{SUPPRESSED}"),
            Level::WARN => tracing::warn!(lines, source, like = message, "{SUPPRESSED}"),
            _ => tracing::info!(lines, source, like = message, "{SUPPRESSED}"),
        }
    }
}

const SUPPRESSED: &str = "log lines were suppressed";

/// Copies the beginning of an event's message.
struct MessageVisitor<'a>(&'a mut String);

impl Visit for MessageVisitor<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            // Fails if the message is truncated.
            let _ = fmt::write(&mut Truncated(self.0), format_args!("{value:?}"));
        }
    }
}

/// A writer that keeps the first [`MAX_BYTES`].
struct Truncated<'a>(&'a mut String);

impl fmt::Write for Truncated<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = MAX_BYTES - self.0.len();
        self.0.push_str(&text[..text.floor_char_boundary(room)]);
        if text.len() <= room {
            Ok(())
        } else {
            Err(fmt::Error)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    /// Not this module, whose lines are exempt.
    const TARGET: &str = "sampled";

    /// Collects the levels of the lines that pass.
    #[derive(Clone, Default)]
    struct Passed(Arc<Mutex<Vec<Level>>>);

    impl<S: Subscriber> Layer<S> for Passed {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            self.0.lock().unwrap().push(*event.metadata().level());
        }
    }

    impl Passed {
        fn count(&self, level: Level) -> usize {
            let passed = self.0.lock().unwrap();
            passed.iter().filter(|it| **it == level).count()
        }
    }

    #[test]
    fn each_cause_is_sampled_separately_and_debug_and_audit_lines_are_not_sampled() {
        let passed = Passed::default();
        let (queue, _lines, _audit_lines) = LineQueue::new();
        let subscriber = tracing_subscriber::registry()
            .with(SamplingLayer::new(queue))
            .with(passed.clone());
        let took = tracing::subscriber::with_default(subscriber, || {
            let started = clock::monotonic();
            for number in 0..5_000 {
                tracing::warn!(target: TARGET, number, "a flood");
                tracing::debug!(target: TARGET, number, "a detail");
                tracing::info!(target: AUDIT, number, "changed");
            }
            for number in 0..50 {
                tracing::error!(target: TARGET, number, "another cause");
            }
            clock::monotonic() - started
        });
        assert_eq!(passed.count(Level::DEBUG), 5_000);
        assert_eq!(passed.count(Level::INFO), 5_000);
        assert_eq!(passed.count(Level::ERROR), 50);
        let max = BURST + PER_SECOND * (took.as_secs() + 1);
        let flood = passed.count(Level::WARN) as u64;
        assert!((BURST..=max).contains(&flood), "{flood} in {took:?}");
        let cause = CAUSES
            .iter()
            .filter_map(OnceLock::get)
            .find(|cause| {
                cause.metadata.target() == TARGET && *cause.metadata.level() == Level::WARN
            })
            .unwrap();
        assert_eq!(cause.suppressed.load(Ordering::Relaxed), 5_000 - flood);
        assert_eq!(*cause.message.lock().unwrap(), "a flood");
    }

    #[test]
    fn long_messages_are_truncated() {
        let mut text = String::new();
        let long = "ä".repeat(MAX_BYTES);
        let written = fmt::write(&mut Truncated(&mut text), format_args!("x{long}{long}"));
        assert!(written.is_err());
        assert_eq!(text.len(), MAX_BYTES - 1);
        assert!(fmt::write(&mut Truncated(&mut text), format_args!("y")).is_ok());
        assert!(fmt::write(&mut Truncated(&mut text), format_args!("y")).is_err());
    }
}
