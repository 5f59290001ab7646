//! What an answer or an event of a stream says.

use crate::reader::{JsonFault, Kind, Reader};
use crate::text_counts::TextCounts;
use crate::usage::ReportedUsage;

/// The usage and the text of an answer, or of an event of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AnswerFacts {
    pub(crate) usage: ReportedUsage,
    /// Text that no other event has.
    pub(crate) new_text: TextCounts,
    /// All text so far, which earlier events have as well.
    pub(crate) all_text: TextCounts,
    /// The text of a complete part, which earlier events have as well.
    pub(crate) part_text: TextCounts,
    /// Whether this is the event that only `include_usage` adds: usage, and an empty list of
    /// choices.
    pub(crate) is_usage_only: bool,
    /// Whether this is the event that ends a stream, with its usage.
    pub(crate) is_last: bool,
}

impl AnswerFacts {
    /// Adds the facts of another object.
    pub(crate) fn add(&mut self, other: Self) {
        self.usage.merge(other.usage);
        self.new_text.add(other.new_text);
        self.all_text.add(other.all_text);
        self.part_text.add(other.part_text);
        self.is_last |= other.is_last;
    }
}

/// The members of a part that hold text of the model.
const PART: [&str; 5] = ["text", "refusal", "transcript", "thinking", "summary"];

/// Returns the length of a text. Some servers send it as a list of parts, or as an object whose
/// JSON is the text of the model. Null and an empty object have none.
pub(crate) fn text_len(reader: &mut Reader<'_>) -> Result<u64, JsonFault> {
    match reader.kind()? {
        Kind::String => Ok(reader.string()?.len()),
        Kind::Object => match reader.raw()? {
            b"{}" => Ok(0),
            raw => Ok(raw.len() as u64),
        },
        Kind::Array => {
            let mut len = 0;
            reader.for_each_element(|reader| {
                len += match reader.kind()? {
                    Kind::String => reader.string()?.len(),
                    _ => members_len(reader, &PART)?,
                };
                Ok(())
            })?;
            Ok(len)
        }
        Kind::Number | Kind::Boolean | Kind::Null => reader.skip().map(|()| 0),
    }
}

/// Returns the length of the texts in the named members of an object.
pub(crate) fn members_len(reader: &mut Reader<'_>, names: &[&str]) -> Result<u64, JsonFault> {
    let mut len = 0;
    reader.for_each_member(|reader, name| {
        if !names.iter().any(|it| name.is(it)) {
            return reader.skip();
        }
        len += text_len(reader)?;
        Ok(())
    })?;
    Ok(len)
}
