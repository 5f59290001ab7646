//! The choices of chat completions and completions.

use crate::answer_facts::{AnswerFacts, members_len, text_len};
use crate::api::Api;
use crate::reader::{JsonFault, Reader};
use crate::usage::ReportedUsage;

/// Reads an answer or an event. Some servers send both `delta` and `message`, which is all text
/// so far.
pub(super) fn read(api: Api, reader: &mut Reader<'_>) -> Result<AnswerFacts, JsonFault> {
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
