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
    let (start, end) = (
        tools.find("[{").unwrap(),
        tools.find(",\"tool_choice").unwrap(),
    );
    // An empty list of messages counts as one. JSON counts as it is written.
    assert_eq!(
        read(Api::ChatCompletions, tools).prompt_tokens(),
        bound((end - start) as u64, 1, 0)
    );
}

#[test]
fn images_and_audio_do_not_count_as_text() {
    let data = "A".repeat(100_000);
    let image_url = format!(
        r#"{{"messages":[{{"role":"user","content":[{{"type":"text","text":"What?"}},
        {{"type":"image_url","image_url":{{"url":"data:image/png;base64,{data}","detail":"high"}}}}]}}]}}"#
    );
    // Each part counts a byte more, and the image nothing but its price.
    let names = 11 + (8 + 1) + (4 + 9 + 1);
    let values = 4 + 4 + 5 + 9;
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
    let names = 11 + 6 + 4 + 1;
    let values = 4 + 5;
    let expected = bound(names + values, 1, IMAGE_TOKENS);
    assert_eq!(read(Api::Messages, &source).prompt_tokens(), expected);

    let audio = format!(
        r#"{{"messages":[{{"role":"user","content":[{{"type":"input_audio",
        "input_audio":{{"data":"{data}","format":"wav"}}}}]}}]}}"#
    );
    let names = 11 + 4 + 11 + 1;
    let values = 4 + 11;
    let expected = bound(names + values, 1, 391);
    assert_eq!(read(Api::ChatCompletions, &audio).prompt_tokens(), expected);

    let file = format!(
        r#"{{"input":[{{"role":"user","content":[{{"type":"input_file",
        "file_data":"data:application/pdf;base64,{data}"}}]}}]}}"#
    );
    let names = 11 + 4 + 9 + 1;
    let expected = bound(names + 4 + 10 + 28 + 100_000, 1, 0);
    assert_eq!(read(Api::Responses, &file).prompt_tokens(), expected);

    // A linked image counts like a sent one; data outside of media is text.
    let linked = r#"{"input":[{"type":"input_image","image_url":"https://x.y/z.png"}]}"#;
    let expected = bound(4 + 11 + 9, 1, IMAGE_TOKENS);
    assert_eq!(read(Api::Responses, linked).prompt_tokens(), expected);
    let text = r#"{"input":"data:image/png;base64,AAAA"}"#;
    assert_eq!(read(Api::Responses, text).prompt_tokens(), bound(26, 1, 0));
}

/// Text of 30,000 bytes counts as such wherever a model may read it.
#[test]
fn text_does_not_pass_for_media_or_nothing() {
    let text = "word ".repeat(6_000);
    let lists = format!("[{}[]]", "[],".repeat(10_000));
    let objects = format!("[{}{{}}]", "{},".repeat(10_000));
    let message = |member: &str| format!(r#"{{"messages":[{{"role":"user",{member}}}]}}"#);
    let part = |part: &str| message(&format!(r#""content":[{part}]"#));
    let input = |input: &str| part(&format!(r#"{{"type":"tool_use","input":{input}}}"#));
    let image = format!(r#"{{"type":"image","data":"{text}","source":"data:{text}"}}"#);
    let audio = format!(r#"{{"type":"input_audio","input_audio":{{"data":"{text}"}}}}"#);
    for body in [
        message(&format!(r#""type":"image","content":"data:{text}""#)),
        message(&format!(r#""type":"input_audio","content":"data:{text}""#)),
        message(&format!(r#""content":{lists}"#)),
        message(&format!(r#""tool_calls":[{image}]"#)),
        part(&format!(r#"{{"type":"image","text":"{text}"}}"#)),
        part(&format!(
            r#"{{"type":"text","source":"{text}","type":"image"}}"#
        )),
        part(&format!("[{image}]")),
        input(&image),
        input(&audio),
        input(&format!(r#"{{"x":{objects}}}"#)),
        format!(r#"{{"tools":[{{"default":{image}}}]}}"#),
        format!(r#"{{"tools":[{{"default":{audio}}}]}}"#),
        format!(r#"{{"tools":[{{"enum":{lists}}}]}}"#),
        format!(r#"{{"response_format":{{"schema":{objects}}}}}"#),
        format!(r#"{{"chat_template_kwargs":{{"date_string":"{text}"}}}}"#),
        format!(r#"{{"chat_template":"{text}"}}"#),
        format!(r#"{{"an_unknown_member_with_a_very_long_name":"{text}"}}"#),
        format!(r#"{{"max_output_tokens":"{text}"}}"#),
    ] {
        let tokens = read(Api::ChatCompletions, &body).prompt_tokens();
        assert!(tokens >= 10_000, "{tokens}: {}", &body[..80]);
    }
    // Empty parts are not free.
    let parts = read(Api::Messages, &message(&format!(r#""content":{objects}"#)));
    assert!(parts.prompt_tokens() > 10_000 / 3);
}

#[test]
fn images_in_the_results_of_tools_are_images() {
    let data = "A".repeat(100_000);
    let image = format!(r#"{{"type":"image","source":{{"type":"base64","data":"{data}"}}}}"#);
    let result = format!(
        r#"{{"messages":[{{"role":"user","content":[{{"type":"tool_result","content":[{image}]}}]}}]}}"#
    );
    let url = format!("data:image/png;base64,{data}");
    let shot = format!(
        r#"{{"input":[{{"output":{{"type":"computer_screenshot","image_url":"{url}"}}}}]}}"#
    );
    let list =
        format!(r#"{{"input":[{{"output":[{{"type":"input_image","image_url":"{url}"}}]}}]}}"#);
    for (api, body) in [
        (Api::Messages, result),
        (Api::Responses, shot),
        (Api::Responses, list),
    ] {
        let tokens = read(api, &body).prompt_tokens();
        assert!(
            (IMAGE_TOKENS..IMAGE_TOKENS + 40).contains(&tokens),
            "{tokens}"
        );
    }
}

#[test]
fn parameters_are_free() {
    let chat = r#"{"messages":[{"role":"user","content":"Say hello, pls"}]"#;
    let parameters = r#","model":"m","temperature":0.5,"user":"u","metadata":{"a":"b"},"stop":["x"],
        "logit_bias":{"1":2},"tool_choice":"auto","seed":1,"parallel_tool_calls":true,"top_k":null}"#;
    let plain = format!("{chat}}}");
    let full = format!("{chat}{parameters}");
    for body in [plain, full] {
        assert_eq!(read(Api::ChatCompletions, &body).prompt_tokens(), 14);
    }
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
    let names = 11 + (8 + 1) + (4 + 7 + 6);
    let values = 8 + (4 + 10 + 6) + (20 + 2 + 2) + 26;
    assert_eq!(
        read(Api::Responses, responses).prompt_tokens(),
        bound(names + values, 3, 0)
    );

    let messages = r#"{"system":[{"type":"text","text":"abc"}],"max_tokens":5,"messages":[
        {"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{"x":12.5,"y":null}}]}],
        "tools":[{"name":"f","description":"d","input_schema":{"type":"object"}}],"metadata":{"user_id":"u"}}"#;
    let names = 8 + 11 + (4 + 2 + 4 + 5 + 1);
    let values = (4 + 3) + 9 + (8 + 1 + 1 + 19) + 66;
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
