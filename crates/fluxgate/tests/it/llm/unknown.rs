//! Requests on a route for language models that are no known calls.

use super::*;

const UNKNOWN: [&str; 5] = [
    "/v1/messages/batches",
    "/v1/responses/compact",
    "/v1/audio/speech",
    "/v1/messages/count_tokens",
    "/api/generate",
];

/// Sends a request; returns the status.
fn status(service: &Service, is_fast: bool, method: &str, path: &str) -> u16 {
    let more: &[_] = if is_fast {
        &[("X-API-Key", "k"), ("Content-Type", "text/plain")]
    } else {
        &[("X-API-Key", "k"), ("TE", "trailers"), ("Connection", "TE")]
    };
    let mut http = Http::new(service.address("gateway"));
    http.request(method, path, more, "not JSON").status
}

fn start_unknown(model: &ModelServer, unknown: &str) -> Service {
    let llm = format!("{{ rules: main, unknown: {unknown} }}");
    start_route(&model.url(), &llm, RULES)
}

#[test]
fn an_unknown_call_costs_what_a_call_without_a_bound_reserves() {
    let model = ModelServer::start();
    let service = start(&model);
    let mut count = 0;
    for is_fast in [true, false] {
        for path in UNKNOWN {
            assert_eq!(status(&service, is_fast, "POST", path), 200, "{path}");
            count += 1;
            let tokens = 4096 * count;
            assert_eq!(charged(&service), [tokens, tokens, tokens, count], "{path}");
        }
    }
    // It is forwarded as it is.
    let requests = model.requests();
    assert!(requests.iter().all(|request| request.body == b"not JSON"));
}

#[test]
fn unknown_calls_do_not_exceed_the_limit() {
    let model = ModelServer::start();
    let rules = RULES.replacen("capacity: 100000", "capacity: 10000", 1);
    for is_fast in [true, false] {
        let service = start_with(&model, &rules);
        let statuses = UNKNOWN.map(|path| status(&service, is_fast, "POST", path));
        assert_eq!(statuses, [200, 200, 429, 429, 429]);
        assert_eq!(charged(&service), [8192, 8192, 8192, 2]);
    }
}

#[test]
fn the_cost_of_unknown_calls_is_configurable() {
    for (unknown, expected, tokens) in
        [("{ cost: 7 }", 200, 7), ("allow", 200, 0), ("deny", 404, 0)]
    {
        for is_fast in [true, false] {
            let model = ModelServer::start();
            let service = start_unknown(&model, unknown);
            let path = "/v1/messages/batches";
            assert_eq!(status(&service, is_fast, "POST", path), expected);
            let requests = u64::from(expected == 200);
            assert_eq!(charged(&service), [tokens, tokens, tokens, requests]);
            assert_eq!(model.requests().len() as u64, requests);
            // Known calls are counted as ever.
            assert_eq!(call(&service, CHAT, &chat("m")).status, 200);
            assert_eq!(charged_by(&service, "total"), tokens + TOTAL);
        }
    }
}

#[test]
fn methods_that_only_read_or_delete_cost_no_tokens() {
    let model = ModelServer::start();
    let rules = RULES.replacen("capacity: 100000", "capacity: 10000", 1);
    let service = start_with(&model, &rules);
    let mut http = Http::new(service.address("gateway"));
    let mut send = |method: &str| {
        let path = "/v1/files/f";
        http.request(method, path, &[("X-API-Key", "k")], "").status
    };
    for method in ["GET", "HEAD", "DELETE", "OPTIONS"] {
        assert_eq!(send(method), 200, "{method}");
    }
    assert_eq!(charged(&service), [0, 0, 0, 4]);
    // Others may be taken for POST.
    for method in ["PUT", "PATCH"] {
        assert_eq!(send(method), 200, "{method}");
    }
    assert_eq!(charged(&service), [8192, 8192, 8192, 6]);
    assert_eq!(send("PUT"), 429);
    assert_eq!(send("GET"), 200);
}

#[test]
fn a_call_in_the_body_of_another_method_is_counted() {
    let model = ModelServer::start();
    let service = start(&model);
    let mut http = Http::new(service.address("gateway"));
    let body = chat("m").to_string();
    let mut reserved = 0;
    for headers in [
        &[("X-API-Key", "k")][..],
        &[("X-API-Key", "k"), ("TE", "trailers"), ("Connection", "TE")],
    ] {
        for method in ["GET", "DELETE", "OPTIONS"] {
            assert_eq!(http.request(method, CHAT, headers, &body).status, 200);
            // The answer of this server is a list, without usage.
            reserved += PROMPT_BOUND;
            let charged = charged_by(&service, "total");
            assert!(charged >= reserved, "{method}: {charged}");
        }
    }
}

#[test]
fn a_connection_that_may_carry_calls_costs_as_much_as_an_unknown_one() {
    let model = ModelServer::start();
    let service = start(&model);
    let mut http = Http::new(service.address("gateway"));
    let upgrade = [
        ("X-API-Key", "k"),
        ("Connection", "upgrade"),
        ("Upgrade", "websocket"),
    ];
    assert_eq!(
        http.request("GET", "/v1/realtime", &upgrade, "").status,
        200
    );
    assert_eq!(charged_by(&service, "total"), 4096);
    // This one is not upgraded.
    assert_eq!(
        http.request("GET", "/v1/responses", &upgrade, "").status,
        200
    );
    assert_eq!(charged_by(&service, "total"), 4096);
}

#[test]
fn a_key_is_needed_even_where_no_tokens_are_counted() {
    let model = ModelServer::start();
    let rules = RULES.replace(
        "scope: per_api_key,",
        "scope: per_api_key, on_missing_key: deny,",
    );
    let service = start_with(&model, &rules);
    let mut http = Http::new(service.address("gateway"));
    for method in ["GET", "POST"] {
        assert_eq!(http.request(method, "/v1/models", &[], "").status, 429);
    }
}
