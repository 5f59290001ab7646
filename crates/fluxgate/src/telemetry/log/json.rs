//! Log lines as JSON objects.

use std::fmt;

use fluxgate_core::json::quoted;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// The maximum length of a string. Clients choose some of the values.
const MAX_BYTES: usize = 1024;
/// The field that is JSON already.
const ATTRIBUTES: &str = "attributes";

/// Writes each event as one object, with its fields at the top level.
///
/// The formatter of `tracing-subscriber` supports neither objects as fields nor a maximum
/// length.
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
        let metadata = event.metadata();
        writer.write_str("{\"timestamp\":\"")?;
        // RFC 3339 with microseconds.
        SystemTime.format_time(&mut writer)?;
        let (level, target) = (metadata.level(), quoted(metadata.target()));
        write!(writer, "\",\"level\":\"{level}\",\"target\":{target}")?;
        let mut fields = FieldWriter {
            writer: writer.by_ref(),
            written: Ok(()),
        };
        event.record(&mut fields);
        fields.written?;
        writer.write_str("}\n")
    }
}

/// Writes the fields of an event.
struct FieldWriter<'a> {
    writer: Writer<'a>,
    written: fmt::Result,
}

impl FieldWriter<'_> {
    fn write(&mut self, field: &Field, value: impl fmt::Display) {
        if self.written.is_ok() {
            let name = quoted(field.name());
            self.written = write!(self.writer, ",{name}:{value}");
        }
    }
}

impl Visit for FieldWriter<'_> {
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
        self.write(field, quoted(&truncated(value)));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        match field.name() {
            ATTRIBUTES => self.write(field, text),
            _ => self.record_str(field, &text),
        }
    }
}

/// Truncates a text that is too long.
fn truncated(text: &str) -> std::borrow::Cow<'_, str> {
    if text.len() <= MAX_BYTES {
        return text.into();
    }
    let end = text.floor_char_boundary(MAX_BYTES);
    format!("{}…", &text[..end]).into()
}
