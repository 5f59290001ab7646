//! Bounds of prompts of each API, counted by hand.

use fluxgate_llm::{Api, IMAGE_TOKENS, MESSAGE_TOKENS};

use crate::read;

/// Returns the bound of a prompt of so many bytes, messages and other tokens.
fn bound(bytes: u64, messages: u64, tokens: u64) -> u64 {
    bytes.div_ceil(3) + messages * MESSAGE_TOKENS + tokens
}

#[test]
fn chat_completions() {
    let plain = r#"{"model":"gpt","temperature":0.5,"user":"someone","messages":[
        {"role":"system","content":"Be brief."},
        {"role":"user","content":"h\u00e9llo"}]}"#;
    let names = 2 * 11;
    assert_eq!(
        read(Api::ChatCompletions, plain).prompt_tokens(),
        bound(names + 6 + 9 + 4 + 6, 2, 0)
    );

    let tools = r#"{"messages":[],"tools":[{"type":"function","function":{"name":"f",
        "parameters":{"type":"object","properties":{"city":{"type":"string","maxLength":100}},"required":["city"]},
        "strict":true}}],"tool_choice":"auto"}"#;
    let names = 4 + 8 + 4 + 10 + (4 + 10 + 8) + (4 + 4 + 9) + 6;
    let values = 8 + 1 + 6 + 6 + 3 + 4 + 4;
    // An empty list of messages counts as one.
    assert_eq!(
        read(Api::ChatCompletions, tools).prompt_tokens(),
        bound(names + values, 1, 0)
    );
}

#[test]
fn images_and_audio_do_not_count_as_text() {
    let data = "A".repeat(100_000);
    let image_url = format!(
        r#"{{"messages":[{{"role":"user","content":[{{"type":"text","text":"What?"}},
        {{"type":"image_url","image_url":{{"url":"data:image/png;base64,{data}","detail":"high"}}}}]}}]}}"#
    );
    let names = 11 + 8 + 4 + 9 + 3 + 6;
    let values = 4 + 4 + 5 + 9 + 4;
    let expected = bound(names + values, 1, IMAGE_TOKENS);
    assert_eq!(
        read(Api::ChatCompletions, &image_url).prompt_tokens(),
        expected
    );

    // What the data is may be said after it.
    let source = format!(
        r#"{{"messages":[{{"role":"user","content":[{{"source":{{"data":"{data}","type":"base64",
        "media_type":"image/jpeg"}},"type":"image"}}]}}]}}"#
    );
    let names = 11 + 6 + 4 + 4 + 10 + 4;
    let values = 4 + 6 + 10 + 5;
    let expected = bound(names + values, 1, IMAGE_TOKENS);
    assert_eq!(read(Api::Messages, &source).prompt_tokens(), expected);

    let audio = format!(
        r#"{{"messages":[{{"role":"user","content":[{{"type":"input_audio",
        "input_audio":{{"data":"{data}","format":"wav"}}}}]}}]}}"#
    );
    let names = 11 + 4 + 11 + 4 + 6;
    let values = 4 + 11 + 3;
    let expected = bound(names + values, 1, 391);
    assert_eq!(read(Api::ChatCompletions, &audio).prompt_tokens(), expected);

    let file = format!(
        r#"{{"input":[{{"role":"user","content":[{{"type":"input_file",
        "file_data":"data:application/pdf;base64,{data}"}}]}}]}}"#
    );
    let names = 11 + 4 + 9;
    let expected = bound(names + 4 + 10 + 28 + 100_000, 1, 0);
    assert_eq!(read(Api::Responses, &file).prompt_tokens(), expected);

    // A linked image counts like a sent one; data outside of media is text.
    let linked = r#"{"input":[{"type":"input_image","image_url":"https://x.y/z.png"}]}"#;
    let expected = bound(4 + 11 + 9 + 17, 1, IMAGE_TOKENS);
    assert_eq!(read(Api::Responses, linked).prompt_tokens(), expected);
    let text = r#"{"input":"data:image/png;base64,AAAA"}"#;
    assert_eq!(read(Api::Responses, text).prompt_tokens(), bound(26, 1, 0));
}

#[test]
fn completions_and_embeddings_take_texts_and_tokens() {
    for (input, expected) in [
        (r#""abcdefg""#, bound(7, 1, 0)),
        (r#"["abc","de"]"#, bound(5, 2, 0)),
        ("[1,22,333]", bound(0, 1, 3)),
        ("[[1,2],[3],[]]", bound(0, 3, 3)),
        ("[]", bound(0, 1, 0)),
        ("null", bound(0, 1, 0)),
        (r#""""#, bound(0, 1, 0)),
    ] {
        let prompt = format!(r#"{{"prompt":{input}}}"#);
        assert_eq!(
            read(Api::Completions, &prompt).prompt_tokens(),
            expected,
            "{input}"
        );
        let input = format!(r#"{{"input":{input}}}"#);
        assert_eq!(
            read(Api::Embeddings, &input).prompt_tokens(),
            expected,
            "{input}"
        );
    }
    let suffix = r#"{"prompt":"abc","suffix":"def","model":"long-name"}"#;
    assert_eq!(
        read(Api::Completions, suffix).prompt_tokens(),
        bound(6, 1, 0)
    );
}

#[test]
fn responses_and_messages() {
    let responses = r#"{"model":"m","instructions":"Be kind.","input":[
        {"role":"user","content":[{"type":"input_text","text":"日本"}]},
        {"type":"function_call_output","call_id":"c1","output":"{}"}],
        "text":{"format":{"type":"text"}}}"#;
    let names = 11 + 8 + (4 + 7 + 6) + (6 + 4);
    let values = 8 + (4 + 10 + 6) + (20 + 2 + 2) + 4;
    assert_eq!(
        read(Api::Responses, responses).prompt_tokens(),
        bound(names + values, 3, 0)
    );

    let messages = r#"{"system":[{"type":"text","text":"abc"}],"max_tokens":5,"messages":[
        {"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{"x":12.5,"y":null}}]}],
        "tools":[{"name":"f","description":"d","input_schema":{"type":"object"}}],"metadata":{"user_id":"u"}}"#;
    let names = 8 + 11 + (4 + 2 + 4 + 5 + 1 + 1) + (4 + 11 + 12 + 4);
    let values = (4 + 3) + 9 + (8 + 1 + 1 + 4 + 4) + (1 + 1 + 6);
    assert_eq!(
        read(Api::Messages, messages).prompt_tokens(),
        bound(names + values, 2, 0)
    );
}

#[test]
fn a_prompt_of_a_megabyte_counts_by_its_bytes() {
    let text = "日本語 ".repeat(100_000);
    let body = format!(r#"{{"messages":[{{"role":"user","content":"{text}"}}]}}"#);
    let expected = bound(11 + 4 + 1_000_000, 1, 0);
    assert_eq!(read(Api::ChatCompletions, &body).prompt_tokens(), expected);
}
