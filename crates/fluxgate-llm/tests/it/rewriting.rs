//! Bodies as the upstream gets them.

use fluxgate_llm::Api;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::{read, try_read};

const CHAT: Api = Api::ChatCompletions;

fn rewritten(api: Api, body: &str, clamp: Option<u64>) -> Option<String> {
    let mut request = read(api, body);
    if let Some(clamp) = clamp {
        assert!(request.clamp(clamp));
    }
    let rewritten = request.rewrite(body.as_bytes());
    rewritten.map(|body| String::from_utf8(body).unwrap())
}

#[test]
fn usage_is_asked_for_in_streams() {
    for (body, expected) in [
        (r#"{"stream":false}"#, None),
        (
            r#"{"stream":true,"stream_options":{"include_usage":true}}"#,
            None,
        ),
        (
            r#"{"stream":true}"#,
            Some(r#"{"stream":true,"stream_options":{"include_usage":true}}"#),
        ),
        (
            " { \"stream\" : true , \"b\":1e2\n}\n",
            Some(
                " { \"stream\" : true , \"b\":1e2\n,\"stream_options\":{\"include_usage\":true}}\n",
            ),
        ),
        (
            r#"{"stream_options": null ,"stream":true}"#,
            Some(r#"{"stream_options": {"include_usage":true} ,"stream":true}"#),
        ),
        (
            r#"{"stream_options":{ },"stream":true}"#,
            Some(r#"{"stream_options":{ "include_usage":true},"stream":true}"#),
        ),
        (
            r#"{"stream_options":{"include_usage" : false, "x":[1]},"stream":true}"#,
            Some(r#"{"stream_options":{"include_usage" : true, "x":[1]},"stream":true}"#),
        ),
        (
            r#"{"stream_options":{"include_obfuscation":false},"stream":true}"#,
            Some(
                r#"{"stream_options":{"include_obfuscation":false,"include_usage":true},"stream":true}"#,
            ),
        ),
    ] {
        assert_eq!(rewritten(CHAT, body, None).as_deref(), expected, "{body}");
        assert_eq!(
            rewritten(Api::Completions, body, None).as_deref(),
            expected,
            "{body}"
        );
        assert_eq!(rewritten(Api::Messages, body, None), None, "{body}");
        assert_eq!(rewritten(Api::Responses, body, None), None, "{body}");
    }
}

#[test]
fn the_bound_of_the_completion_is_lowered_or_inserted() {
    for (api, body, expected) in [
        (CHAT, r#"{}"#, Some(r#"{"max_completion_tokens":10}"#)),
        (
            CHAT,
            r#"{"n": 1 }"#,
            Some(r#"{"n": 1 ,"max_completion_tokens":10}"#),
        ),
        (
            CHAT,
            r#"{"max_tokens": 11 }"#,
            Some(r#"{"max_tokens": 10 }"#),
        ),
        (CHAT, r#"{"max_tokens":10}"#, None),
        (CHAT, r#"{"max_tokens":5,"n":2}"#, None),
        (
            CHAT,
            r#"{"max_tokens":6,"n":2}"#,
            Some(r#"{"max_tokens":5,"n":2}"#),
        ),
        (
            CHAT,
            r#"{"max_tokens":20,"max_completion_tokens":9}"#,
            Some(r#"{"max_tokens":10,"max_completion_tokens":9}"#),
        ),
        (
            CHAT,
            r#"{"max_tokens":20,"max_completion_tokens":30}"#,
            Some(r#"{"max_tokens":10,"max_completion_tokens":10}"#),
        ),
        (CHAT, r#"{"max_tokens":null}"#, Some(r#"{"max_tokens":10}"#)),
        (
            CHAT,
            r#"{"max_tokens":null,"max_completion_tokens":3}"#,
            None,
        ),
        (
            Api::Completions,
            r#"{"prompt":["a","b"]}"#,
            Some(r#"{"prompt":["a","b"],"max_tokens":5}"#),
        ),
        (
            Api::Responses,
            r#"{"max_tokens":99}"#,
            Some(r#"{"max_tokens":99,"max_output_tokens":10}"#),
        ),
        (
            CHAT,
            r#"{"n_predict":99,"max_tokens":8,"max_length":9}"#,
            Some(r#"{"n_predict":10,"max_tokens":8,"max_length":9}"#),
        ),
        (
            CHAT,
            r#"{"n_predict":99}"#,
            Some(r#"{"n_predict":10,"max_completion_tokens":10}"#),
        ),
        (
            Api::Messages,
            r#"{"max_tokens":99}"#,
            Some(r#"{"max_tokens":10}"#),
        ),
        (Api::Embeddings, r#"{"input":"a"}"#, None),
        (
            CHAT,
            r#"{"stream":true}"#,
            Some(
                r#"{"stream":true,"max_completion_tokens":10,"stream_options":{"include_usage":true}}"#,
            ),
        ),
    ] {
        assert_eq!(
            rewritten(api, body, Some(10)).as_deref(),
            expected,
            "{body}"
        );
    }
}

#[test]
fn another_body_than_the_one_read_is_no_reason_to_panic() {
    let mut request = read(CHAT, r#"{"stream":true,"max_tokens":50}"#);
    assert!(request.clamp(1));
    for body in [&b""[..], b"{", &[b'x'; 200]] {
        assert!(request.rewrite(body).is_some());
    }
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0..200_u64).prop_map(Value::from),
        "[a-z\"\\\\é\n日😀{},:]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        let names = "[a-z_]{1,6}|include_usage|stream|max_tokens";
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::vec((names, inner), 0..3)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Members with values that are mostly valid.
fn member() -> impl Strategy<Value = (String, Value)> {
    let number = prop_oneof![Just(Value::Null), (1..40_u64).prop_map(Value::from)];
    let flag = || prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::from)];
    let options = prop_oneof![
        Just(Value::Null),
        Just(json!({})),
        flag().prop_map(|flag| json!({ "include_usage": flag })),
        (flag(), values()).prop_map(|(flag, other)| json!({ "include_usage": flag, "z": other })),
        values().prop_map(|other| json!({ "a": other })),
    ];
    const MAX_NAMES: [&str; 3] = ["max_tokens", "max_completion_tokens", "max_output_tokens"];
    prop_oneof![
        (prop::sample::select(&MAX_NAMES[..]), number)
            .prop_map(|(name, value)| (name.into(), value)),
        Just(("stream".to_owned(), json!(true))),
        flag().prop_map(|flag| ("stream".to_owned(), flag)),
        options.prop_map(|options| ("stream_options".to_owned(), options)),
        ("[a-z]{2,5}|tools|text|model", values()),
    ]
}

/// The change as it is defined, on trees.
fn expected(api: Api, mut body: Map<String, Value>, clamp: Option<u64>) -> Value {
    let names: &[&str] = match api {
        Api::ChatCompletions => &["max_completion_tokens", "max_tokens"],
        Api::Responses => &["max_output_tokens"],
        Api::Embeddings => &[],
        Api::Completions | Api::Messages => &["max_tokens"],
    };
    if let Some(clamp) = clamp
        && !names.is_empty()
    {
        let stated: Vec<_> = names
            .iter()
            .filter(|name| body.get(**name).is_some_and(Value::is_u64))
            .collect();
        if stated.is_empty() {
            let mut null = names.iter().filter(|name| body.contains_key(**name));
            // With two nulls, either may be set.
            let name = null.next_back().unwrap_or(&names[0]);
            body.insert((*name).to_owned(), clamp.into());
        }
        for name in stated {
            let lower = body[*name].as_u64().unwrap().min(clamp);
            body.insert((*name).to_string(), lower.into());
        }
    }
    if matches!(api, Api::ChatCompletions | Api::Completions)
        && body.get("stream") == Some(&json!(true))
    {
        let options = body.entry("stream_options").or_insert(Value::Null);
        if options.is_null() {
            *options = json!({});
        }
        options["include_usage"] = json!(true);
    }
    body.into()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn exactly_the_change_is_made(
        api in prop::sample::select(&[Api::ChatCompletions, Api::Completions, Api::Responses, Api::Embeddings, Api::Messages][..]),
        members in prop::collection::vec(member(), 0..6),
        clamp in prop::option::of(1..30_u64),
        pretty in any::<bool>(),
    ) {
        let mut body: Map<String, Value> = members.into_iter().collect();
        if body.get("max_tokens") == Some(&Value::Null) && body.get("max_completion_tokens") == Some(&Value::Null) {
            body.remove("max_completion_tokens");
        }
        let text = if pretty {
            serde_json::to_string_pretty(&body).unwrap()
        } else {
            serde_json::to_string(&body).unwrap()
        };
        let mut request = try_read(api, &text).unwrap();
        if let Some(clamp) = clamp {
            prop_assert!(request.clamp(clamp));
        }
        let sent = request.rewrite(text.as_bytes());
        let expected = expected(api, body.clone(), clamp);
        prop_assert_eq!(sent.is_some(), expected != Value::from(body));
        let sent = sent.unwrap_or(text.clone().into_bytes());
        let parsed: Value = serde_json::from_slice(&sent).unwrap();
        prop_assert_eq!(parsed, expected);
        // What was sent is bounded as promised, and needs no further change but the usage
        // that the client did not ask for.
        let again = try_read(api, std::str::from_utf8(&sent).unwrap()).unwrap();
        prop_assert_eq!(again.completion_tokens(), request.completion_tokens());
        prop_assert_eq!(again.prompt_tokens(), request.prompt_tokens());
        prop_assert!(!again.needs_usage_option());
    }
}
