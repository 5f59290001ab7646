//! Requests: the tokens that they may use, and the changes that they need.

use std::ops::Range;

use crate::api::Api;
use crate::error::RequestError;
use crate::members::{
    MAX_NUMBER, MemberPresence, Role, boolean, is_parameter, unexpected, whole_number,
};
use crate::prompt::{self, PromptTally};
use crate::reader::{Kind, Reader};
use crate::reserve::{Reserve, TokenUsage};

const USAGE_OPTION: &str = "stream_options.include_usage";

/// The parts of a request to a language model that count.
///
/// A body that cannot be read cannot be counted. It is an error if the body is not a JSON
/// object, if it has a known member twice or spelled in another case, or if a known member has
/// a value of the wrong type: answer such a request with 400. Members that only the upstream
/// reads are not checked.
#[derive(Clone, Debug)]
pub struct Request {
    api: Api,
    reserve: Reserve,
    prompt: PromptTally,
    /// How many prompts the body lists. Each gets its own completions; a body that lists none
    /// counts as one prompt.
    prompts: u64,
    /// How many completions each prompt gets.
    choices: u64,
    /// The members that bound a completion, with their places; `None` for null.
    max_tokens: Vec<(Range<usize>, Option<u64>)>,
    /// Members that bound a completion for some servers only, with their places. They can only
    /// raise the bound, because other servers ignore them.
    other_max_tokens: Vec<(Range<usize>, u64)>,
    /// The number of tokens that `max_tokens` is lowered to.
    clamp: Option<u64>,
    streams: bool,
    stream_options: StreamOptions,
    background: bool,
    body: ObjectEnd,
}

/// Where members can be added to an object.
#[derive(Clone, Copy, Debug, Default)]
struct ObjectEnd {
    /// The position of the closing bracket.
    at: usize,
    is_empty: bool,
}

#[derive(Clone, Debug, Default)]
enum StreamOptions {
    #[default]
    Absent,
    Null(Range<usize>),
    Object {
        end: ObjectEnd,
        /// The place of `include_usage`, and whether it is true.
        include_usage: Option<(Range<usize>, bool)>,
    },
}

impl Request {
    /// Reads the body of a request.
    pub fn read(api: Api, body: &[u8], reserve: Reserve) -> Result<Self, RequestError> {
        if let Err(error) = std::str::from_utf8(body) {
            let at = error.valid_up_to();
            return Err(RequestError::NotUtf8 { at });
        }
        let mut request = Self {
            api,
            reserve,
            prompt: PromptTally::default(),
            prompts: 0,
            choices: 1,
            max_tokens: Vec::new(),
            other_max_tokens: Vec::new(),
            clamp: None,
            streams: false,
            stream_options: StreamOptions::Absent,
            background: false,
            body: ObjectEnd::default(),
        };
        let mut reader = Reader::new(body);
        if reader.kind()? != Kind::Object {
            reader.skip()?;
            reader.end()?;
            return Err(RequestError::NotAnObject);
        }
        request.read_members(&mut reader)?;
        reader.end()?;
        Ok(request)
    }

    /// Returns the API that the request was sent to.
    pub fn api(&self) -> Api {
        self.api
    }

    /// Returns whether the request asks for a stream of events.
    pub fn streams(&self) -> bool {
        self.streams
    }

    /// Returns whether the client itself asked for the usage of a stream.
    pub fn asks_for_usage(&self) -> bool {
        let StreamOptions::Object { include_usage, .. } = &self.stream_options else {
            return false;
        };
        matches!(include_usage, Some((_, true)))
    }

    /// Returns whether [`rewrite`](Self::rewrite) asks for the usage of the stream in place of
    /// the client, which then must not see it.
    pub fn needs_usage_option(&self) -> bool {
        self.api.has_stream_options() && self.streams && !self.asks_for_usage()
    }

    /// Returns whether the completion may come after the answer, so that its usage may never be
    /// seen.
    pub fn runs_in_background(&self) -> bool {
        self.background
    }

    /// Returns how bytes and missing bounds count.
    pub fn reserve(&self) -> &Reserve {
        &self.reserve
    }

    /// Returns the bound of the prompt's tokens.
    pub fn prompt_tokens(&self) -> u64 {
        self.prompt.tokens(&self.reserve)
    }

    /// Returns the bound of the completion's tokens, all completions together.
    pub fn completion_tokens(&self) -> u64 {
        if !self.is_bounded() {
            return 0;
        }
        let stated = self.max_tokens.iter().filter_map(|(_, stated)| *stated);
        let others = self.other_max_tokens.iter().map(|(_, stated)| *stated);
        let highest = |bound: u64| others.fold(bound, u64::max);
        let one = match (stated.max(), self.clamp) {
            (Some(stated), Some(clamp)) => highest(stated).min(clamp),
            (Some(stated), None) => highest(stated),
            (None, Some(clamp)) => clamp,
            (None, None) => highest(self.reserve.default_max_tokens),
        };
        one.saturating_mul(self.completions())
    }

    /// Returns the bound of all tokens.
    pub fn total_tokens(&self) -> u64 {
        let completion = self.completion_tokens();
        self.prompt_tokens().saturating_add(completion)
    }

    /// Returns the bounds of all tokens, as what the request reserves.
    pub fn reserved(&self) -> TokenUsage {
        TokenUsage {
            prompt_tokens: self.prompt_tokens(),
            completion_tokens: self.completion_tokens(),
            total_tokens: self.total_tokens(),
            is_reported: false,
        }
    }

    /// Returns how many completions the request asks for: choices of every prompt.
    pub fn completions(&self) -> u64 {
        self.prompts.max(1).saturating_mul(self.choices)
    }

    /// Lowers the bound of each completion so that all together have at most
    /// `completion_tokens` tokens. [`rewrite`](Self::rewrite) then writes the bound, even if the
    /// client stated none.
    ///
    /// Returns whether there is at least one token for each completion; if not, nothing
    /// changes. Embeddings have no completion and always fit.
    #[must_use]
    pub fn clamp(&mut self, completion_tokens: u64) -> bool {
        if !self.is_bounded() {
            return true;
        }
        let each = completion_tokens / self.completions();
        if each > 0 {
            self.clamp = Some(each.min(MAX_NUMBER));
        }
        each > 0
    }

    /// Returns the body for the upstream, if it must differ from the `body` that was read: with
    /// a lower bound of the completion, and with usage in streams. All other bytes stay the
    /// same.
    pub fn rewrite(&self, body: &[u8]) -> Option<Vec<u8>> {
        let mut edits = self.max_tokens_edits();
        edits.extend(self.usage_edit());
        if edits.is_empty() {
            None
        } else {
            Some(apply(body, edits))
        }
    }

    /// Returns whether it has completions, which can be bounded.
    fn is_bounded(&self) -> bool {
        !self.api.max_members().is_empty()
    }

    fn max_tokens_edits(&self) -> Vec<Edit> {
        let Some(clamp) = self.clamp else {
            return Vec::new();
        };
        let others = self.other_max_tokens.iter().map(|(at, bound)| (at, *bound));
        let stated = self
            .max_tokens
            .iter()
            .filter_map(|(at, bound)| Some((at, (*bound)?)));
        let mut edits: Vec<_> = others
            .chain(stated.clone())
            .filter(|(_, bound)| *bound > clamp)
            .map(|(at, _)| Edit::replace(at, clamp))
            .collect();
        if stated.count() == 0 {
            if let Some((null, _)) = self.max_tokens.first() {
                edits.push(Edit::replace(null, clamp));
            } else if let Some(name) = self.api.max_members().first() {
                edits.push(self.body.insert(name, clamp));
            }
        }
        edits
    }

    fn usage_edit(&self) -> Option<Edit> {
        if !self.needs_usage_option() {
            return None;
        }
        let options = r#"{"include_usage":true}"#;
        Some(match &self.stream_options {
            StreamOptions::Absent => self.body.insert("stream_options", options),
            StreamOptions::Null(at) => Edit::replace(at, options),
            StreamOptions::Object { include_usage, end } => match include_usage {
                Some((at, _)) => Edit::replace(at, true),
                None => end.insert("include_usage", true),
            },
        })
    }

    fn read_members(&mut self, reader: &mut Reader<'_>) -> Result<(), RequestError> {
        let mut presence = MemberPresence::default();
        let mut is_empty = true;
        reader.try_for_each_member(|reader, name| {
            is_empty = false;
            match presence.request_member(name)? {
                Some((name, role)) => self.read_member(name, role, reader)?,
                None if is_parameter(name) => reader.skip()?,
                None => self.prompt.add(prompt::unknown(reader)?),
            }
            Ok::<_, RequestError>(())
        })?;
        let at = reader.position() - 1;
        self.body = ObjectEnd { at, is_empty };
        Ok(())
    }

    fn read_member(
        &mut self,
        name: &'static str,
        role: Role,
        reader: &mut Reader<'_>,
    ) -> Result<(), RequestError> {
        match role {
            Role::Messages | Role::Items => {
                if role == Role::Messages && !matches!(reader.kind()?, Kind::Array | Kind::Null) {
                    return Err(unexpected(name, "a list", reader)?);
                }
                let (tally, items) = prompt::items(reader)?;
                self.prompt.add(tally);
                if self.api == Api::Completions && name.starts_with("prompt") {
                    self.prompts += items;
                }
            }
            Role::Text => self.prompt.add(prompt::value(reader)?),
            Role::MaxTokens if self.api.max_members().contains(&name) => {
                let (at, number) = whole_number(name, reader)?;
                self.max_tokens.push((at, number));
            }
            Role::OtherMaxTokens if self.is_bounded() => {
                let (at, number) = whole_number(name, reader)?;
                self.other_max_tokens
                    .extend(number.map(|number| (at, number)));
            }
            Role::Choices if self.api.choice_members().contains(&name) => {
                let (_, number) = whole_number(name, reader)?;
                self.choices = self.choices.max(number.unwrap_or(1));
            }
            Role::Stream => self.streams = boolean(name, reader)?.1,
            Role::StreamOptions if self.api.has_stream_options() => {
                self.stream_options = stream_options(name, reader)?;
            }
            Role::Background if self.api == Api::Responses => {
                self.background = boolean(name, reader)?.1;
            }
            Role::StreamOptions => reader.skip()?,
            Role::MaxTokens | Role::OtherMaxTokens | Role::Choices | Role::Background => {
                self.prompt.add(prompt::unknown(reader)?);
            }
        }
        Ok(())
    }
}

impl ObjectEnd {
    fn insert(&self, name: &str, value: impl ToString) -> Edit {
        let comma = if self.is_empty { "" } else { "," };
        let text = format!("{comma}\"{name}\":{}", value.to_string());
        Edit {
            at: self.at..self.at,
            text,
        }
    }
}

fn stream_options(
    member: &'static str,
    reader: &mut Reader<'_>,
) -> Result<StreamOptions, RequestError> {
    match reader.kind()? {
        Kind::Null => {
            let start = reader.position();
            reader.null()?;
            return Ok(StreamOptions::Null(start..reader.position()));
        }
        Kind::Object => (),
        _ => return Err(unexpected(member, "an object", reader)?),
    }
    let mut include_usage = None;
    let mut is_empty = true;
    let mut presence = MemberPresence::default();
    reader.try_for_each_member(|reader, name| {
        is_empty = false;
        match presence.find(name, &[USAGE_OPTION])? {
            Some(_) => include_usage = Some(boolean(USAGE_OPTION, reader)?),
            None => reader.skip()?,
        }
        Ok::<_, RequestError>(())
    })?;
    let at = reader.position() - 1;
    let end = ObjectEnd { at, is_empty };
    Ok(StreamOptions::Object { end, include_usage })
}

/// A part of a text, and what takes its place.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Edit {
    at: Range<usize>,
    text: String,
}

impl Edit {
    fn replace(at: &Range<usize>, value: impl ToString) -> Self {
        let at = at.clone();
        let text = value.to_string();
        Self { at, text }
    }
}

/// Returns `text` with the edits, which do not overlap. Edits at the same place follow each
/// other in the given order.
fn apply(text: &[u8], mut edits: Vec<Edit>) -> Vec<u8> {
    edits.sort_by_key(|edit| edit.at.start);
    let added: usize = edits.iter().map(|edit| edit.text.len()).sum();
    let mut edited = Vec::with_capacity(text.len() + added);
    let mut done = 0;
    for Edit { at, text: new } in edits {
        edited.extend_from_slice(text.get(done..at.start).unwrap_or_default());
        edited.extend_from_slice(new.as_bytes());
        done = at.end;
    }
    edited.extend_from_slice(text.get(done..).unwrap_or_default());
    edited
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_applied_in_order_of_their_places() {
        let edit = |at, text: &str| Edit {
            at,
            text: text.to_owned(),
        };
        let edits = vec![
            edit(5..5, "x"),
            edit(1..3, ""),
            edit(5..5, "y"),
            edit(0..1, "AA"),
        ];
        assert_eq!(apply(b"abcdef", edits), b"AAdexyf");
        assert_eq!(apply(b"abc", Vec::new()), b"abc");
    }
}
