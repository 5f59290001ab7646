//! Bounds how many lines of one cause are written.
//!
//! Clients choose how often some lines are written, those of libraries included: a frame
//! that `h2` does not expect is a warning. A cause is a call site, so a flood of one cause
//! does not affect the lines of others.

use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

use super::audit::AUDIT;
use super::queue::Queue;
use crate::telemetry::clock;
use crate::telemetry::sampler::Sampler;

/// How many lines of one cause may be written at once.
const AT_ONCE: u64 = 100;
/// How many lines of one cause a second may be written over time.
const A_SECOND: u64 = 10;

/// How many causes are distinguished: several times the number of call sites.
const SLOTS: usize = 1024;
/// How many slots are tried before two causes share one.
const PROBES: usize = 32;
/// How many bytes of a suppressed line its summary repeats.
const MAX_BYTES: usize = 200;

/// The target of the log itself, which bounds its own lines.
const OWN_TARGET: &str = "fluxgate::telemetry::log::";

/// All causes so far, of the process.
static CAUSES: [OnceLock<Cause>; SLOTS] = [const { OnceLock::new() }; SLOTS];
/// Whether there are suppressed lines that no summary has counted.
static UNREPORTED: AtomicBool = AtomicBool::new(false);

/// Returns how many lines were suppressed.
pub(in crate::telemetry) fn suppressed() -> u64 {
    let causes = CAUSES.iter().filter_map(OnceLock::get);
    causes
        .map(|cause| cause.suppressed.load(Ordering::Relaxed))
        .sum()
}

/// Returns whether there is something to report.
pub(super) fn is_unreported() -> bool {
    UNREPORTED.load(Ordering::SeqCst)
}

/// Writes a line for each cause with suppressed lines since the last report.
pub(super) fn report() {
    // Before the loop: lines that are suppressed later set it again.
    UNREPORTED.store(false, Ordering::SeqCst);
    for cause in CAUSES.iter().filter_map(OnceLock::get) {
        cause.report();
    }
}

/// Lets the first lines of each cause pass, and then a few a second. Lines at `debug` and
/// below are not sampled: an operator asked for them.
#[derive(Debug)]
pub(super) struct Sampling {
    /// Wakes the thread that reports.
    queue: Queue,
}

impl Sampling {
    pub(super) fn new(queue: Queue) -> Self {
        Self { queue }
    }
}

impl<S: Subscriber> Layer<S> for Sampling {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        if *metadata.level() > Level::INFO {
            return true;
        }
        let cause = Cause::of(metadata);
        if cause.is_exempt || cause.sampler.pass(clock::uptime()) {
            return true;
        }
        if cause.suppress() {
            cause.remember(event);
            UNREPORTED.store(true, Ordering::SeqCst);
            self.queue.wake();
        }
        false
    }
}

/// A call site, with the counts of its lines.
#[derive(Debug)]
struct Cause {
    metadata: &'static Metadata<'static>,
    /// Audit lines and those of the log itself are never suppressed.
    is_exempt: bool,
    sampler: Sampler,
    /// How many lines were suppressed.
    suppressed: AtomicU64,
    /// How many of them summaries have counted.
    reported: AtomicU64,
    /// Whether there may be some that no summary has counted.
    is_unreported: AtomicBool,
    /// The message of one of those.
    message: Mutex<String>,
}

impl Cause {
    fn new(metadata: &'static Metadata<'static>) -> Self {
        Self {
            metadata,
            is_exempt: metadata.target() == AUDIT || metadata.target().starts_with(OWN_TARGET),
            sampler: Sampler::new(AT_ONCE, A_SECOND),
            suppressed: AtomicU64::new(0),
            reported: AtomicU64::new(0),
            is_unreported: AtomicBool::new(false),
            message: Mutex::default(),
        }
    }

    /// Returns the cause of a call site. Takes no lock, for this is all that most lines of
    /// a flood cost.
    fn of(metadata: &'static Metadata<'static>) -> &'static Self {
        // Fibonacci hashing; the lowest bits of an address are all the same.
        let hash = (ptr::from_ref(metadata).addr() as u64 >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let start = (hash >> 32) as usize % SLOTS;
        let slots = (start..start + PROBES).map(|slot| &CAUSES[slot % SLOTS]);
        let mut causes = slots.map(|slot| slot.get_or_init(|| Self::new(metadata)));
        let found = causes.find(|cause| ptr::eq(cause.metadata, metadata));
        found.unwrap_or_else(|| CAUSES[start].get_or_init(|| Self::new(metadata)))
    }

    /// Counts a suppressed line. Returns whether it is the first since the last report.
    fn suppress(&self) -> bool {
        // In this order, and the report in the other: a line that finds the flag set is
        // counted by the report that clears it.
        self.suppressed.fetch_add(1, Ordering::SeqCst);
        let is_known = self.is_unreported.load(Ordering::SeqCst);
        !is_known && !self.is_unreported.swap(true, Ordering::SeqCst)
    }

    fn remember(&self, event: &Event<'_>) {
        // Only a report holds the lock, briefly.
        if let Ok(mut message) = self.message.try_lock() {
            message.clear();
            event.record(&mut Message(&mut message));
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
        // At the level of the lines that it stands for.
        match *self.metadata.level() {
            Level::ERROR => tracing::error!(lines, source, like = message, "{SUPPRESSED}"),
            Level::WARN => tracing::warn!(lines, source, like = message, "{SUPPRESSED}"),
            _ => tracing::info!(lines, source, like = message, "{SUPPRESSED}"),
        }
    }
}

const SUPPRESSED: &str = "log lines were suppressed";

/// Takes the beginning of an event's message.
struct Message<'a>(&'a mut String);

impl Visit for Message<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            // Fails where there is no more room.
            let _ = fmt::write(&mut Bounded(self.0), format_args!("{value:?}"));
        }
    }
}

/// A text that takes no more than [`MAX_BYTES`].
struct Bounded<'a>(&'a mut String);

impl fmt::Write for Bounded<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = MAX_BYTES - self.0.len();
        self.0.push_str(&text[..text.floor_char_boundary(room)]);
        match text.len() <= room {
            true => Ok(()),
            false => Err(fmt::Error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    /// Not that of this module, whose lines are exempt.
    const TARGET: &str = "sampled";

    /// Counts what passes, by level.
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
    fn each_cause_is_sampled_by_itself_and_what_is_asked_for_is_not() {
        let passed = Passed::default();
        let (queue, _lines, _audit_lines) = Queue::new();
        let subscriber = tracing_subscriber::registry()
            .with(Sampling::new(queue))
            .with(passed.clone());
        let took = tracing::subscriber::with_default(subscriber, || {
            let began = clock::uptime();
            for number in 0..5_000 {
                tracing::warn!(target: TARGET, number, "a flood");
                tracing::debug!(target: TARGET, number, "asked for");
                tracing::info!(target: AUDIT, number, "changed");
            }
            for number in 0..50 {
                tracing::error!(target: TARGET, number, "another cause");
            }
            clock::uptime() - began
        });
        assert_eq!(passed.count(Level::DEBUG), 5_000);
        assert_eq!(passed.count(Level::INFO), 5_000);
        assert_eq!(passed.count(Level::ERROR), 50);
        let most = AT_ONCE + A_SECOND * (took.as_secs() + 1);
        let flood = passed.count(Level::WARN) as u64;
        assert!((AT_ONCE..=most).contains(&flood), "{flood} in {took:?}");
        let cause = CAUSES.iter().filter_map(OnceLock::get).find(|cause| {
            cause.metadata.target() == TARGET && *cause.metadata.level() == Level::WARN
        });
        let cause = cause.unwrap();
        assert_eq!(cause.suppressed.load(Ordering::Relaxed), 5_000 - flood);
        assert_eq!(*cause.message.lock().unwrap(), "a flood");
    }

    #[test]
    fn of_a_long_message_the_beginning_is_repeated() {
        let mut text = String::new();
        let long = "ä".repeat(MAX_BYTES);
        let written = fmt::write(&mut Bounded(&mut text), format_args!("x{long}{long}"));
        assert!(written.is_err());
        assert_eq!(text.len(), MAX_BYTES - 1);
        assert!(fmt::write(&mut Bounded(&mut text), format_args!("y")).is_ok());
        assert!(fmt::write(&mut Bounded(&mut text), format_args!("y")).is_err());
    }
}
