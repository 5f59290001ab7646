//! Bounds and flags of requests to each API.

use fluxgate_llm::{Api, Reserve};

use crate::{read, try_read};

const CHAT: Api = Api::ChatCompletions;

#[test]
fn the_completion_is_bounded_by_what_the_request_states() {
    for (api, body, tokens) in [
        (CHAT, r#"{}"#, 100),
        (CHAT, r#"{"max_tokens":7}"#, 7),
        (CHAT, r#"{"max_tokens":null}"#, 100),
        (CHAT, r#"{"max_completion_tokens":9,"max_tokens":null}"#, 9),
        (CHAT, r#"{"max_completion_tokens":9,"max_tokens":12}"#, 12),
        (CHAT, r#"{"max_tokens":7,"n":3}"#, 21),
        (CHAT, r#"{"n":null,"max_tokens":1}"#, 1),
        (CHAT, r#"{"max\u005ftokens":8}"#, 8),
        (CHAT, r#"{"max_output_tokens":"ignored","best_of":5}"#, 500),
        // What other servers call the bound only raises it.
        (CHAT, r#"{"max_tokens":5,"n_predict":300}"#, 300),
        (CHAT, r#"{"n_predict":5}"#, 100),
        (
            CHAT,
            r#"{"max_tokens":7,"num_predict":3,"max_length":null}"#,
            7,
        ),
        (
            Api::Completions,
            r#"{"max_new_tokens":200,"max_length":9,"prompt":["a","b"]}"#,
            400,
        ),
        (
            Api::Completions,
            r#"{"max_tokens":2,"prompt_embeds":["AAAA","BBBB"],"prompt":"a"}"#,
            6,
        ),
        (Api::Embeddings, r#"{"max_length":512,"input":"a"}"#, 0),
        (
            CHAT,
            r#"{"max_tokens":1000000000,"n":1000000000}"#,
            1_000_000_000_000_000_000,
        ),
        (
            Api::Completions,
            r#"{"prompt":"a","max_tokens":5,"n":2,"best_of":4}"#,
            20,
        ),
        (
            Api::Completions,
            r#"{"prompt":["a","b","c"],"max_tokens":5}"#,
            15,
        ),
        (Api::Completions, r#"{"prompt":[1,2,3],"max_tokens":5}"#, 5),
        (
            Api::Completions,
            r#"{"prompt":[[1,2],[3]],"max_tokens":5,"n":2}"#,
            20,
        ),
        (Api::Completions, r#"{"prompt":[],"max_tokens":5}"#, 5),
        (Api::Completions, r#"{"max_completion_tokens":1}"#, 100),
        (
            Api::Responses,
            r#"{"input":"a","max_output_tokens":30}"#,
            30,
        ),
        (
            Api::Responses,
            r#"{"input":["a","b"],"max_tokens":1,"n":4}"#,
            100,
        ),
        (Api::Messages, r#"{"max_tokens":1024,"messages":[]}"#, 1024),
        (
            Api::Embeddings,
            r#"{"input":["a","b"],"max_tokens":50,"n":9}"#,
            0,
        ),
    ] {
        let request = read(api, body);
        assert_eq!(request.completion_tokens(), tokens, "{body}");
        let total = request.prompt_tokens() + tokens;
        assert_eq!(request.total_tokens(), total, "{body}");
    }
    let request = read(CHAT, r#"{"max_tokens":1000000000,"n":1000000000}"#);
    assert!(request.total_tokens() >= request.completion_tokens());
}

#[test]
fn defaults_are_three_bytes_a_token_and_4096_tokens() {
    let Reserve {
        prompt_bytes_per_token,
        default_max_tokens,
    } = Reserve::default();
    assert_eq!(
        (prompt_bytes_per_token.get(), default_max_tokens),
        (3, 4096)
    );
}

#[test]
fn streams_need_usage_unless_the_client_asks_for_it() {
    for (api, body, streams, asks, needs) in [
        (CHAT, r#"{}"#, false, false, false),
        (
            CHAT,
            r#"{"stream":false,"stream_options":null}"#,
            false,
            false,
            false,
        ),
        (CHAT, r#"{"stream":null}"#, false, false, false),
        (CHAT, r#"{"stream":true}"#, true, false, true),
        (
            CHAT,
            r#"{"stream":true,"stream_options":{}}"#,
            true,
            false,
            true,
        ),
        (
            CHAT,
            r#"{"stream_options":{"include_usage":true},"stream":true}"#,
            true,
            true,
            false,
        ),
        (
            CHAT,
            r#"{"stream":true,"stream_options":{"include_usage":false}}"#,
            true,
            false,
            true,
        ),
        (
            CHAT,
            r#"{"stream":true,"stream_options":{"include_usage":null}}"#,
            true,
            false,
            true,
        ),
        (Api::Completions, r#"{"stream":true}"#, true, false, true),
        (
            Api::Responses,
            r#"{"stream":true,"stream_options":{"include_obfuscation":false}}"#,
            true,
            false,
            false,
        ),
        (
            Api::Messages,
            r#"{"stream":true,"stream_options":5}"#,
            true,
            false,
            false,
        ),
    ] {
        let request = read(api, body);
        let found = (
            request.streams(),
            request.asks_for_usage(),
            request.needs_usage_option(),
        );
        assert_eq!(found, (streams, asks, needs), "{body}");
    }
}

#[test]
fn only_responses_run_in_the_background() {
    let body = r#"{"background":true}"#;
    assert!(read(Api::Responses, body).runs_in_background());
    assert!(!read(Api::Responses, "{}").runs_in_background());
    assert!(!read(CHAT, body).runs_in_background());
    assert!(try_read(Api::Responses, r#"{"background":1}"#).is_err());
}

#[test]
fn a_clamp_is_shared_by_all_completions() {
    let mut request = read(CHAT, r#"{"max_tokens":50,"n":4}"#);
    assert!(!request.clamp(3));
    assert_eq!(request.completion_tokens(), 200);
    assert!(request.clamp(43));
    assert_eq!(request.completion_tokens(), 40);
    assert!(request.clamp(u64::MAX));
    assert_eq!(request.completion_tokens(), 200);

    let mut unstated = read(Api::Messages, r#"{"messages":[]}"#);
    assert!(unstated.clamp(7));
    assert_eq!(unstated.completion_tokens(), 7);

    let mut embeddings = read(Api::Embeddings, r#"{"input":"a"}"#);
    assert!(embeddings.clamp(0));
    assert_eq!(embeddings.completion_tokens(), 0);
    assert_eq!(embeddings.rewrite(br#"{"input":"a"}"#), None);
}
