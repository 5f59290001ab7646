//! All APIs of language models, and requests that make no calls.

use super::*;

#[test]
fn every_api_is_counted() {
    let completion = ModelServer::COMPLETION_TOKENS;
    for (path, body, completion) in [
        (
            "/v1/completions",
            json!({ "prompt": "Say hello" }),
            completion,
        ),
        ("/v1/responses", json!({ "input": "Say hello" }), completion),
        (
            "/v1/messages",
            json!({ "max_tokens": 50, "messages": [{ "role": "user", "content": "Hi" }] }),
            completion,
        ),
        ("/v1/embeddings", json!({ "input": ["a", "b"] }), 0),
    ] {
        for is_streamed in [false, true] {
            if is_streamed && path.ends_with("embeddings") {
                continue;
            }
            let model = ModelServer::start();
            let service = start(&model);
            let mut body = body.clone();
            body["model"] = json!("m");
            if is_streamed {
                body["stream"] = json!(true);
            }
            let answer = call(&service, path, &body);
            assert_eq!(answer.status, 200, "{answer:?}");
            let prompt = ModelServer::PROMPT_TOKENS;
            let expected = [prompt + completion, prompt, completion, 1];
            assert_eq!(
                charged(&service),
                expected,
                "{path} {is_streamed}: {answer:?}"
            );
        }
    }
}

#[test]
fn requests_that_list_pass_and_cost_no_tokens() {
    let model = ModelServer::start();
    let service = start(&model);
    let mut http = Http::new(service.address("gateway"));
    let answer = http.request("GET", "/v1/models", &[("X-API-Key", "k")], "");
    assert_eq!((answer.status, charged(&service)), (200, [0, 0, 0, 1]));
    assert_eq!(answer.header("x-ratelimit-remaining-tokens"), None);
}

#[test]
fn a_path_of_an_api_is_not_upgraded() {
    let model = ModelServer::start();
    let service = start(&model);
    let mut http = Http::new(service.address("gateway"));
    let upgrade = [("Connection", "upgrade"), ("Upgrade", "websocket")];
    for (path, upgraded) in [("/v1/responses", &[][..]), ("/v1/realtime", &["websocket"])] {
        assert_eq!(http.request("GET", path, &upgrade, "").status, 200);
        let requests = model.requests();
        let request = requests.iter().find(|request| request.target == path);
        assert_eq!(request.unwrap().values("upgrade"), upgraded, "{path}");
    }
}

#[test]
fn a_path_in_another_spelling_is_counted() {
    let model = ModelServer::start();
    let service = start(&model);
    let answer = call(&service, "/v1/chat%2Fcompletions", &chat("mute"));
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(charged(&service)[1], PROMPT_BOUND);
}

#[test]
fn what_servers_leave_out_of_a_path_hides_no_call() {
    let model = ModelServer::start();
    let service = start(&model);
    let mut http = Http::new(service.address("gateway"));
    let body = chat("mute").to_string();
    let mut expected = 0;
    for headers in [
        &[("X-API-Key", "k")][..],
        &[("X-API-Key", "k"), ("TE", "trailers"), ("Connection", "TE")],
    ] {
        for path in [
            "/v1/chat/completions%0a",
            "/v1/chat/completions%0D%0A",
            "/v1/chat/completions%20",
            "/v1/chat/completions%80",
            "/v1/chat/comp%ffletions/",
            "/v1/chat/completions%c2%a0",
            "//v1//CHAT/completions//",
        ] {
            let answer = http.request("POST", path, headers, &body);
            match answer.status {
                400 => continue,
                status => assert_eq!(status, 200, "{path}: {answer:?}"),
            }
            expected += PROMPT_BOUND;
            assert_eq!(charged_by(&service, "prompt"), expected, "{path}");
        }
    }
}

#[test]
fn redis_settles_calls_too() {
    let redis = fluxgate_testkit::RedisServer::start();
    let model = ModelServer::start();
    let url = redis.url();
    let rules = format!("store: {{ redis: {{ url: \"{url}\", deadline: 10s }} }}\n{RULES}");
    let service = start_with(&model, &rules);
    for (count, chat) in [(1, chat("m")), (2, streamed_chat("m"))] {
        let answer = call(&service, CHAT, &chat);
        assert_eq!(answer.status, 200, "{answer:?}");
        // The answer does not wait for Redis.
        let expected = REPORTED.map(|number| number * count);
        fluxgate_testkit::wait_until("the call is settled", || charged(&service) == expected);
    }
}
