//! The output items of OpenAI's responses.

use crate::api::Api;
use crate::facts::{Facts, text_len};
use crate::reader::{JsonFault, Reader};
use crate::seen::Seen;
use crate::usage::ReportedUsage;

/// Reads an event. Those whose type ends with `.delta` have new text; those that end with
/// `.done` repeat it, with an item when that is complete, and so does the whole response at
/// the end.
pub(super) fn read_event(api: Api, reader: &mut Reader<'_>) -> Result<Facts, JsonFault> {
    let mut facts = Facts::default();
    let (mut is_delta, mut is_done) = (false, false);
    let (mut delta, mut item) = (0, 0);
    let Some(mut members) = reader.members_if_object()? else {
        return Ok(facts);
    };
    while let Some(name) = members.next(reader)? {
        match &*name.decode() {
            b"type" => {
                let kind = reader.if_string()?;
                let kind = kind.map(|kind| kind.decode()).unwrap_or_default();
                is_delta = kind.ends_with(b".delta");
                is_done = kind.ends_with(b".done");
            }
            b"delta" => delta = text_len(reader)?,
            b"item" => item = item_len(reader)?,
            b"response" => {
                let response = read_body(api, reader)?;
                facts.usage.merge(response.usage);
                facts.repeated = response.seen;
                facts.is_last = facts.usage.is_some;
            }
            _ => reader.skip()?,
        }
    }
    if is_delta {
        facts.seen.add_piece(delta);
    }
    if is_done {
        facts.done.add_piece(item);
    }
    Ok(facts)
}

/// Reads a response.
pub(super) fn read_body(api: Api, reader: &mut Reader<'_>) -> Result<Facts, JsonFault> {
    let mut facts = Facts::default();
    let Some(mut members) = reader.members_if_object()? else {
        return Ok(facts);
    };
    while let Some(name) = members.next(reader)? {
        match &*name.decode() {
            b"usage" => facts.usage.merge(ReportedUsage::read(api, reader)?),
            b"output" => facts.seen.add(output(reader)?),
            _ => reader.skip()?,
        }
    }
    Ok(facts)
}

fn output(reader: &mut Reader<'_>) -> Result<Seen, JsonFault> {
    let mut seen = Seen::default();
    let Some(mut items) = reader.elements_if_array()? else {
        return Ok(seen);
    };
    while items.next(reader)? {
        seen.add_piece(item_len(reader)?);
    }
    Ok(seen)
}

/// Returns the length of what the model wrote into an item; results of tools are not of it.
fn item_len(reader: &mut Reader<'_>) -> Result<u64, JsonFault> {
    let mut len = 0;
    let Some(mut members) = reader.members_if_object()? else {
        return Ok(0);
    };
    while let Some(name) = members.next(reader)? {
        match &*name.decode() {
            b"content" | b"summary" | b"name" | b"arguments" | b"input" | b"code" => {
                len += text_len(reader)?;
            }
            _ => reader.skip()?,
        }
    }
    Ok(len)
}
