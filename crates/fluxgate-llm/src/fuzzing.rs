//! Functions for fuzz targets: they take any bytes and panic if the crate breaks one of its
//! guarantees. A test also runs them on the seeds and on slight variations of them.
//!
//! This module needs the feature `fuzzing`, which is not part of the stable API.

use crate::api::Api;
use crate::meter::{AnswerFormat, Meter, MeterOutput};
use crate::request::Request;
use crate::reserve::Reserve;
use crate::reserve::TokenUsage;

/// A function that takes any bytes.
pub type FuzzFn = fn(&[u8]);

/// All functions by the names of their targets.
pub const ALL: [(&str, FuzzFn); 2] = [("llm_answer", llm_answer), ("llm_request", llm_request)];

const COMPLETION: u64 = 1_000;

/// Meters an answer. The first byte is a letter for the API, upper case for JSON and lower case for
/// events; the second is the chunk size; the rest is the answer.
///
/// The result must not depend on how the answer is split. Only streams may lose bytes, and only
/// bytes that report usage.
pub fn llm_answer(bytes: &[u8]) {
    let [letter, size, answer @ ..] = bytes else {
        return;
    };
    let format = if letter.is_ascii_uppercase() {
        AnswerFormat::Json
    } else {
        AnswerFormat::Events
    };
    let body = br#"{"prompt":"abc","stream":true}"#;
    let request =
        Request::read(api(*letter), body, Reserve::default()).expect("the request is valid");
    let whole = run(&request, format, answer, usize::MAX);
    assert_eq!(
        run(&request, format, answer, usize::from(*size).max(1)),
        whole
    );
    let removed = answer.len() - whole.0.len();
    if format == AnswerFormat::Json || !request.needs_usage_option() {
        assert_eq!(removed, 0);
    }
    let names_usage = answer.windows(5).any(|part| part == b"usage") || answer.contains(&b'\\');
    assert!(removed == 0 || names_usage);
}

/// Takes the body of a request after a letter for its API.
///
/// The rewritten body counts the same, keeps to the bound, and asks for usage in streams.
pub fn llm_request(bytes: &[u8]) {
    let Some((letter, body)) = bytes.split_first() else {
        return;
    };
    let api = api(*letter);
    let Ok(mut request) = Request::read(api, body, Reserve::default()) else {
        return;
    };
    let before = request.completion_tokens();
    if request.clamp(COMPLETION) {
        assert!(request.completion_tokens() <= COMPLETION);
    } else {
        assert_eq!(request.completion_tokens(), before);
    }
    let sent = request.rewrite(body).unwrap_or_else(|| body.to_vec());
    let again = Request::read(api, &sent, Reserve::default()).expect("it is valid");
    assert!(!again.needs_usage_option());
    assert_eq!(again.total_tokens(), request.total_tokens());
    assert_eq!(again.streams(), request.streams());
}

fn api(letter: u8) -> Api {
    match letter.to_ascii_lowercase() {
        b't' => Api::Completions,
        b'r' => Api::Responses,
        b'e' => Api::Embeddings,
        b'm' => Api::Messages,
        _ => Api::ChatCompletions,
    }
}

fn run(
    request: &Request,
    format: AnswerFormat,
    answer: &[u8],
    size: usize,
) -> (Vec<u8>, TokenUsage) {
    let mut meter = Meter::new(request.clone(), format);
    let mut passed = Vec::new();
    for chunk in answer.chunks(size) {
        match meter.feed(chunk) {
            MeterOutput::Unchanged => passed.extend_from_slice(chunk),
            MeterOutput::Instead(bytes) => passed.extend_from_slice(&bytes),
        }
    }
    passed.extend_from_slice(&meter.finish());
    (passed, meter.tokens())
}

#[cfg(test)]
mod tests {
    #[test]
    fn promises_hold_for_the_seeds_and_near_them() {
        fluxgate_testkit::fuzz::run_all("fluxgate-llm", &super::ALL);
    }
}
