//! What is read from an answer or from an event of a stream.

use crate::reader::{JsonFault, Kind, Reader};
use crate::seen::Seen;
use crate::usage::ReportedUsage;

/// What a part of an answer says, or all of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) usage: ReportedUsage,
    /// New text.
    pub(crate) seen: Seen,
    /// Text that repeats that of earlier events.
    pub(crate) repeated: Seen,
    /// Whether this is the event that only `include_usage` brings: usage, and a list of
    /// choices without any.
    pub(crate) is_usage_only: bool,
    /// Whether this is the event that ends a stream, with its usage.
    pub(crate) is_last: bool,
}

/// Returns the length of a text, which some servers send as an object instead: its JSON is
/// what the model wrote. Null and an empty object have none.
pub(crate) fn text_len(reader: &mut Reader<'_>) -> Result<u64, JsonFault> {
    Ok(match reader.kind()? {
        Kind::String => reader.string()?.len(),
        Kind::Object => match reader.raw()? {
            b"{}" => 0,
            raw => raw.len() as u64,
        },
        _ => reader.skip().map(|()| 0)?,
    })
}

/// Returns the length of the texts in the parts of a list, or of a plain string.
pub(crate) fn parts_len(reader: &mut Reader<'_>) -> Result<u64, JsonFault> {
    if reader.kind()? == Kind::String {
        return Ok(reader.string()?.len());
    }
    let mut len = 0;
    let Some(mut parts) = reader.elements_if_array()? else {
        return Ok(0);
    };
    while parts.next(reader)? {
        len += members_len(reader, &["text", "refusal", "transcript"])?;
    }
    Ok(len)
}

/// Returns the length of the texts in the named members of an object.
pub(crate) fn members_len(reader: &mut Reader<'_>, names: &[&str]) -> Result<u64, JsonFault> {
    let mut len = 0;
    let Some(mut members) = reader.members_if_object()? else {
        return Ok(0);
    };
    while let Some(name) = members.next(reader)? {
        match names.iter().any(|it| name.is(it)) {
            true => len += text_len(reader)?,
            false => reader.skip()?,
        }
    }
    Ok(len)
}
