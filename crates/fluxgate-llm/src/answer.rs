//! Answers and the events of streams: what they report and what text they have.

mod choices;
mod content_blocks;
mod output_items;

use crate::answer_facts::AnswerFacts;
use crate::api::Api;
use crate::reader::{JsonFault, Kind, Reader};

/// Reads the data of an event.
pub(crate) fn read_event(api: Api, data: &[u8]) -> Result<AnswerFacts, JsonFault> {
    read(data, |reader| match api {
        Api::ChatCompletions | Api::Completions | Api::Embeddings => choices::read(api, reader),
        Api::Responses => output_items::read_event(api, reader),
        Api::Messages => content_blocks::read(api, reader),
    })
}

/// Reads an answer that is not a stream.
pub(crate) fn read_body(api: Api, body: &[u8]) -> Result<AnswerFacts, JsonFault> {
    read(body, |reader| match api {
        Api::ChatCompletions | Api::Completions | Api::Embeddings => choices::read(api, reader),
        Api::Responses => output_items::read_body(api, reader),
        Api::Messages => content_blocks::read(api, reader),
    })
}

/// Reads a text of one object, or of a list that some servers put it into.
fn read(
    text: &[u8],
    read_one: impl Fn(&mut Reader<'_>) -> Result<AnswerFacts, JsonFault>,
) -> Result<AnswerFacts, JsonFault> {
    let mut reader = Reader::new(text);
    let mut facts = AnswerFacts::default();
    if reader.kind()? == Kind::Array {
        reader.for_each_element(|reader| {
            facts.add(read_one(reader)?);
            Ok(())
        })?;
    } else {
        facts = read_one(&mut reader)?;
    }
    reader.end()?;
    Ok(facts)
}
