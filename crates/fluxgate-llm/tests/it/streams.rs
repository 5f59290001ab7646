//! Streams of each API, cut at every position.

use fluxgate_llm::{AnswerFormat, Api, Meter, MeterOutput};

use crate::{read, run};

const CHAT: Api = Api::ChatCompletions;

/// Feeds a stream as a whole, and cut at every position: the result is the same.
///
/// Returns what is passed on, and the tokens of prompt, completion and both.
fn stream(api: Api, body: &str, stream: &str) -> (String, (u64, u64, u64, bool)) {
    let request = read(api, body);
    let bytes = stream.as_bytes();
    let whole = run(&request, AnswerFormat::Events, [bytes]);
    for cut in 0..bytes.len() {
        let (start, end) = bytes.split_at(cut);
        let halves = run(&request, AnswerFormat::Events, [start, end]);
        assert_eq!(halves, whole, "cut at {cut}: {stream:?}");
    }
    let single = run(&request, AnswerFormat::Events, bytes.chunks(1));
    assert_eq!(single, whole, "{stream:?}");
    (String::from_utf8(whole.0).unwrap(), whole.1)
}

/// Five tokens of prompt.
const ASKED: &str = r#"{"prompt":"abc","stream":true,"stream_options":{"include_usage":true}}"#;
const NOT_ASKED: &str = r#"{"prompt":"abc","stream":true}"#;

const CHAT_TEXT: &str = r#"data: {"id":"c","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}],"usage":null}

data: {"id":"c","choices":[{"index":0,"delta":{"content":"Héllo"},"finish_reason":null}],"usage":null}

data: {"id":"c","choices":[{"index":1,"delta":{"content":"\u65e5\u672c 😀"}},{"index":0,"delta":{"content":"x"}}],"usage":null}

data: {"id":"c","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"f","arguments":""}}]}}]}

data: {"id":"c","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\":"}}]}}]}

data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":null}

"#;
const CHAT_USAGE: &str = "data: {\"id\":\"c\",\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":12,\"total_tokens\":21}}\n\n";
const DONE: &str = "data: [DONE]\n\n";

/// Bytes of the text above, and events of choices that have text.
const CHAT_SEEN: (u64, u64) = (6 + (6 + 1 + 4 + 1) + 1 + 5, 5);

#[test]
fn usage_is_passed_on_only_to_clients_that_asked_for_it() {
    let text = format!("{CHAT_TEXT}{CHAT_USAGE}{DONE}");
    for api in [CHAT, Api::Completions] {
        let counts = (9, 12, 21, true);
        assert_eq!(stream(api, ASKED, &text), (text.clone(), counts));
        let removed = format!("{CHAT_TEXT}{DONE}");
        assert_eq!(stream(api, NOT_ASKED, &text), (removed.clone(), counts));
        let [text, removed] = [&text, &removed].map(|text| text.replace('\n', "\r\n"));
        assert_eq!(stream(api, NOT_ASKED, &text), (removed, counts));
    }
}

#[test]
fn without_usage_the_seen_text_counts() {
    let (bytes, _) = CHAT_SEEN;
    let completion = bytes.div_ceil(3);
    for body in [ASKED, NOT_ASKED] {
        let text = format!("{CHAT_TEXT}{DONE}");
        let counts = (5, completion, 5 + completion, false);
        assert_eq!(stream(CHAT, body, &text), (text, counts));
    }
    // Short pieces have a token each.
    let pieces = "data: {\"choices\":[{\"text\":\"a\"},{\"text\":\"b\"}]}\n\n".repeat(3);
    assert_eq!(
        stream(Api::Completions, ASKED, &pieces).1,
        (5, 6, 11, false)
    );
}

#[test]
fn a_cut_off_stream_counts_what_was_seen() {
    let request = read(CHAT, NOT_ASKED);
    let text = format!("{CHAT_TEXT}{CHAT_USAGE}{DONE}");
    let mut least = 0;
    for end in 0..=text.len() {
        let (passed, counts) = run(&request, AnswerFormat::Events, [&text.as_bytes()[..end]]);
        let (_, completion, _, is_reported) = counts;
        let usage_end = CHAT_TEXT.len() + CHAT_USAGE.len();
        // The last of the two line feeds makes no difference to what the event says.
        assert_eq!(is_reported, end >= usage_end - 2, "{end}");
        if is_reported {
            assert_eq!(counts, (9, 12, 21, true));
        } else if text.as_bytes()[..end].ends_with(b"\n\n") {
            assert!(completion >= least, "{end}");
            least = completion;
        }
        assert!(text.as_bytes().starts_with(&passed) || end >= usage_end - 2);
    }
    assert_eq!(least, CHAT_SEEN.0.div_ceil(3));
}

#[test]
fn usage_in_other_events_stays_and_counts() {
    // Some servers report with the last choice, or with every event as it grows.
    let last = "data: {\"choices\":[{\"delta\":{\"content\":\"abcdef\"}}],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1}}\n\n";
    assert_eq!(
        stream(CHAT, NOT_ASKED, last),
        (last.to_owned(), (3, 1, 4, true))
    );
    // Text after the last report is counted too.
    let more = format!("{last}data: {{\"choices\":[{{\"delta\":{{\"content\":\"ghi\"}}}}]}}\n\n");
    assert_eq!(
        stream(CHAT, NOT_ASKED, &more),
        (more.clone(), (3, 3, 6, false))
    );
    let grown = format!("{last}{}", last.replace(":1}", ":2}"));
    assert_eq!(stream(CHAT, NOT_ASKED, &grown).1, (3, 2, 5, true));
    // No choices and no usage: that is not the event that was asked for.
    let filter = "data: {\"choices\":[],\"prompt_filter_results\":[]}\n\ndata: {\"choices\":[],\"usage\":null}\n\n";
    assert_eq!(
        stream(CHAT, NOT_ASKED, filter),
        (filter.to_owned(), (5, 0, 5, false))
    );
}

#[test]
fn every_form_of_text_is_seen() {
    for (api, event, completion) in [
        // `message` is what has come so far.
        (CHAT, r#"{"choices":[{"message":{"content":"abcdef"}}]}"#, 2),
        (
            CHAT,
            r#"{"choices":[{"delta":{"content":[{"type":"thinking","thinking":[{"type":"text","text":"abc"}]}]}}]}"#,
            2,
        ),
        (
            CHAT,
            r#"{"choices":[{"delta":{"content":"","reasoning_details":[{"type":"reasoning.text","text":"abc"}]}}]}"#,
            2,
        ),
        (CHAT, r#"{"choices":[{"delta":{"content":{"a":1}}}]}"#, 5),
        (CHAT, r#"[{"choices":[{"delta":{"content":"abc"}}]}]"#, 2),
        (
            Api::Responses,
            r#"{"type":"response.output_item.done","item":{"content":[{"type":"output_text","text":"abc"}]}}"#,
            2,
        ),
        (
            Api::Responses,
            r#"{"type":"response.output_item.added","item":{"type":"function_call","name":"abcdefghi"}}"#,
            0,
        ),
    ] {
        let twice = format!("data: {event}\n\n").repeat(2);
        let (_, counts) = stream(api, ASKED, &twice);
        assert_eq!(counts, (5, completion, 5 + completion, false), "{event}");
    }
}

#[test]
fn every_form_of_events_is_read() {
    let usage = CHAT_USAGE.trim_end();
    let (start, end) = usage.split_at(usage.find(",\"usage\"").unwrap());
    let two_lines = format!("{start}\ndata:{end}");
    for (line_end, event) in [
        ("\n", usage.to_owned()),
        ("\r\n", usage.to_owned()),
        ("\r", usage.to_owned()),
        ("\n", usage.replace("data: ", "data:")),
        ("\r\n", two_lines.replace('\n', "\r\n")),
        (
            "\n",
            format!("event: x\n: comment\nid: 1\n{usage}\nretry: 5\ndatax: y\ndata"),
        ),
    ] {
        let before = format!("\u{feff}: hello{line_end}{line_end}data: {{}}{line_end}{line_end}");
        let after = format!("data: [DONE]{line_end}{line_end}");
        let text = format!("{before}{event}{line_end}{line_end}{after}");
        let (passed, counts) = stream(CHAT, NOT_ASKED, &text);
        assert_eq!(counts, (9, 12, 21, true), "{text:?}");
        assert_eq!(passed, format!("{before}{after}"), "{text:?}");
        // The mark may precede the event itself, which may be all there is.
        let text = format!("\u{feff}{event}{line_end}{line_end}");
        assert_eq!(
            stream(CHAT, NOT_ASKED, &text),
            (String::new(), (9, 12, 21, true))
        );
        assert_eq!(
            stream(CHAT, NOT_ASKED, &format!("\u{feff}{event}")).1,
            (9, 12, 21, true)
        );
    }
}

#[test]
fn events_of_responses() {
    let text = r#"event: response.created
data: {"type":"response.created","response":{"id":"r","output":[],"usage":null}}

event: response.reasoning_summary_text.delta
data: {"type":"response.reasoning_summary_text.delta","delta":"abc"}

event: response.output_text.delta
data: {"delta":"defgh","type":"response.output_text.delta","logprobs":[]}

event: response.function_call_arguments.delta
data: {"type":"response.function_call_arguments.delta","delta":"{}"}

event: response.output_text.done
data: {"type":"response.output_text.done","text":"defgh"}

"#;
    let body = r#"{"input":"abc","stream":true}"#;
    assert_eq!(
        stream(Api::Responses, body, text),
        (text.to_owned(), (5, 4, 9, false))
    );
    for end in ["completed", "incomplete", "failed"] {
        let text = format!(
            "{text}data: {{\"type\":\"response.{end}\",\"response\":{{\"output\":[{{\"content\":[{{\"text\":\"defgh\"}}]}}],\
             \"usage\":{{\"input_tokens\":7,\"output_tokens\":8,\"total_tokens\":15}}}}}}\n\n"
        );
        assert_eq!(
            stream(Api::Responses, body, &text),
            (text, (7, 8, 15, true))
        );
    }
    // The response repeats what was streamed, or says what was not.
    let repeated = "data: {\"type\":\"response.completed\",\"response\":{\"output\":[{\"content\":[{\"text\":\"0123456789ABC\"}]}]}}\n\n";
    assert_eq!(
        stream(Api::Responses, body, &format!("{text}{repeated}")).1,
        (5, 5, 10, false)
    );
}

#[test]
fn events_of_messages() {
    let start = r#"event: message_start
data: {"type":"message_start","message":{"id":"m","content":[],"usage":{"input_tokens":25,"cache_read_input_tokens":5,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

event: ping
data: {"type": "ping"}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"abcd"}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"xxxxxxxxxxxxxxxxxxxx"}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"efg"}}

event: content_block_start
data: {"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"t","name":"hi","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"a\""}}

"#;
    let body = r#"{"prompt":"abc","stream":true,"max_tokens":100}"#;
    // Cut off: the prompt is known, the completion is what was seen.
    let completion = (4 + 3 + 2 + 4_u64).div_ceil(3);
    let counts = (30, completion, 30 + completion, false);
    assert_eq!(
        stream(Api::Messages, body, start),
        (start.to_owned(), counts)
    );
    let text = format!(
        "{start}event: message_delta\ndata: {{\"type\":\"message_delta\",\"delta\":{{\"stop_reason\":\"tool_use\"}},\
         \"usage\":{{\"output_tokens\":15}}}}\n\nevent: message_stop\ndata: {{\"type\":\"message_stop\"}}\n\n"
    );
    assert_eq!(
        stream(Api::Messages, body, &text),
        (text, (30, 15, 45, true))
    );
}

#[test]
fn bytes_are_passed_on_at_once_unless_they_may_be_the_usage() {
    let mut meter = Meter::new(read(CHAT, NOT_ASKED), AnswerFormat::Events);
    let instead = |text: &str| MeterOutput::Instead(text.into());
    assert_eq!(meter.feed(b"data: {\"id\":1,"), instead(""));
    assert_eq!(meter.feed(b"\"choices\":["), instead(""));
    let start = "data: {\"id\":1,\"choices\":[{\"delta\":";
    assert_eq!(meter.feed(b"{\"delta\":"), instead(start));
    assert_eq!(meter.feed(b"{\"content\":\"a"), MeterOutput::Unchanged);
    assert_eq!(meter.feed(b"b\"}}]}\n"), MeterOutput::Unchanged);
    assert_eq!(meter.feed(b"\n"), MeterOutput::Unchanged);
    // A whole event and the start of the next one.
    assert_eq!(meter.feed(b": ping\n\ndata: {"), instead(": ping\n\n"));
    assert_eq!(meter.feed(b"}\n\n"), instead("data: {}\n\n"));
    // Lines of comments, also before the usage, and choices with white space.
    assert_eq!(meter.feed(b": keepalive\n"), MeterOutput::Unchanged);
    assert_eq!(meter.feed(b":"), instead(""));
    assert_eq!(meter.feed(b"\n"), instead(":\n"));
    assert_eq!(meter.feed(b":\r"), MeterOutput::Unchanged);
    let usage = format!("\n{CHAT_USAGE}: x\n");
    assert_eq!(meter.feed(usage.as_bytes()), instead("\n: x\n"));
    let start = b"data: { \"choices\" : [ {\"delta\"";
    assert_eq!(meter.feed(start), instead(&String::from_utf8_lossy(start)));
    assert_eq!(meter.feed(b":{}}]}\n\n"), MeterOutput::Unchanged);
    // An event that is too long to be the usage.
    assert_eq!(
        meter.feed(&b"x".repeat(70_000)),
        instead(&"x".repeat(70_000))
    );
    assert_eq!(meter.feed(b"x"), MeterOutput::Unchanged);

    let mut meter = Meter::new(read(CHAT, ASKED), AnswerFormat::Events);
    for chunk in [
        &b"data: {\"ch"[..],
        b"oices\":[]",
        b",\"usage\":{\"total_tokens\":1}}\n\n",
    ] {
        assert_eq!(meter.feed(chunk), MeterOutput::Unchanged);
    }
}
