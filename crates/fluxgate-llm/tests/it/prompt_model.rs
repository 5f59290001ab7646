//! The bound of random prompts against a model on trees.

use fluxgate_llm::{AUDIO_BYTES_PER_TOKEN, Api, IMAGE_TOKENS, MESSAGE_TOKENS};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::read;

/// Bytes of text, other tokens.
type Counts = (u64, u64);

fn value(value: &Value) -> Counts {
    match value {
        Value::String(text) => (text.len() as u64, 0),
        other => (other.to_string().len() as u64, 0),
    }
}

fn item(item: &Value) -> Counts {
    let Value::Object(members) = item else {
        return value(item);
    };
    let media = members.get("type").and_then(Value::as_str);
    let mut sum = (0, 0);
    let mut media_len = 0;
    for (name, of) in members {
        sum.0 += name.len() as u64;
        match name.as_str() {
            "content" | "output" => sum = add(sum, content(of)),
            "image_url" | "source" | "input_audio" => media_len += value(of).0,
            _ => sum = add(sum, value(of)),
        }
    }
    let counted = match media {
        Some("image_url" | "input_image" | "image" | "computer_screenshot") => (0, IMAGE_TOKENS),
        Some("input_audio") => (0, media_len.div_ceil(AUDIO_BYTES_PER_TOKEN)),
        _ => (media_len, 0),
    };
    add(sum, counted)
}

fn content(content: &Value) -> Counts {
    match content {
        Value::Array(parts) => parts
            .iter()
            .map(|part| add(item(part), (1, 0)))
            .fold((0, 0), add),
        other => item(other),
    }
}

fn add(one: Counts, other: Counts) -> Counts {
    (one.0 + other.0, one.1 + other.1)
}

fn items(list: &Value) -> Counts {
    let Value::Array(list) = list else {
        let counts = if list.is_null() { (0, 0) } else { item(list) };
        return add(counts, (0, MESSAGE_TOKENS));
    };
    let (tokens, items): (Vec<_>, Vec<_>) = list.iter().partition(|item| item.is_number());
    let mut sum = (
        0,
        tokens.len() as u64 + items.len().max(1) as u64 * MESSAGE_TOKENS,
    );
    for one in items {
        let counts = match one {
            Value::Array(list) => {
                let (tokens, others): (Vec<_>, Vec<_>) =
                    list.iter().partition(|item| item.is_number());
                let others = others.into_iter().map(value).fold((0, 0), add);
                add(others, (0, tokens.len() as u64))
            }
            one => item(one),
        };
        sum = add(sum, counts);
    }
    sum
}

fn values() -> impl Strategy<Value = Value> {
    let names = || {
        const NAMES: [&str; 8] = [
            "type",
            "source",
            "input_audio",
            "output",
            "text",
            "content",
            "image_url",
            "dat\u{e9}",
        ];
        prop::sample::select(&NAMES[..]).prop_map(str::to_owned)
    };
    const TYPES: [&str; 4] = ["image", "input_audio", "image_url", "text"];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        prop::sample::select(&TYPES[..]).prop_map(Value::from),
        "(data:)?[a-z\"\\\\é\n日😀]{0,30}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((names(), inner), 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Writes every character of a JSON text outside of ASCII, and every slash, as an escape.
fn escaped(text: &str) -> String {
    let mut units = [0; 2];
    let escape = |char: char| match char {
        '/' => "\\/".to_owned(),
        ' '..='~' => char.to_string(),
        char => {
            let units = char.encode_utf16(&mut units).iter();
            units.map(|unit| format!("\\u{unit:04x}")).collect()
        }
    };
    text.chars().map(escape).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn the_bound_is_that_of_the_model(input in values(), messages in prop::collection::vec(values(), 0..3), tools in values()) {
        let messages = Value::from(messages);
        let body = json!({ "input": input, "messages": messages, "tools": tools, "unknown": [input], "metadata": input });
        let sum = add(add(items(&input), items(&messages)), value(&tools));
        let sum = add(sum, value(&json!([input])));
        let expected = sum.0.div_ceil(3) + sum.1;
        let bound = |text: &str| read(Api::Responses, text).prompt_tokens();
        prop_assert_eq!(bound(&body.to_string()), expected, "{}", body);
        // White space and escapes count only where JSON counts as it is written.
        for text in [format!("{body:#}"), escaped(&body.to_string())] {
            prop_assert!(bound(&text) >= expected, "{}", text);
        }
    }
}

#[test]
fn spelling_makes_no_difference_to_text() {
    let body = json!({ "messages": [{ "content": ["é/", { "text": "日\n" }] }] });
    for text in [
        body.to_string(),
        format!("{body:#}"),
        escaped(&body.to_string()),
    ] {
        let tokens = read(Api::ChatCompletions, &text).prompt_tokens();
        assert_eq!(tokens, MESSAGE_TOKENS + 20_u64.div_ceil(3), "{text}");
    }
}
