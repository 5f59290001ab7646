//! The output items of OpenAI's responses.

use std::borrow::Cow;

use crate::answer_facts::{AnswerFacts, text_len};
use crate::api::Api;
use crate::reader::{JsonFault, Kind, Reader};
use crate::usage::ReportedUsage;

/// Reads an event. An event whose type ends with `.delta` has new text. One that ends with
/// `.done` repeats the text of an item that is complete, and the response at the end repeats
/// all of it.
pub(super) fn read_event(api: Api, reader: &mut Reader<'_>) -> Result<AnswerFacts, JsonFault> {
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
                let response = read_body(api, reader)?;
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
pub(super) fn read_body(api: Api, reader: &mut Reader<'_>) -> Result<AnswerFacts, JsonFault> {
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
