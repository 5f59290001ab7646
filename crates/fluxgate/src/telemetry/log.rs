//! The log: one line per event, on standard error.

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

use crate::config::{LogFormat, Telemetry};
pub(crate) use audit::{AUDIT, AuditReservation};
use json::JsonLines;
pub(super) use queue::dropped;
use sampling::SamplingLayer;
pub(super) use sampling::suppressed;
pub(crate) use writer::FlushGuard;

/// Starts logging as the config says. Dropping the returned guard writes the lines that are
/// still queued.
pub(crate) fn init(config: &Telemetry) -> FlushGuard {
    // Lines of libraries below a warning may contain whole requests.
    let targets = Targets::new()
        .with_default(config.level.min(LevelFilter::WARN))
        .with_target("fluxgate", config.level)
        // Audit lines are written at any level.
        .with_target(AUDIT, LevelFilter::INFO);
    let (queue, flush) = writer::start();
    let sampling = SamplingLayer::new(queue.clone());
    let lines = fmt::layer().with_ansi(false).with_writer(queue);
    let subscriber = tracing_subscriber::registry().with(targets).with(sampling);
    let initialized = match config.log {
        LogFormat::Json => subscriber.with(lines.event_format(JsonLines)).try_init(),
        LogFormat::Text => subscriber.with(lines).try_init(),
    };
    // Fails if this process already has a subscriber, which stays.
    let _ = initialized;
    panic::set_hook(Box::new(log_panic));
    flush
}

/// Logs a panic like any other event.
fn log_panic(info: &panic::PanicHookInfo<'_>) {
    let payload = info.payload();
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let location = info.location().map(tracing::field::display);
    let thread = std::thread::current();
    tracing::error!(
        panic = text.unwrap_or("the payload is not a string"),
        location,
        thread = thread.name(),
        "panicked"
    );
}
