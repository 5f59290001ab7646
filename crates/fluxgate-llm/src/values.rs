//! Values of a request, in a form that every server reads alike.

use std::ops::Range;

use crate::error::RequestError;
use crate::reader::{Kind, Reader};

/// The largest number that a request may state.
pub(crate) const MAX_NUMBER: u64 = 1_000_000_000;

/// Reads a boolean and its place. Null counts as false.
pub(crate) fn boolean(
    member: &'static str,
    reader: &mut Reader<'_>,
) -> Result<(Range<usize>, bool), RequestError> {
    let kind = reader.kind()?;
    let start = reader.position();
    let value = match kind {
        Kind::Boolean => reader.boolean()?,
        Kind::Null => reader.null().map(|()| false)?,
        _ => return Err(unexpected(member, "true or false", reader)?),
    };
    Ok((start..reader.position(), value))
}

/// Reads a number and its place. Null counts as absent.
pub(crate) fn whole_number(
    member: &'static str,
    reader: &mut Reader<'_>,
) -> Result<(Range<usize>, Option<u64>), RequestError> {
    // A request needs a completion, and some servers take 0 tokens for no bound.
    let expected = "a whole number from 1 to 1000000000";
    let kind = reader.kind()?;
    let start = reader.position();
    let number = match kind {
        Kind::Null => reader.null().map(|()| None)?,
        Kind::Number => {
            let written = reader.number()?;
            // Only digits: servers differ in whether they take 1.0, 1e3 or -0.
            let number = std::str::from_utf8(written)
                .ok()
                .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))
                .and_then(|digits| digits.parse().ok())
                .filter(|number| (1..=MAX_NUMBER).contains(number));
            if number.is_none() {
                return Err(RequestError::Value {
                    member,
                    expected,
                    found: excerpt(written),
                });
            }
            number
        }
        _ => return Err(unexpected(member, expected, reader)?),
    };
    Ok((start..reader.position(), number))
}

/// Reads the next value, which has the wrong kind, and returns the error that names it.
pub(crate) fn unexpected(
    member: &'static str,
    expected: &'static str,
    reader: &mut Reader<'_>,
) -> Result<RequestError, RequestError> {
    let kind = reader.kind()?;
    let written = reader.raw()?;
    let found = match kind {
        Kind::Object => "an object".to_owned(),
        Kind::Array => "a list".to_owned(),
        Kind::String => format!("the string {}", excerpt(written)),
        Kind::Number | Kind::Boolean | Kind::Null => excerpt(written),
    };
    Ok(RequestError::Value {
        member,
        expected,
        found,
    })
}

/// Returns the beginning of a value, as it is written.
fn excerpt(written: &[u8]) -> String {
    let text = String::from_utf8_lossy(written);
    let mut start: String = text.chars().take(24).collect();
    if start.len() < text.len() {
        start.push('…');
    }
    start
}
