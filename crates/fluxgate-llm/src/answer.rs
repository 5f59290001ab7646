//! Answers and the events of streams: what they report and what text they have.

mod choices;
mod content_blocks;
mod output_items;

use crate::api::Api;
use crate::facts::Facts;
use crate::reader::{JsonFault, Reader};

/// Reads the data of an event.
pub(crate) fn read_event(api: Api, data: &[u8]) -> Result<Facts, JsonFault> {
    let mut reader = Reader::new(data);
    let facts = match api {
        Api::ChatCompletions | Api::Completions | Api::Embeddings => {
            choices::read(api, choices::Source::Event, &mut reader)
        }
        Api::Responses => output_items::read_event(api, &mut reader),
        Api::Messages => content_blocks::read(api, &mut reader),
    }?;
    reader.end()?;
    Ok(facts)
}

/// Reads an answer that is no stream.
pub(crate) fn read_body(api: Api, body: &[u8]) -> Result<Facts, JsonFault> {
    let mut reader = Reader::new(body);
    let facts = match api {
        Api::ChatCompletions | Api::Completions | Api::Embeddings => {
            choices::read(api, choices::Source::Body, &mut reader)
        }
        Api::Responses => output_items::read_body(api, &mut reader),
        Api::Messages => content_blocks::read(api, &mut reader),
    }?;
    reader.end()?;
    Ok(facts)
}
