//! The bound of random prompts against a model on trees.

use fluxgate_llm::{AUDIO_BYTES_PER_TOKEN, Api, IMAGE_TOKENS, MESSAGE_TOKENS};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::read;

/// Bytes of text, bytes of data whose kind is unknown, other tokens.
type Counts = (u64, u64, u64);

fn value(value: &Value) -> Counts {
    match value {
        Value::String(text) if text.starts_with("data:") => (0, text.len() as u64, 0),
        Value::String(text) => (text.len() as u64, 0, 0),
        Value::Array(list) => list.iter().map(self::value).fold((0, 0, 0), add),
        Value::Object(members) => {
            let mut sum = (0, 0, 0);
            for (name, value) in members {
                sum.0 += name.len() as u64;
                sum = match value {
                    Value::String(data) if name == "data" || name == "file_data" => {
                        add(sum, (0, data.len() as u64, 0))
                    }
                    Value::String(of) if name == "type" => add(sum, (of.len() as u64, 0, 0)),
                    value => add(sum, self::value(value)),
                };
            }
            let (text, data, tokens) = sum;
            match members.get("type").and_then(Value::as_str) {
                Some("image_url" | "input_image" | "image" | "computer_screenshot") => {
                    (text, 0, tokens + IMAGE_TOKENS)
                }
                Some("input_audio") => (text, 0, tokens + data.div_ceil(AUDIO_BYTES_PER_TOKEN)),
                _ => sum,
            }
        }
        other => (other.to_string().len() as u64, 0, 0),
    }
}

fn add(one: Counts, other: Counts) -> Counts {
    (one.0 + other.0, one.1 + other.1, one.2 + other.2)
}

fn items(list: &Value) -> Counts {
    let Value::Array(list) = list else {
        let counts = if list.is_null() {
            (0, 0, 0)
        } else {
            value(list)
        };
        return add(counts, (0, 0, MESSAGE_TOKENS));
    };
    let (tokens, items): (Vec<_>, Vec<_>) = list.iter().partition(|item| item.is_number());
    let mut sum = (
        0,
        0,
        tokens.len() as u64 + items.len().max(1) as u64 * MESSAGE_TOKENS,
    );
    for item in items {
        let counts = match item {
            Value::Array(list) => {
                let (tokens, others): (Vec<_>, Vec<_>) =
                    list.iter().partition(|item| item.is_number());
                let others = others.into_iter().map(value).fold((0, 0, 0), add);
                add(others, (0, 0, tokens.len() as u64))
            }
            item => value(item),
        };
        sum = add(sum, counts);
    }
    sum
}

fn values() -> impl Strategy<Value = Value> {
    let names = || {
        const NAMES: [&str; 7] = [
            "type",
            "data",
            "file_data",
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
        let body = json!({ "input": input, "messages": messages, "tools": tools, "metadata": input });
        let sum = add(add(items(&input), items(&messages)), value(&tools));
        let expected = (sum.0 + sum.1).div_ceil(3) + sum.2;
        for text in [body.to_string(), format!("{body:#}"), escaped(&body.to_string())] {
            prop_assert_eq!(read(Api::Responses, &text).prompt_tokens(), expected, "{}", text);
        }
    }
}
