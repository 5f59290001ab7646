//! Random streams against a model that has all events as trees.

use fluxgate_llm::{AnswerFormat, Api};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{read, run};

/// An event of a chat as a tree, and the texts of its choices.
#[derive(Clone, Debug)]
struct Event {
    data: Value,
    texts: Vec<usize>,
    usage: Option<(u64, u64)>,
}

fn choice() -> impl Strategy<Value = (Value, usize)> {
    let text = || "[a-z\"\\\\é\n日😀]{0,12}";
    let delta = prop_oneof![
        text().prop_map(|text| (json!({ "content": text }), text.len())),
        text().prop_map(|text| (
            json!({ "role": "assistant", "reasoning_content": text }),
            text.len()
        )),
        (text(), text()).prop_map(|(name, arguments)| {
            let function = json!({ "name": name, "arguments": arguments });
            let call =
                json!({ "index": 0, "id": "call", "type": "function", "function": function });
            (
                json!({ "tool_calls": [call], "content": null }),
                name.len() + arguments.len(),
            )
        }),
        Just((json!({}), 0)),
    ];
    (delta, 0..3_u32).prop_map(|((delta, len), index)| {
        (
            json!({ "index": index, "delta": delta, "finish_reason": null }),
            len,
        )
    })
}

fn event() -> impl Strategy<Value = Event> {
    let usage = prop::option::weighted(0.2, (0..50_u64, 0..50_u64));
    (prop::collection::vec(choice(), 0..3), usage).prop_map(|(choices, usage)| {
        let (choices, texts): (Vec<_>, _) = choices.into_iter().unzip();
        let reported = usage.map(|(prompt, completion)| {
            json!({ "prompt_tokens": prompt, "completion_tokens": completion, "details": { "total_tokens": 99 } })
        });
        let data = json!({ "id": "chatcmpl-1", "model": "m", "choices": choices, "usage": reported });
        Event { data, texts, usage }
    })
}

/// Returns the tokens of prompt and completion.
fn model(events: &[Event]) -> (u64, u64) {
    let texts = || {
        events
            .iter()
            .flat_map(|event| &event.texts)
            .filter(|len| **len > 0)
    };
    let bytes = texts().sum::<usize>() as u64;
    let seen = bytes.div_ceil(3).max(texts().count() as u64);
    let usages = || events.iter().filter_map(|event| event.usage);
    let prompt = usages().map(|usage| usage.0).max().unwrap_or(0);
    let prompt = if prompt == 0 { 5 } else { prompt };
    let reported = usages().map(|usage| usage.1).max().unwrap_or(0);
    if reported == 0 {
        return (prompt, seen);
    }
    let last = events
        .iter()
        .rposition(|event| event.usage.is_some())
        .unwrap();
    let text_follows = events[last + 1..]
        .iter()
        .any(|event| event.texts.iter().any(|len| *len > 0));
    if text_follows {
        (prompt, reported.max(seen))
    } else {
        (prompt, reported)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn tokens_and_bytes_are_those_of_the_model(
        events in prop::collection::vec(event(), 0..8),
        asks in any::<bool>(),
        pretty in any::<bool>(),
        line_end in prop::sample::select(&["\n", "\r", "\r\n"][..]),
        size in 1..300_usize,
    ) {
        let body = json!({ "prompt": "abc", "stream": true, "stream_options": { "include_usage": asks } });
        let request = read(Api::ChatCompletions, &body.to_string());
        let (mut stream, mut expected) = (String::new(), String::new());
        for event in &events {
            let data = if pretty {
                format!("{:#}", event.data)
            } else {
                event.data.to_string()
            };
            let lines = data.lines().map(|line| format!("data: {line}{line_end}"));
            let event_text = format!("{}{line_end}", lines.collect::<String>());
            stream.push_str(&event_text);
            if asks || !event.texts.is_empty() || event.usage.is_none() {
                expected.push_str(&event_text);
            }
        }
        let chunks = stream.as_bytes().chunks(size);
        let (passed, (prompt, completion, total, _)) = run(&request, AnswerFormat::Events, chunks);
        prop_assert_eq!(String::from_utf8(passed).unwrap(), expected);
        prop_assert_eq!((prompt, completion), model(&events));
        prop_assert_eq!(total, prompt + completion);
    }
}
