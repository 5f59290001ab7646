//! The content blocks of Anthropic's messages.

use crate::api::Api;
use crate::facts::{Facts, members_len};
use crate::reader::{JsonFault, Reader};
use crate::usage::ReportedUsage;

/// What the model wrote into a block. `data` is reasoning that only its provider can read.
const BLOCK: [&str; 5] = ["text", "thinking", "data", "name", "input"];

/// What a delta adds to a block.
const DELTA: [&str; 3] = ["text", "thinking", "partial_json"];

/// Reads a message or an event. `message_start` has an empty message with the usage of the
/// prompt, `message_delta` has the usage of the completion.
pub(super) fn read(api: Api, reader: &mut Reader<'_>) -> Result<Facts, JsonFault> {
    let mut facts = Facts::default();
    let Some(mut members) = reader.members_if_object()? else {
        return Ok(facts);
    };
    while let Some(name) = members.next(reader)? {
        match &*name.decode() {
            b"usage" => {
                facts.usage.merge(ReportedUsage::read(api, reader)?);
                facts.is_last = facts.usage.is_some;
            }
            b"content" => read_blocks(&mut facts, reader)?,
            b"content_block" => facts.seen.add_piece(members_len(reader, &BLOCK)?),
            b"delta" => facts.seen.add_piece(members_len(reader, &DELTA)?),
            b"message" => {
                let message = read(api, reader)?;
                facts.usage.merge(message.usage);
                facts.seen.add(message.seen);
            }
            _ => reader.skip()?,
        }
    }
    Ok(facts)
}

fn read_blocks(facts: &mut Facts, reader: &mut Reader<'_>) -> Result<(), JsonFault> {
    let Some(mut blocks) = reader.elements_if_array()? else {
        return Ok(());
    };
    while blocks.next(reader)? {
        facts.seen.add_piece(members_len(reader, &BLOCK)?);
    }
    Ok(())
}
