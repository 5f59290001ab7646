//! The known members of a request, and their values in a form that every server reads alike.

use std::ops::Range;

use crate::error::RequestError;
use crate::reader::{Kind, Reader};
use crate::text::{JsonStr, reads_as};

/// The role of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A list of messages.
    Messages,
    /// A message, prompt or input, or a list of them.
    Items,
    /// Other text that the model reads.
    Text,
    /// A bound of the completion.
    MaxTokens,
    /// A bound of the completion for some servers.
    OtherMaxTokens,
    /// A number of completions.
    Choices,
    Stream,
    StreamOptions,
    Background,
}

const MEMBERS: [(&str, Role); 28] = [
    ("messages", Role::Messages),
    ("prompt", Role::Items),
    ("prompt_embeds", Role::Items),
    ("input", Role::Items),
    ("instructions", Role::Items),
    ("system", Role::Items),
    ("suffix", Role::Text),
    ("tools", Role::Text),
    ("functions", Role::Text),
    ("response_format", Role::Text),
    ("text", Role::Text),
    ("prediction", Role::Text),
    ("documents", Role::Text),
    ("output_config", Role::Text),
    ("output_format", Role::Text),
    ("mcp_servers", Role::Text),
    ("max_tokens", Role::MaxTokens),
    ("max_completion_tokens", Role::MaxTokens),
    ("max_output_tokens", Role::MaxTokens),
    ("max_new_tokens", Role::OtherMaxTokens),
    ("max_length", Role::OtherMaxTokens),
    ("n_predict", Role::OtherMaxTokens),
    ("num_predict", Role::OtherMaxTokens),
    ("n", Role::Choices),
    ("best_of", Role::Choices),
    ("stream", Role::Stream),
    ("stream_options", Role::StreamOptions),
    ("background", Role::Background),
];

/// Members with texts, lists or objects that no model reads.
const PARAMETERS: [&str; 18] = [
    "model",
    "user",
    "metadata",
    "stop",
    "stop_sequences",
    "logit_bias",
    "tool_choice",
    "function_call",
    "modalities",
    "audio",
    "service_tier",
    "encoding_format",
    "include",
    "truncation",
    "safety_identifier",
    "prompt_cache_key",
    "previous_response_id",
    "conversation",
];

/// The length of the longest name of a known member, or more.
const LONGEST: usize = 32;

/// The most members of an object that is searched for known ones. The search takes a while for
/// each member.
const MAX_MEMBERS: u32 = 1_000;

/// The known members of an object that have occurred so far.
#[derive(Debug, Default)]
pub(crate) struct MemberPresence {
    /// A bit for each known member.
    known: u32,
    /// The number of all members.
    count: u32,
}

impl MemberPresence {
    /// Returns the known member of a request that has this name, if any.
    pub(crate) fn request_member(
        &mut self,
        name: JsonStr<'_>,
    ) -> Result<Option<(&'static str, Role)>, RequestError> {
        let index = self.find(name, &MEMBERS.map(|(name, _)| name))?;
        Ok(index.map(|index| MEMBERS[index]))
    }

    /// Returns which of the known members, given by their paths, has this name, if any.
    ///
    /// # Errors
    ///
    /// If the member occurs for the second time, if a server that ignores case would take it for
    /// a known one, or if there are too many members.
    pub(crate) fn find(
        &mut self,
        name: JsonStr<'_>,
        known: &[&'static str],
    ) -> Result<Option<usize>, RequestError> {
        self.count += 1;
        if self.count > MAX_MEMBERS {
            let most = MAX_MEMBERS;
            return Err(RequestError::TooManyMembers { most });
        }
        if name.len() > LONGEST as u64 {
            return Ok(None);
        }
        let found = name.decode();
        let exact = known
            .iter()
            .position(|path| last(path).as_bytes() == &*found);
        if let Some(index) = exact {
            if self.known & 1 << index != 0 {
                let member = known[index];
                return Err(RequestError::Duplicate { member });
            }
            self.known |= 1 << index;
            return Ok(exact);
        }
        let found = String::from_utf8_lossy(&found);
        let mut known = known.iter();
        let member = known.find(|path| reads_as(&found, last(path)));
        match member {
            Some(member) => Err(RequestError::Spelling {
                found: found.into_owned(),
                member,
            }),
            None => Ok(None),
        }
    }
}

/// Returns whether a member is a parameter, which is never part of the prompt.
pub(crate) fn is_parameter(name: JsonStr<'_>) -> bool {
    PARAMETERS.iter().any(|parameter| name.is(parameter))
}

/// Returns the name of the member that a path leads to.
fn last(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_name_fits() {
        assert!(MEMBERS.iter().all(|(name, _)| name.len() <= LONGEST));
        assert!(MEMBERS.len() <= 32);
    }
}
