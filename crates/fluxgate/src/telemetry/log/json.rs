//! A line as a JSON object.

use std::fmt;

use fluxgate_core::json::quoted;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// How many bytes of a text are written. Clients choose some of them.
const MAX_BYTES: usize = 1024;
/// The field whose text is JSON already.
const ATTRIBUTES: &str = "attributes";

/// Writes each event as one object, its fields beside the rest.
///
/// That of `tracing-subscriber` writes fields as texts and numbers only; ours
/// have an object among them, and a bound.
#[derive(Clone, Copy, Debug)]
pub(super) struct JsonLines;

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let about = event.metadata();
        writer.write_str("{\"timestamp\":\"")?;
        // To the microsecond, as RFC 3339 has it.
        SystemTime.format_time(&mut writer)?;
        let (level, target) = (about.level(), quoted(about.target()));
        write!(writer, "\",\"level\":\"{level}\",\"target\":{target}")?;
        let mut fields = Fields {
            writer: writer.by_ref(),
            written: Ok(()),
        };
        event.record(&mut fields);
        fields.written?;
        writer.write_str("}\n")
    }
}

/// Writes fields.
struct Fields<'a> {
    writer: Writer<'a>,
    written: fmt::Result,
}

impl Fields<'_> {
    fn write(&mut self, field: &Field, value: impl fmt::Display) {
        if self.written.is_ok() {
            let name = quoted(field.name());
            self.written = write!(self.writer, ",{name}:{value}");
        }
    }
}

impl Visit for Fields<'_> {
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.write(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.write(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.write(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.write(field, quoted(&bounded(value)));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        match field.name() {
            ATTRIBUTES => self.write(field, text),
            _ => self.record_str(field, &text),
        }
    }
}

/// The beginning of a text that is too long.
fn bounded(text: &str) -> std::borrow::Cow<'_, str> {
    if text.len() <= MAX_BYTES {
        return text.into();
    }
    let end = text.floor_char_boundary(MAX_BYTES);
    format!("{}…", &text[..end]).into()
}
