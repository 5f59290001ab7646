//! JSON answers of each API.

use fluxgate_llm::{AnswerFormat, Api};

use crate::{read, run};

const CHAT: Api = Api::ChatCompletions;

/// Five tokens of prompt, 100 of completion.
const REQUEST: &str = r#"{"prompt":"abc"}"#;

fn tokens(api: Api, answer: &str) -> (u64, u64, u64, bool) {
    let request = read(api, REQUEST);
    let (passed, counts) = run(&request, AnswerFormat::Json, [answer.as_bytes()]);
    assert_eq!(passed, answer.as_bytes());
    for cut in 0..answer.len() {
        let (start, end) = answer.as_bytes().split_at(cut);
        let cut = run(&request, AnswerFormat::Json, [start, end]);
        assert_eq!(cut, (passed.clone(), counts));
    }
    counts
}

#[test]
fn reported_usage_counts_as_it_is() {
    let chat = r#"{"id":"c","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant",
        "content":"Hello \"usage\" \u00e9 Grüße 👋🏽","refusal":null},"logprobs":null,"finish_reason":"stop"}],
        "usage":{"prompt_tokens":19,"completion_tokens":10,"total_tokens":29,
        "prompt_tokens_details":{"cached_tokens":0}},"system_fingerprint":"f"}"#;
    let embeddings = r#"{"object":"list","data":[{"object":"embedding","embedding":[0.1,-2e-3],"index":0}],
        "model":"m","usage":{"prompt_tokens":8,"total_tokens":8}}"#;
    let responses = r#"{"id":"r","output":[{"type":"message","content":[{"type":"output_text","text":"x"}]}],
        "usage":{"input_tokens":36,"input_tokens_details":{"cached_tokens":0},"output_tokens":87,"total_tokens":123}}"#;
    let messages = r#"{"id":"m","type":"message","content":[{"type":"text","text":"Hi"}],"usage":{"input_tokens":10,
        "cache_creation_input_tokens":5,"cache_read_input_tokens":7,"output_tokens":4}}"#;
    let thinking =
        r#"{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":50}}"#;
    for (api, answer, expected) in [
        (CHAT, chat, (19, 10, 29, true)),
        (Api::Completions, chat, (19, 10, 29, true)),
        (Api::Embeddings, embeddings, (8, 0, 8, true)),
        (Api::Responses, responses, (36, 87, 123, true)),
        (Api::Messages, messages, (22, 4, 26, true)),
        (CHAT, thinking, (1, 2, 50, true)),
    ] {
        assert_eq!(tokens(api, answer), expected, "{answer}");
    }
}

#[test]
fn without_usage_the_text_counts() {
    let chat = r#"{"choices":[{"message":{"role":"assistant","content":"h\u00e9llo","tool_calls":[
        {"id":"call_1","type":"function","function":{"name":"abc","arguments":"{\"x\":1}"}},
        {"id":"call_2","type":"custom","custom":{"name":"d","input":"ef"}}]}},
        {"message":{"content":null,"reasoning_content":"think","reasoning":"think","refusal":"no",
        "function_call":{"name":"a","arguments":{"x":1}}}},{"message":{"content":[{"type":"text","text":"xyz"}]}}],
        "usage":null}"#;
    let chat_bytes: u64 = (6 + 3 + 7 + 1 + 2) + (5 + 2 + 1 + 7) + 3;
    let completions =
        r#"{"choices":[{"text":"abcd","logprobs":{"tokens":["abcd"]}},{"text":"ef"},{"text":""}]}"#;
    let responses = r#"{"output":[{"type":"reasoning","summary":[{"type":"summary_text","text":"abc"}]},
        {"type":"message","role":"assistant","content":[{"type":"output_text","text":"defg"},{"type":"refusal","refusal":"h"}]},
        {"type":"function_call","name":"f","arguments":"{}"},{"type":"function_call_output","output":"long text"}]}"#;
    let messages = r#"{"content":[{"type":"thinking","thinking":"abc","signature":"xxxxxxxxxxxx"},{"type":"text","text":"d"},
        {"type":"tool_use","id":"toolu","name":"fn","input":{"city":"Rome"}},{"type":"tool_use","name":"g","input":{}}]}"#;
    for (api, answer, completion) in [
        (CHAT, chat, chat_bytes.div_ceil(3)),
        (Api::Completions, completions, 2),
        (Api::Responses, responses, 11_u64.div_ceil(3)),
        (
            Api::Messages,
            messages,
            (3 + 1 + 2 + 15 + 1_u64).div_ceil(3),
        ),
        // Other forms of the same text, and an answer within a list.
        (
            CHAT,
            r#"{"choices":[{"message":{"content":[{"type":"thinking","thinking":[{"type":"text","text":"abc"}]},"d"]}},
            {"message":{"content":{"a":1},"reasoning":"abc","reasoning_details":[{"type":"reasoning.text","text":"abc"},
            {"type":"reasoning.encrypted","data":"xxxxxxxx"}]}}]}"#,
            (4 + 7 + 3_u64).div_ceil(3),
        ),
        (
            CHAT,
            r#"[{"choices":[{"message":{"content":"abcdef"}}]}]"#,
            2,
        ),
        (CHAT, r#"{"error":{"message":"overloaded"}}"#, 0),
        (CHAT, "[]", 0),
        (CHAT, "", 0),
        // Each of three choices has a token at least.
        (
            Api::Completions,
            r#"{"choices":[{"text":"a"},{"text":"b"},{"text":"c"}]}"#,
            3,
        ),
    ] {
        let total = 5 + completion;
        assert_eq!(
            tokens(api, answer),
            (5, completion, total, false),
            "{answer}"
        );
    }
}

#[test]
fn what_is_no_json_counts_by_its_bytes() {
    for answer in [
        "<html>Bad</html>",
        r#"{"choices":[{"message":{"content":"cut"#,
        "{} {}",
    ] {
        let completion = (answer.len() as u64).div_ceil(3);
        assert_eq!(
            tokens(CHAT, answer),
            (5, completion, 5 + completion, false),
            "{answer}"
        );
        assert_eq!(
            tokens(Api::Embeddings, answer),
            (5, 0, 5, false),
            "{answer}"
        );
    }
    let list = r#"[{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}]"#;
    assert_eq!(tokens(CHAT, list), (3, 4, 7, true));
    // Usage that came before the cut is enough.
    let cut = r#"{"usage":{"prompt_tokens":3,"completion_tokens":4},"choices":[{"mess"#;
    assert_eq!(tokens(CHAT, cut), (3, 4, 7, true));
}

#[test]
fn usage_is_found_behind_many_megabytes() {
    let numbers = "0.123456789,".repeat(500_000);
    let text = format!(
        r#"{{"data":[{{"embedding":[{numbers}0]}}],"usage":{{"prompt_tokens":8,"total_tokens":8}}}}"#
    );
    let request = read(Api::Embeddings, r#"{"input":"abc"}"#);
    let (passed, counts) = run(&request, AnswerFormat::Json, text.as_bytes().chunks(9_999));
    assert_eq!(counts, (8, 0, 8, true));
    assert!(passed == text.as_bytes());

    // Without usage, text beyond the bound counts by all bytes of the answer.
    let text = format!(r#"{{"choices":[{{"message":{{"content":"{numbers}"}}}}]}}"#);
    let (_, counts) = run(
        &read(CHAT, REQUEST),
        AnswerFormat::Json,
        text.as_bytes().chunks(9_999),
    );
    let completion = (text.len() as u64).div_ceil(3);
    assert_eq!(counts, (5, completion, 5 + completion, false));
}

#[test]
fn an_object_is_no_stream_whatever_its_type_says() {
    let answer = r#"{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}"#;
    let request = read(CHAT, r#"{"prompt":"abc","stream":true}"#);
    for chunks in [
        vec![answer.as_bytes()],
        answer.as_bytes().chunks(1).collect(),
    ] {
        let (passed, counts) = run(&request, AnswerFormat::Events, chunks);
        assert_eq!((&passed[..], counts), (answer.as_bytes(), (3, 4, 7, true)));
    }
}

#[test]
fn answers_that_say_too_little_use_what_was_reserved() {
    let request = read(CHAT, r#"{"prompt":"abc","max_tokens":40}"#);
    let (passed, counts) = run(&request, AnswerFormat::Unreadable, [&b"\x1f\x8b\x08"[..]]);
    assert_eq!(
        (&passed[..], counts),
        (&b"\x1f\x8b\x08"[..], (5, 40, 45, false))
    );

    let queued = r#"{"id":"r","status":"queued","output":[],"usage":null}"#;
    let request = read(Api::Responses, r#"{"input":"abc","background":true}"#);
    let (_, counts) = run(&request, AnswerFormat::Json, [queued.as_bytes()]);
    assert_eq!(counts, (5, 100, 105, false));
    let done = r#"{"id":"r","usage":{"input_tokens":1,"output_tokens":2,"total_tokens":3}}"#;
    let (_, counts) = run(&request, AnswerFormat::Json, [done.as_bytes()]);
    assert_eq!(counts, (1, 2, 3, true));
}

#[test]
fn headers_state_the_format() {
    let format = |content_type: &str, encoding: Option<&str>| {
        AnswerFormat::of_headers(Some(content_type.as_bytes()), encoding.map(str::as_bytes))
    };
    assert_eq!(format("text/event-stream", None), AnswerFormat::Events);
    assert_eq!(
        format("Text/Event-Stream ; charset=utf-8", Some(" Identity")),
        AnswerFormat::Events
    );
    assert_eq!(
        format("text/event-stream", Some("gzip")),
        AnswerFormat::Unreadable
    );
    assert_eq!(format("application/json", Some("")), AnswerFormat::Json);
    assert_eq!(
        format("application/json", Some("br")),
        AnswerFormat::Unreadable
    );
    assert_eq!(AnswerFormat::of_headers(None, None), AnswerFormat::Json);
}
