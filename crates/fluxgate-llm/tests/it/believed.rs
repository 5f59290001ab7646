//! Which reports of usage are believed, and what counts where they are not.

use fluxgate_llm::{AnswerFormat, Api, Meter};

use crate::{read, run};

const CHAT: Api = Api::ChatCompletions;

/// Five tokens of prompt.
const STREAM: &str = r#"{"prompt":"abc","stream":true}"#;

/// An event with so many bytes of text, and with this usage.
fn text(bytes: usize, usage: &str) -> String {
    let text = "x".repeat(bytes);
    format!(
        "data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}],\"usage\":{usage}}}\n\n"
    )
}

/// The event that only has usage.
fn usage(prompt: u64, completion: u64) -> String {
    format!(
        "data: {{\"choices\":[],\"usage\":{{\"prompt_tokens\":{prompt},\"completion_tokens\":{completion}}}}}\n\n"
    )
}

/// Returns the tokens of prompt, completion and both of a stream that has ended.
fn ended(api: Api, stream: &str) -> (u64, u64, u64, bool) {
    run(
        &read(api, STREAM),
        AnswerFormat::Events,
        [stream.as_bytes()],
    )
    .1
}

/// Returns the same of a stream that is cut off.
fn cut_off(api: Api, stream: &str) -> (u64, u64, u64, bool) {
    let mut meter = Meter::new(read(api, STREAM), AnswerFormat::Events);
    meter.feed(stream.as_bytes());
    meter.cut_off();
    let used = meter.tokens();
    (
        used.prompt_tokens,
        used.completion_tokens,
        used.total_tokens,
        used.is_reported,
    )
}

#[test]
fn a_stream_that_is_cut_off_costs_at_least_what_was_seen() {
    for (reported, expected) in [
        (
            r#"{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}"#,
            (5, 1000, 1005, false),
        ),
        (
            r#"{"prompt_tokens":9,"completion_tokens":0,"total_tokens":9}"#,
            (9, 1000, 1009, false),
        ),
        (
            r#"{"prompt_tokens":9,"completion_tokens":1,"total_tokens":10}"#,
            (9, 1000, 1009, false),
        ),
        (
            r#"{"prompt_tokens":9,"completion_tokens":2000}"#,
            (9, 2000, 2009, false),
        ),
    ] {
        let stream = text(100, reported).repeat(30);
        assert_eq!(cut_off(CHAT, &stream), expected, "{reported}");
        // A server that repeats old usage in an event without text.
        let stale = format!("{stream}{}", text(0, reported));
        assert_eq!(cut_off(CHAT, &stale), expected, "{reported}");
    }
    // Usage that came before the text.
    let stream = usage(9, 1) + &text(300, "null");
    assert_eq!(cut_off(CHAT, &stream), (9, 100, 109, false));
    assert_eq!(ended(CHAT, &stream), (9, 100, 109, false));
}

#[test]
fn the_events_at_the_end_of_a_stream_are_enough() {
    let seen = text(300, "null");
    let (reported, done) = (usage(9, 80), "data: [DONE]\n\n");
    let with_text = text(300, r#"{"prompt_tokens":9,"completion_tokens":80}"#);
    for stream in [
        format!("{seen}{reported}"),
        format!("{seen}{reported}{done}"),
        format!("{with_text}{done}"),
    ] {
        assert_eq!(cut_off(CHAT, &stream), (9, 80, 89, true), "{stream}");
    }
    assert_eq!(cut_off(CHAT, &with_text), (9, 100, 109, false));
    let messages = "data: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"abcdefghi\"}}\n\n\
        data: {\"type\":\"message_delta\",\"usage\":{\"input_tokens\":9,\"output_tokens\":2}}\n\n";
    assert_eq!(cut_off(Api::Messages, messages), (9, 2, 11, true));
    let responses = "data: {\"type\":\"response.output_text.delta\",\"delta\":\"abcdefghi\"}\n\n\
        data: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":9,\"output_tokens\":2}}}\n\n";
    assert_eq!(cut_off(Api::Responses, responses), (9, 2, 11, true));
}

#[test]
fn a_report_of_zero_tokens_is_none_if_text_was_seen() {
    let zeros = r#"{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}"#;
    let stream = text(300, zeros).repeat(2);
    assert_eq!(ended(CHAT, &stream), (5, 200, 205, false));
    let stream = text(600, "null") + &usage(9, 0) + "data: [DONE]\n\n";
    assert_eq!(ended(CHAT, &stream), (9, 200, 209, false));
    // Without text, nothing contradicts it.
    assert_eq!(ended(CHAT, &usage(9, 0)), (9, 0, 9, true));
}

#[test]
fn what_follows_the_usage_does_not_make_it_incomplete() {
    let before = text(200, "null") + &usage(9, 2);
    for after in [
        "data: [DONE] \n\n",
        "data:  [DONE]\n\n",
        "event: ping\ndata: ping\n\ndata: [DONE]\n\n",
        "data:\n\n",
        "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
    ] {
        let stream = format!("{before}{after}");
        assert_eq!(ended(CHAT, &stream), (9, 2, 11, true), "{after}");
    }
}

#[test]
fn a_json_answer_without_a_readable_completion_counts_by_its_text() {
    let text = "x".repeat(300);
    for (usage, expected) in [
        (r#"{"prompt_tokens":9}"#, (9, 100, 109, false)),
        (
            r#"{"prompt_tokens":9,"completion_tokens":100.0,"total_tokens":109.0}"#,
            (9, 100, 109, false),
        ),
        (
            r#"{"prompt_tokens":9,"completion_tokens":null,"total_tokens":null}"#,
            (9, 100, 109, false),
        ),
        (
            r#"{"prompt_tokens":9,"completion_tokens":"80"}"#,
            (9, 100, 109, false),
        ),
        (
            r#"{"prompt_tokens":9,"completion_tokens":-80}"#,
            (9, 100, 109, false),
        ),
        (
            r#"{"prompt_tokens":9,"completion_tokens":1000000000000000}"#,
            (9, 100, 109, false),
        ),
        (r#"{"total_tokens":85}"#, (5, 100, 105, false)),
        (
            r#"{"prompt_tokens":0,"completion_tokens":0}"#,
            (5, 100, 105, false),
        ),
        // The rest of a total is the completion.
        (
            r#"{"prompt_tokens":9,"total_tokens":89}"#,
            (9, 80, 89, true),
        ),
        (
            r#"{"prompt_tokens":9,"completion_tokens":80}"#,
            (9, 80, 89, true),
        ),
    ] {
        for answer in [
            format!(r#"{{"choices":[{{"message":{{"content":"{text}"}}}}],"usage":{usage}}}"#),
            format!(r#"{{"usage":{usage},"choices":[{{"message":{{"content":"{text}"}}}}]}}"#),
        ] {
            let (_, counts) = run(&read(CHAT, STREAM), AnswerFormat::Json, [answer.as_bytes()]);
            assert_eq!(counts, expected, "{usage}");
        }
    }
}

#[test]
fn the_total_is_at_least_the_sum() {
    for (reported, total) in [(0, 109), (50, 109), (109, 109), (150, 150)] {
        let usage =
            format!(r#"{{"prompt_tokens":9,"completion_tokens":100,"total_tokens":{reported}}}"#);
        let answer = format!(r#"{{"choices":[],"usage":{usage}}}"#);
        let (_, counts) = run(&read(CHAT, STREAM), AnswerFormat::Json, [answer.as_bytes()]);
        assert_eq!(counts, (9, 100, total, true));
    }
    let first = text(
        1,
        r#"{"prompt_tokens":9,"completion_tokens":5,"total_tokens":14}"#,
    );
    assert_eq!(ended(CHAT, &(first + &usage(9, 100))), (9, 100, 109, true));
}
