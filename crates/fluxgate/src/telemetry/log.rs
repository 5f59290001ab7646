//! The log: one line an event, on standard error.

mod audit;
mod json;
mod queue;
mod sampling;
mod writer;

use std::panic;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::{Level, LogFormat, Telemetry};
pub(crate) use audit::{AUDIT, AuditPlace};
use json::JsonLines;
pub(super) use queue::dropped;
use sampling::Sampling;
pub(super) use sampling::suppressed;
pub(crate) use writer::Flush;

/// Starts to log as the config says. Dropping the returned value writes the lines that
/// still wait.
pub(crate) fn init(config: &Telemetry) -> Flush {
    let level = match config.level {
        Level::Error => LevelFilter::ERROR,
        Level::Warn => LevelFilter::WARN,
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
        Level::Trace => LevelFilter::TRACE,
    };
    // Lines of libraries below a warning may hold whole requests.
    let targets = Targets::new()
        .with_default(level.min(LevelFilter::WARN))
        .with_target("fluxgate", level)
        // Audit lines are written at any level.
        .with_target(AUDIT, LevelFilter::INFO);
    let (queue, flush) = writer::start();
    let sampling = Sampling::new(queue.clone());
    let lines = fmt::layer().with_ansi(false).with_writer(queue);
    let subscriber = tracing_subscriber::registry().with(targets).with(sampling);
    let begun = match config.log {
        LogFormat::Json => subscriber.with(lines.event_format(JsonLines)).try_init(),
        LogFormat::Text => subscriber.with(lines).try_init(),
    };
    // Fails if this process has a subscriber already, which stays.
    let _ = begun;
    panic::set_hook(Box::new(log_panic));
    flush
}

/// Logs a panic as a line like any other.
fn log_panic(info: &panic::PanicHookInfo<'_>) {
    let payload = info.payload();
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let location = info.location().map(tracing::field::display);
    let thread = std::thread::current();
    tracing::error!(
        panic = text.unwrap_or("of something that is no text"),
        location,
        thread = thread.name(),
        "panicked"
    );
}
