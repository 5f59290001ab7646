//! Calls are settled with the usage of their answers.

use super::*;
use crate::service::telemetry::Metrics;
use fluxgate_testkit::wait_until;

#[test]
fn a_json_answer_is_settled_with_its_usage() {
    let model = ModelServer::start();
    let service = start(&model);
    let answer = call(&service, CHAT, &chat("m"));
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.body.contains("Grüße 👋🏽!"), "{answer:?}");
    assert_eq!(charged(&service), REPORTED);
    let metrics = Metrics::of(&service);
    assert_eq!(metrics.get("fluxgate_llm_calls_total{end=\"reported\"}"), 1);
    for (kind, tokens) in [
        ("prompt", ModelServer::PROMPT_TOKENS),
        ("completion", ModelServer::COMPLETION_TOKENS),
    ] {
        let sample = format!("fluxgate_llm_tokens_total{{kind=\"{kind}\"}}");
        assert_eq!(metrics.get(&sample), tokens);
    }
    let request = &model.requests()[0];
    assert_eq!(request.values("authorization"), ["Bearer k"]);
    assert_eq!(request.values("accept-encoding"), ["identity"]);
    assert_eq!(request.body, chat("m").to_string().into_bytes());
}

#[test]
fn a_stream_is_settled_with_usage_that_the_client_does_not_see() {
    for framing in ["", "sized", "open", "dribble"] {
        let model = ModelServer::start();
        let service = start(&model);
        let answer = call(&service, CHAT, &streamed_chat(framing));
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(!answer.body.contains("usage"), "{answer:?}");
        assert_eq!(answer.body.matches("data: {").count(), 5, "{answer:?}");
        assert!(answer.body.ends_with("data: [DONE]\n\n"), "{answer:?}");
        assert_eq!(charged(&service), REPORTED, "{framing}");
        assert_eq!(model.last_body()["stream_options"]["include_usage"], true);
        // Nothing else has changed.
        let mut sent = model.last_body();
        sent.as_object_mut().unwrap().remove("stream_options");
        assert_eq!(sent, streamed_chat(framing));
    }
}

#[test]
fn a_client_that_asks_for_usage_gets_it() {
    let model = ModelServer::start();
    let service = start(&model);
    let mut chat = streamed_chat("m");
    chat["stream_options"] = json!({ "include_usage": true });
    let answer = call(&service, CHAT, &chat);
    assert_eq!(answer.body.matches("\"usage\"").count(), 1, "{answer:?}");
    assert_eq!(charged(&service), REPORTED);
    assert_eq!(model.requests()[0].body, chat.to_string().into_bytes());
}

#[test]
fn tool_calls_and_choices_are_counted() {
    for (name, completions) in [("tool", 1), ("twice", 2), ("twice tool", 2)] {
        for is_streamed in [false, true] {
            let model = ModelServer::start();
            let service = start(&model);
            let mut chat = chat(name);
            chat["n"] = json!(completions);
            chat["stream"] = json!(is_streamed);
            let answer = call(&service, CHAT, &chat);
            assert_eq!(answer.status, 200, "{answer:?}");
            let completion = ModelServer::COMPLETION_TOKENS * completions;
            let total = ModelServer::PROMPT_TOKENS + completion;
            let expected = [total, ModelServer::PROMPT_TOKENS, completion, 1];
            assert_eq!(charged(&service), expected, "{name} {is_streamed}");
        }
    }
}

#[test]
fn without_usage_the_bound_of_the_prompt_and_the_seen_text_count() {
    for is_streamed in [false, true] {
        let model = ModelServer::start();
        let service = start(&model);
        let mut chat = chat("mute");
        chat["stream"] = json!(is_streamed);
        let answer = call(&service, CHAT, &chat);
        assert_eq!(answer.status, 200, "{answer:?}");
        // The text has 17 bytes.
        let seen = ModelServer::WORDS.concat().len().div_ceil(3) as u64;
        let expected = [PROMPT_BOUND + seen, PROMPT_BOUND, seen, 1];
        assert_eq!(charged(&service), expected, "streamed: {is_streamed}");
    }
}

#[test]
fn while_a_call_runs_its_bound_is_reserved() {
    let model = ModelServer::start();
    let service = start(&model);
    let mut client = send(&service, &streamed_chat("wait=1"));
    wait_until("the call is forwarded", || model.requests().len() == 1);
    assert_eq!(charged(&service), [PROMPT_BOUND + 50, PROMPT_BOUND, 50, 1]);
    model.release();
    assert_eq!(client.read_answer(false).unwrap().status, 200);
    assert_eq!(charged(&service), REPORTED);
}

#[test]
fn a_prompt_of_a_megabyte_is_counted() {
    let model = ModelServer::start();
    let service = start_with(
        &model,
        &RULES.replace("capacity: 100000", "capacity: 10000000"),
    );
    for path in [CHAT, "/v1/completions"] {
        let mut chat = chat("mute");
        let text = "é".repeat(512 * 1024);
        chat["messages"][0]["content"] = json!(text);
        chat["prompt"] = json!(text);
        let answer = call(&service, path, &chat);
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(
            model.requests().last().unwrap().body,
            chat.to_string().into_bytes()
        );
    }
    let bound = charged_by(&service, "prompt");
    assert!(bound > 2 * 1024 * 1024 / 3, "{bound}");
    assert_eq!(charged_by(&service, "requests"), 2);
}

#[test]
fn calls_over_http2_are_settled() {
    let model = ModelServer::start();
    let service = start(&model);
    for (body, expected) in [(streamed_chat("m"), 1), (chat("m"), 2)] {
        let output = std::process::Command::new("curl")
            .args(["-sS", "--http2-prior-knowledge", "-H", "X-API-Key: k"])
            .args(["-H", "Content-Type: application/json", "-d"])
            .arg(body.to_string())
            .arg(format!("http://{}{CHAT}", service.address("gateway")))
            .output()
            .unwrap();
        let answer = String::from_utf8(output.stdout).unwrap();
        assert!(answer.contains("👋"), "{answer}");
        assert_eq!(answer.contains("usage"), expected == 2, "{answer}");
        assert_eq!(charged(&service), REPORTED.map(|number| number * expected));
    }
}

#[test]
fn the_first_word_arrives_before_the_last_is_made() {
    let model = ModelServer::start();
    let service = start(&model);
    let chat = streamed_chat("wait=1").to_string();
    for is_fast in [true, false] {
        let mut client = fluxgate_testkit::RawClient::connect(service.address("gateway"));
        // Hyper reads requests with a header that concerns the connection.
        let more = if is_fast {
            ""
        } else {
            "TE: trailers\r\nConnection: TE\r\n"
        };
        client.send(format!(
            "POST {CHAT} HTTP/1.1\r\nHost: a\r\n{more}Content-Length: {}\r\n\r\n{chat}",
            chat.len()
        ));
        let (mut read, mut stream) = client.into_stream();
        while !String::from_utf8_lossy(&read).contains("\"Gr\"") {
            let mut buffer = [0; 1024];
            let count = std::io::Read::read(&mut stream, &mut buffer).unwrap();
            assert!(count > 0, "{}", String::from_utf8_lossy(&read));
            read.extend_from_slice(&buffer[..count]);
        }
        let text = String::from_utf8_lossy(&read);
        assert!(!text.contains("👋"), "{text}");
    }
}
