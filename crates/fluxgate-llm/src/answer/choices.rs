//! The choices of chat completions and completions.

use crate::api::Api;
use crate::facts::{Facts, members_len, parts_len, text_len};
use crate::reader::{JsonFault, Reader};
use crate::usage::ReportedUsage;

/// Where choices stand. Some servers send `delta` and, as far as it has grown, `message`
/// side by side.
#[derive(Clone, Copy)]
pub(super) enum Source {
    Event,
    Body,
}

pub(super) fn read(api: Api, source: Source, reader: &mut Reader<'_>) -> Result<Facts, JsonFault> {
    let mut facts = Facts::default();
    let mut choices = None;
    let Some(mut members) = reader.members_if_object()? else {
        return Ok(facts);
    };
    while let Some(name) = members.next(reader)? {
        if name.is("choices") {
            choices = read_choices(source, &mut facts, reader)?;
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
fn read_choices(
    source: Source,
    facts: &mut Facts,
    reader: &mut Reader<'_>,
) -> Result<Option<u64>, JsonFault> {
    let mut choices = 0;
    let Some(mut elements) = reader.elements_if_array()? else {
        return Ok(None);
    };
    while elements.next(reader)? {
        choices += 1;
        facts.seen.add_piece(choice_len(source, reader)?);
    }
    Ok(Some(choices))
}

fn choice_len(source: Source, reader: &mut Reader<'_>) -> Result<u64, JsonFault> {
    let message = match source {
        Source::Event => "delta",
        Source::Body => "message",
    };
    let mut len = 0;
    let Some(mut members) = reader.members_if_object()? else {
        return Ok(0);
    };
    while let Some(name) = members.next(reader)? {
        if name.is(message) {
            len += message_len(reader)?;
        } else if name.is("text") {
            len += text_len(reader)?;
        } else {
            reader.skip()?;
        }
    }
    Ok(len)
}

fn message_len(reader: &mut Reader<'_>) -> Result<u64, JsonFault> {
    let mut len = 0;
    // Some servers send the same reasoning under both of its names.
    let mut reasoning = 0;
    let Some(mut members) = reader.members_if_object()? else {
        return Ok(0);
    };
    while let Some(name) = members.next(reader)? {
        match &*name.decode() {
            b"content" => len += parts_len(reader)?,
            b"refusal" => len += text_len(reader)?,
            b"reasoning" | b"reasoning_content" => reasoning = text_len(reader)?.max(reasoning),
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
            match name.is("function") || name.is("custom") {
                true => len += members_len(reader, &["name", "arguments", "input"])?,
                false => reader.skip()?,
            }
        }
    }
    Ok(len)
}
