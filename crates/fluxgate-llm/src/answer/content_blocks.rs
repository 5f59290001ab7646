//! The content blocks of Anthropic's messages.

use crate::answer_facts::{AnswerFacts, members_len};
use crate::api::Api;
use crate::reader::{JsonFault, Reader};
use crate::usage::ReportedUsage;

/// The members of a block that hold text of the model. `data` is reasoning that only its
/// provider can read.
const BLOCK: [&str; 5] = ["text", "thinking", "data", "name", "input"];

/// The members of a delta that hold text of the model.
const DELTA: [&str; 3] = ["text", "thinking", "partial_json"];

/// Reads a message or an event. `message_start` has an empty message with the usage of the
/// prompt, `message_delta` has the usage of the completion.
pub(super) fn read(api: Api, reader: &mut Reader<'_>) -> Result<AnswerFacts, JsonFault> {
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
                let message = read(api, reader)?;
                facts.usage.merge(message.usage);
                facts.new_text.add(message.new_text);
            }
            _ => reader.skip()?,
        }
        Ok(())
    })?;
    Ok(facts)
}
