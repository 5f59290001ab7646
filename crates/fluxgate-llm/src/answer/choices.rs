//! The choices of chat completions and completions.

use crate::api::Api;
use crate::facts::{Facts, members_len, text_len};
use crate::reader::{JsonFault, Reader};
use crate::usage::ReportedUsage;

/// Reads an answer or an event. Some servers send `delta` and, as far as it has grown,
/// `message` side by side.
pub(super) fn read(api: Api, reader: &mut Reader<'_>) -> Result<Facts, JsonFault> {
    let mut facts = Facts::default();
    let mut choices = None;
    let Some(mut members) = reader.members_if_object()? else {
        return Ok(facts);
    };
    while let Some(name) = members.next(reader)? {
        if name.is("choices") {
            choices = read_choices(&mut facts, reader)?;
        } else if name.is("usage") {
            facts.usage.merge(ReportedUsage::read(api, reader)?);
        } else {
            reader.skip()?;
        }
    }
    facts.is_usage_only = choices == Some(0) && facts.usage.is_some;
    facts.is_last = facts.is_usage_only;
    Ok(facts)
}

/// Returns how many choices there are, if there is a list of them.
fn read_choices(facts: &mut Facts, reader: &mut Reader<'_>) -> Result<Option<u64>, JsonFault> {
    let mut choices = 0;
    let Some(mut elements) = reader.elements_if_array()? else {
        return Ok(None);
    };
    while elements.next(reader)? {
        choices += 1;
        read_choice(facts, reader)?;
    }
    Ok(Some(choices))
}

fn read_choice(facts: &mut Facts, reader: &mut Reader<'_>) -> Result<(), JsonFault> {
    let (mut new, mut whole) = (0, 0);
    let Some(mut members) = reader.members_if_object()? else {
        return Ok(());
    };
    while let Some(name) = members.next(reader)? {
        match &*name.decode() {
            b"delta" => new += message_len(reader)?,
            b"text" => new += text_len(reader)?,
            b"message" => whole += message_len(reader)?,
            _ => reader.skip()?,
        }
    }
    facts.seen.add_piece(new);
    facts.repeated.add_piece(whole);
    Ok(())
}

fn message_len(reader: &mut Reader<'_>) -> Result<u64, JsonFault> {
    let mut len = 0;
    // Some servers send the same reasoning under several of its names.
    let mut reasoning = 0;
    let Some(mut members) = reader.members_if_object()? else {
        return Ok(0);
    };
    while let Some(name) = members.next(reader)? {
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
    }
    Ok(len + reasoning)
}

fn tool_calls_len(reader: &mut Reader<'_>) -> Result<u64, JsonFault> {
    let mut len = 0;
    let Some(mut calls) = reader.elements_if_array()? else {
        return Ok(0);
    };
    while calls.next(reader)? {
        let Some(mut members) = reader.members_if_object()? else {
            continue;
        };
        while let Some(name) = members.next(reader)? {
            if name.is("function") || name.is("custom") {
                len += members_len(reader, &["name", "arguments", "input"])?;
            } else {
                reader.skip()?;
            }
        }
    }
    Ok(len)
}
