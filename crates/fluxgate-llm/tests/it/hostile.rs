//! Answers that no honest server sends.

use fluxgate_llm::{AnswerFormat, Api, Meter};
use proptest::prelude::*;

use crate::{read, run, try_read};

const APIS: [Api; 5] = [
    Api::ChatCompletions,
    Api::Completions,
    Api::Responses,
    Api::Embeddings,
    Api::Messages,
];

const STREAM: &str = r#"{"prompt":"abc","stream":true}"#;

#[test]
fn events_beyond_the_bound_count_by_their_bytes() {
    let request = read(Api::ChatCompletions, STREAM);
    let text = "x".repeat(3_000_000);
    let event = format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n");
    let many = "data: x\n".repeat(600_000) + "\n";
    let comment = format!(":{text}\n\n");
    for (stream, bytes) in [
        (&event, event.len() as u64 - 8),
        (&many, 600_000 * 2 - 1),
        (&comment, 0),
    ] {
        let after = format!("{stream}data: {{\"choices\":[{{\"text\":\"abcdef\"}}]}}\n\n");
        for size in [4_096, 1_000_000, usize::MAX] {
            let chunks = after.as_bytes().chunks(size);
            let (passed, (_, completion, _, _)) = run(&request, AnswerFormat::Events, chunks);
            assert!(passed == after.as_bytes());
            assert_eq!(completion, (bytes + 6).div_ceil(3));
        }
    }
}

#[test]
fn usage_is_found_in_events_beyond_the_bound() {
    let request = read(Api::Responses, STREAM);
    let text = "x \\\"usage\\\" ".repeat(100_000);
    let event = |name: &str, usage: &str| {
        let response = format!("{{\"id\":\"r\",\"instructions\":\"{text}\",\"usage\":{usage}}}");
        format!("data: {{\"type\":\"response.{name}\",\"response\":{response}}}\n\n")
    };
    let delta = "data: {\"type\":\"response.output_text.delta\",\"delta\":\"abcdefghi\"}\n\n";
    let usage = r#"{"input_tokens":250000,"output_tokens":13,"total_tokens":250013}"#;
    // These events repeat the request, which is no text of the answer.
    let started = event("created", "null") + &event("in_progress", "null") + delta;
    let ended = started.clone() + &event("completed", usage);
    for size in [4_096, usize::MAX] {
        let chunks = started.as_bytes().chunks(size);
        assert_eq!(
            run(&request, AnswerFormat::Events, chunks).1,
            (5, 3, 8, false)
        );
        let chunks = ended.as_bytes().chunks(size);
        let counts = (250_000, 13, 250_013, true);
        assert_eq!(run(&request, AnswerFormat::Events, chunks).1, counts);
    }

    let request = read(Api::ChatCompletions, STREAM);
    let usage = r#"{"prompt_tokens":9,"completion_tokens":80}"#;
    let large = format!("data: {{\"choices\":[{{\"text\":\"{text}\"}}],\"usage\":{usage}}}\n\n");
    // Not JSON, but the usage in it is.
    let nan = format!("data: {{\"choices\":[{{\"logprobs\":NaN}}],\"usage\":{usage}}}\n\n");
    for stream in [large, nan] {
        let chunks = stream.as_bytes().chunks(9_999);
        let (_, counts) = run(&request, AnswerFormat::Events, chunks);
        assert_eq!(counts, (9, 80, 89, true));
    }
}

#[test]
fn a_request_with_many_members_is_refused_soon() {
    let many = |count: usize| {
        let members: String = (0..count).map(|name| format!("\"{name}\":0,")).collect();
        format!("{members}\"n\":1")
    };
    for (count, is_read) in [(999, true), (1_000, false), (1_000_000, false)] {
        let members = many(count);
        let nested = format!("{{\"stream_options\":{{{members}}}}}");
        for body in [format!("{{{members}}}"), nested] {
            let read = try_read(Api::ChatCompletions, &body);
            assert_eq!(read.is_ok(), is_read, "{count}");
            if let Err(error) = read {
                assert!(error.to_string().ends_with("has more than 1000 members"));
            }
        }
    }
    // Elsewhere, their number does not matter.
    let elsewhere = format!("{{\"metadata\":{{{}}}}}", many(100_000));
    assert!(try_read(Api::ChatCompletions, &elsewhere).is_ok());
}

#[test]
fn events_just_within_the_bound_are_read() {
    let request = read(Api::ChatCompletions, STREAM);
    let frame = r#"{"choices":[{"text":""}]}"#.len();
    for (extra, is_read) in [(0, true), (1, false)] {
        let text = "x".repeat(1024 * 1024 - frame + extra);
        let event = format!("data: {{\"choices\":[{{\"text\":\"{text}\"}}]}}\n\n");
        for size in [1_000, usize::MAX] {
            let chunks = event.as_bytes().chunks(size);
            let (_, (_, completion, _, _)) = run(&request, AnswerFormat::Events, chunks);
            let bytes = if is_read {
                text.len()
            } else {
                text.len() + frame
            };
            assert_eq!(completion, (bytes as u64).div_ceil(3));
        }
    }
}

#[test]
fn deep_and_huge_values_are_no_danger() {
    let deep = format!("{}{}", "[".repeat(400_000), "]".repeat(400_000));
    let objects = format!("{}1{}", "{\"usage\":".repeat(50_000), "}".repeat(50_000));
    let huge = format!("{{\"usage\":{{\"total_tokens\":{}}}}}", "9".repeat(100_000));
    for api in APIS {
        let request = read(api, STREAM);
        for text in [&deep, &objects, &huge] {
            let (passed, _) = run(&request, AnswerFormat::Json, text.as_bytes().chunks(1_000));
            assert!(passed == text.as_bytes());
            let event = format!("data: {text}\n\n");
            let (passed, _) = run(
                &request,
                AnswerFormat::Events,
                event.as_bytes().chunks(1_000),
            );
            assert!(passed == event.as_bytes());
        }
    }
}

/// Pieces of streams and answers, well formed or not.
fn pieces() -> impl Strategy<Value = Vec<u8>> {
    const PIECES: [&[u8]; 24] = [
        b"data:",
        b"data: ",
        b"data",
        b"event: x",
        b":",
        b"\n",
        b"\r",
        b"\r\n",
        b"\n\n",
        b"\xef\xbb\xbf",
        b"\xff",
        b"{\"choices\":[",
        b"]",
        b",\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4}}",
        b"{\"usage\":null}",
        b"{\"delta\":{\"content\":\"\\ud83d\"}}",
        b"{\"text\":\"abc\"}",
        b"[DONE]",
        b"{\"delta\":{\"text\":\"abc\"}}",
        b"{\"type\":\"a.delta\",\"delta\":\"\xe6\x97\xa5\"}",
        b"\"",
        b"\\",
        b"}",
        b" ",
    ];
    let pieces = prop::collection::vec(prop::sample::select(&PIECES[..]), 0..40);
    pieces.prop_map(|pieces| pieces.concat())
}

/// Splits bytes into chunks of the given sizes, again and again.
fn chunks<'a>(mut bytes: &'a [u8], sizes: &[usize]) -> Vec<&'a [u8]> {
    let mut chunks = Vec::new();
    for size in sizes.iter().cycle() {
        let (chunk, rest) = bytes.split_at(bytes.len().min(*size));
        chunks.push(chunk);
        bytes = rest;
        if bytes.is_empty() {
            break;
        }
    }
    chunks
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn chunks_make_no_difference(
        bytes in pieces(),
        sizes in prop::collection::vec(1..20_usize, 1..8),
        api in prop::sample::select(&APIS[..]),
        format in prop::sample::select(&[AnswerFormat::Events, AnswerFormat::Json][..]),
    ) {
        let request = read(api, STREAM);
        let whole = run(&request, format, [&bytes[..]]);
        prop_assert_eq!(&run(&request, format, chunks(&bytes, &sizes)), &whole);
        if !request.needs_usage_option() || format == AnswerFormat::Json {
            prop_assert_eq!(&whole.0, &bytes);
        }
        let mut meter = Meter::new(request, format);
        meter.feed(&bytes);
        meter.feed(&[]);
        meter.finish();
        prop_assert_eq!(meter.tokens().total_tokens, whole.1.2);
    }

    #[test]
    fn any_request_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), text in pieces(), api in prop::sample::select(&APIS[..])) {
        for body in [bytes, text] {
            let text = String::from_utf8_lossy(&body);
            if let Ok(mut request) = try_read(api, &text) {
                prop_assert!(request.clamp(1_000_000_000_000));
                let sent = request.rewrite(text.as_bytes());
                let sent = sent.unwrap_or(text.as_bytes().to_vec());
                prop_assert!(serde_json::from_slice::<serde::de::IgnoredAny>(&sent).is_ok());
            }
        }
    }
}
