//! Tests of what the crate exports.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on has failed, and the panic says where"
)]

mod answers;
mod believed;
mod errors;
mod hostile;
mod prompt_model;
mod prompts;
mod requests;
mod rewriting;
mod stream_model;
mod streams;

use std::num::NonZeroU32;

use fluxgate_llm::{AnswerFormat, Api, Meter, MeterOutput, Request, RequestError, Reserve};

/// Three bytes a token, and 100 tokens where nothing is stated.
fn reserve() -> Reserve {
    Reserve {
        prompt_bytes_per_token: NonZeroU32::new(3).unwrap(),
        default_max_tokens: 100,
    }
}

fn try_read(api: Api, body: &str) -> Result<Request, RequestError> {
    Request::read(api, body.as_bytes(), reserve())
}

fn read(api: Api, body: &str) -> Request {
    try_read(api, body).unwrap_or_else(|error| panic!("{error}: {body}"))
}

/// Feeds the chunks to a meter. Returns what it passed on and the tokens of prompt,
/// completion and both; the last value is whether they were reported.
fn run<'a>(
    request: &Request,
    format: AnswerFormat,
    chunks: impl IntoIterator<Item = &'a [u8]>,
) -> (Vec<u8>, (u64, u64, u64, bool)) {
    let mut meter = Meter::new(request.clone(), format);
    let mut passed = Vec::new();
    for chunk in chunks {
        match meter.feed(chunk) {
            MeterOutput::Unchanged => passed.extend_from_slice(chunk),
            MeterOutput::Instead(bytes) => passed.extend_from_slice(&bytes),
        }
    }
    passed.extend_from_slice(&meter.finish());
    assert!(meter.finish().is_empty());
    let used = meter.tokens();
    let counts = (
        used.prompt_tokens,
        used.completion_tokens,
        used.total_tokens,
        used.is_reported,
    );
    (passed, counts)
}
