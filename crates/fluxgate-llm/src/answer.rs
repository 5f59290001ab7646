//! Answers and the events of streams: what they report and what text they have.

use std::borrow::Cow;

use crate::api::Api;
use crate::reader::{JsonFault, Kind, Reader};
use crate::reserve::TextCounts;
use crate::usage::ReportedUsage;

/// Reads the data of an event.
pub(crate) fn read_event(api: Api, data: &[u8]) -> Result<AnswerFacts, JsonFault> {
    read(api, data, read_response_event)
}

/// Reads an answer that is not a stream.
pub(crate) fn read_body(api: Api, body: &[u8]) -> Result<AnswerFacts, JsonFault> {
    read(api, body, read_response)
}

/// Reads a text of one object, or of a list that some servers put it into.
fn read(
    api: Api,
    text: &[u8],
    read_response: fn(Api, &mut Reader<'_>) -> Result<AnswerFacts, JsonFault>,
) -> Result<AnswerFacts, JsonFault> {
    let read_one = match api {
        Api::ChatCompletions | Api::Completions | Api::Embeddings => read_completion,
        Api::Responses => read_response,
        Api::Messages => read_message,
    };
    let mut reader = Reader::new(text);
    let mut facts = AnswerFacts::default();
    if reader.kind()? == Kind::Array {
        reader.for_each_element(|reader| {
            facts.add(read_one(api, reader)?);
            Ok(())
        })?;
    } else {
        facts = read_one(api, &mut reader)?;
    }
    reader.end()?;
    Ok(facts)
}

/// Reads an answer or an event. Some servers send both `delta` and `message`, which is all text
/// so far.
fn read_completion(api: Api, reader: &mut Reader<'_>) -> Result<AnswerFacts, JsonFault> {
    let mut facts = AnswerFacts::default();
    let mut choices = None;
    reader.for_each_member(|reader, name| {
        if name.is("choices") {
            choices = read_choices(&mut facts, reader)?;
        } else if name.is("usage") {
            facts.usage.merge(ReportedUsage::read(api, reader)?);
        } else {
            reader.skip()?;
        }
        Ok(())
    })?;
    facts.is_usage_only = choices == Some(0) && facts.usage.is_some;
    facts.is_last = facts.is_usage_only;
    Ok(facts)
}

/// Returns how many choices there are, if there is a list of them.
fn read_choices(
    facts: &mut AnswerFacts,
    reader: &mut Reader<'_>,
) -> Result<Option<u64>, JsonFault> {
    let mut choices = 0;
    let is_list = reader.for_each_element(|reader| {
        choices += 1;
        read_choice(facts, reader)
    })?;
    Ok(is_list.then_some(choices))
}

fn read_choice(facts: &mut AnswerFacts, reader: &mut Reader<'_>) -> Result<(), JsonFault> {
    let (mut new, mut all) = (0, 0);
    reader.for_each_member(|reader, name| {
        match &*name.decode() {
            b"delta" => new += message_len(reader)?,
            b"text" => new += text_len(reader)?,
            b"message" => all += message_len(reader)?,
            _ => reader.skip()?,
        }
        Ok(())
    })?;
    facts.new_text.add_piece(new);
    facts.all_text.add_piece(all);
    Ok(())
}

fn message_len(reader: &mut Reader<'_>) -> Result<u64, JsonFault> {
    let mut len = 0;
    // Some servers send the same reasoning under several of its names.
    let mut reasoning = 0;
    reader.for_each_member(|reader, name| {
        match &*name.decode() {
            b"content" | b"refusal" => len += text_len(reader)?,
            b"reasoning" | b"reasoning_content" | b"reasoning_details" => {
                reasoning = text_len(reader)?.max(reasoning);
            }
            b"tool_calls" => len += tool_calls_len(reader)?,
            b"function_call" => len += members_len(reader, &["name", "arguments"])?,
            b"audio" => len += members_len(reader, &["transcript"])?,
            _ => reader.skip()?,
        }
        Ok(())
    })?;
    Ok(len + reasoning)
}

fn tool_calls_len(reader: &mut Reader<'_>) -> Result<u64, JsonFault> {
    let mut len = 0;
    reader.for_each_element(|reader| {
        reader
            .for_each_member(|reader, name| {
                if name.is("function") || name.is("custom") {
                    len += members_len(reader, &["name", "arguments", "input"])?;
                    Ok(())
                } else {
                    reader.skip()
                }
            })
            .map(drop)
    })?;
    Ok(len)
}

/// The members of a block that hold text of the model. `data` is reasoning that only its
/// provider can read.
const BLOCK: [&str; 5] = ["text", "thinking", "data", "name", "input"];

/// The members of a delta that hold text of the model.
const DELTA: [&str; 3] = ["text", "thinking", "partial_json"];

/// Reads a message or an event. `message_start` has an empty message with the usage of the
/// prompt, `message_delta` has the usage of the completion.
fn read_message(api: Api, reader: &mut Reader<'_>) -> Result<AnswerFacts, JsonFault> {
    let mut facts = AnswerFacts::default();
    reader.for_each_member(|reader, name| {
        match &*name.decode() {
            b"usage" => {
                facts.usage.merge(ReportedUsage::read(api, reader)?);
                facts.is_last = facts.usage.is_some;
            }
            b"content" => {
                reader.for_each_element(|reader| {
                    facts.new_text.add_piece(members_len(reader, &BLOCK)?);
                    Ok(())
                })?;
            }
            b"content_block" => facts.new_text.add_piece(members_len(reader, &BLOCK)?),
            b"delta" => facts.new_text.add_piece(members_len(reader, &DELTA)?),
            b"message" => {
                let message = read_message(api, reader)?;
                facts.usage.merge(message.usage);
                facts.new_text.add(message.new_text);
            }
            _ => reader.skip()?,
        }
        Ok(())
    })?;
    Ok(facts)
}

/// Reads an event. An event whose type ends with `.delta` has new text. One that ends with
/// `.done` repeats the text of an item that is complete, and the response at the end repeats
/// all of it.
fn read_response_event(api: Api, reader: &mut Reader<'_>) -> Result<AnswerFacts, JsonFault> {
    let mut facts = AnswerFacts::default();
    let (mut is_delta, mut is_done) = (false, false);
    let (mut delta, mut item) = (0, 0);
    reader.for_each_member(|reader, name| {
        match &*name.decode() {
            b"type" => {
                let event_type = match reader.kind()? {
                    Kind::String => reader.string()?.decode(),
                    _ => reader.skip().map(|()| Cow::default())?,
                };
                is_delta = event_type.ends_with(b".delta");
                is_done = event_type.ends_with(b".done");
            }
            b"delta" => delta = text_len(reader)?,
            b"item" => item = item_len(reader)?,
            b"response" => {
                let response = read_response(api, reader)?;
                facts.usage.merge(response.usage);
                facts.all_text = response.new_text;
                facts.is_last = facts.usage.is_some;
            }
            _ => reader.skip()?,
        }
        Ok(())
    })?;
    if is_delta {
        facts.new_text.add_piece(delta);
    }
    if is_done {
        facts.part_text.add_piece(item);
    }
    Ok(facts)
}

/// Reads a response.
fn read_response(api: Api, reader: &mut Reader<'_>) -> Result<AnswerFacts, JsonFault> {
    let mut facts = AnswerFacts::default();
    reader.for_each_member(|reader, name| {
        match &*name.decode() {
            b"usage" => facts.usage.merge(ReportedUsage::read(api, reader)?),
            b"output" => {
                reader.for_each_element(|reader| {
                    facts.new_text.add_piece(item_len(reader)?);
                    Ok(())
                })?;
            }
            _ => reader.skip()?,
        }
        Ok(())
    })?;
    Ok(facts)
}

/// Returns the length of the text that the model wrote into an item, without results of tools.
fn item_len(reader: &mut Reader<'_>) -> Result<u64, JsonFault> {
    let mut len = 0;
    reader.for_each_member(|reader, name| match &*name.decode() {
        b"content" | b"summary" | b"name" | b"arguments" | b"input" | b"code" => {
            len += text_len(reader)?;
            Ok(())
        }
        _ => reader.skip(),
    })?;
    Ok(len)
}

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
fn text_len(reader: &mut Reader<'_>) -> Result<u64, JsonFault> {
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
fn members_len(reader: &mut Reader<'_>, names: &[&str]) -> Result<u64, JsonFault> {
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
