//! Requests that cannot be counted, and what the client reads about them.

use fluxgate_llm::{Api, Request, RequestError};

use crate::{reserve, try_read};

const CHAT: Api = Api::ChatCompletions;

#[test]
fn errors_name_the_member_or_the_place() {
    let number = "a whole number from 1 to 1000000000";
    for (body, message) in [
        ("", "the body is not JSON: expected a value at byte 0".to_owned()),
        ("hello", "the body is not JSON: expected a value at byte 0".to_owned()),
        (r#"{"a":1"#, "the body is not JSON: expected a comma or the closing bracket at byte 6".to_owned()),
        ("{} {}", "the body is not JSON: expected the end at byte 3".to_owned()),
        (r#"{"max_tokens":NaN}"#, "the body is not JSON: expected a value at byte 14".to_owned()),
        ("[1]", "the body must be a JSON object".to_owned()),
        ("null", "the body must be a JSON object".to_owned()),
        ("[1", "the body is not JSON: expected a comma or the closing bracket at byte 2".to_owned()),
        (r#"{"max_tokens":1,"max_tokens":2}"#, "the member `max_tokens` occurs twice; send it once".to_owned()),
        (r#"{"messages":[],"mess\u0061ges":[]}"#, "the member `messages` occurs twice; send it once".to_owned()),
        (r#"{"Max_Tokens":1}"#, r#"the member "Max_Tokens" must be written `max_tokens`"#.to_owned()),
        (r#"{"max_to\u212Aen\u017f":1}"#, "the member \"max_to\u{212a}en\u{17f}\" must be written `max_tokens`".to_owned()),
        (r#"{"N":2}"#, r#"the member "N" must be written `n`"#.to_owned()),
        (r#"{"max_tokens":-1}"#, format!("the member `max_tokens` must be {number}, not -1")),
        (r#"{"n_predict":-1}"#, format!("the member `n_predict` must be {number}, not -1")),
        (r#"{"max_length":"9"}"#, format!("the member `max_length` must be {number}, not the string \"9\"")),
        (r#"{"max_tokens":0}"#, format!("the member `max_tokens` must be {number}, not 0")),
        (r#"{"max_completion_tokens":0}"#, format!("the member `max_completion_tokens` must be {number}, not 0")),
        (r#"{"max_tokens":-0}"#, format!("the member `max_tokens` must be {number}, not -0")),
        (r#"{"max_tokens":1.5}"#, format!("the member `max_tokens` must be {number}, not 1.5")),
        (r#"{"max_tokens":1e3}"#, format!("the member `max_tokens` must be {number}, not 1e3")),
        (r#"{"max_tokens":1000000001}"#, format!("the member `max_tokens` must be {number}, not 1000000001")),
        (r#"{"max_tokens":99999999999999999999999999}"#,
            format!("the member `max_tokens` must be {number}, not 999999999999999999999999…")),
        (r#"{"max_tokens":"10"}"#, format!("the member `max_tokens` must be {number}, not the string \"10\"")),
        (r#"{"max_tokens":true}"#, format!("the member `max_tokens` must be {number}, not true")),
        (r#"{"max_completion_tokens":[1]}"#, format!("the member `max_completion_tokens` must be {number}, not a list")),
        (r#"{"n":0}"#, "the member `n` must be a whole number from 1 to 1000000000, not 0".to_owned()),
        (r#"{"stream":"true"}"#, "the member `stream` must be true or false, not the string \"true\"".to_owned()),
        (r#"{"stream":1}"#, "the member `stream` must be true or false, not 1".to_owned()),
        (r#"{"stream_options":true}"#, "the member `stream_options` must be an object, not true".to_owned()),
        (r#"{"stream_options":{"include_usage":"no"}}"#,
            "the member `stream_options.include_usage` must be true or false, not the string \"no\"".to_owned()),
        (r#"{"stream_options":{"include_usage":true,"include_usage":false}}"#,
            "the member `stream_options.include_usage` occurs twice; send it once".to_owned()),
        (r#"{"stream_options":{"Include_usage":true}}"#,
            r#"the member "Include_usage" must be written `stream_options.include_usage`"#.to_owned()),
        (r#"{"messages":"hi"}"#, "the member `messages` must be a list, not the string \"hi\"".to_owned()),
        (r#"{"messages":{}}"#, "the member `messages` must be a list, not an object".to_owned()),
    ] {
        let error = try_read(CHAT, body).unwrap_err();
        assert_eq!(error.to_string(), message, "{body}");
    }
}

#[test]
fn bodies_that_are_not_utf8_are_refused_wherever_the_fault_is() {
    for body in [
        &b"{\"a\":\"\xff\"}"[..],
        b"{\"\xc3\":1}",
        b"\xef\xbb\xbf{}",
        b"{}\xed\xa0\x80",
    ] {
        let error = Request::read(CHAT, body, reserve()).unwrap_err();
        let is_bom = body.starts_with(b"\xef");
        let is_expected = match error {
            RequestError::NotUtf8 { at } => !is_bom && body[..at].is_ascii(),
            RequestError::NotJson { at, .. } => is_bom && at == 0,
            _ => false,
        };
        assert!(is_expected, "{error}");
    }
    // A client that sends UTF-16 gets an answer, not a wrong charge.
    let utf16: Vec<u8> = "{}".encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert!(Request::read(CHAT, &utf16, reserve()).is_err());
}

#[test]
fn deep_nesting_is_refused_in_every_member() {
    for name in [
        "messages",
        "prompt",
        "input",
        "tools",
        "unknown",
        "max_tokens",
        "stream_options",
    ] {
        for (open, close) in [("[", "]"), (r#"{"a":"#, "}")] {
            let nested = format!("{}1{}", open.repeat(100_000), close.repeat(100_000));
            let error = try_read(CHAT, &format!(r#"{{"{name}":{nested}}}"#)).unwrap_err();
            let is_expected = match error {
                RequestError::TooDeep { .. } => true,
                // The wrong type is found first.
                RequestError::Value { member, .. } => member == name,
                _ => false,
            };
            assert!(is_expected, "{name}: {error}");
        }
    }
}
