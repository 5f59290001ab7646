//! Batches of calls.

use fluxgate_testkit::RedisServer;

use super::*;

#[test]
fn a_batch_costs_its_calls_and_is_charged_as_a_whole_or_not_at_all() {
    let redis = RedisServer::start();
    let store = format!(
        "store: {{ redis: {{ url: \"{}\", deadline: 10s }} }}\n",
        redis.url()
    );
    for store in ["", &store] {
        for transport in TRANSPORTS {
            let upstream = RawUpstream::answering(OK);
            let rules = RULES.replace(
                "id: calls",
                &format!("id: calls-{transport:?}").to_lowercase(),
            );
            let rules = rules.replace(
                "id: per-tool",
                &format!("id: tool-{transport:?}").to_lowercase(),
            );
            check_a_batch(
                &start_with(&upstream, "", &format!("{rules}{store}")),
                transport,
            );
            assert_eq!(upstream.requests().len(), 2);
        }
    }
}

fn check_a_batch(service: &Service, transport: Transport) {
    let name = format!("{transport:?}").to_lowercase();
    let calls = || left(service, &format!("calls-{name}"), "identity=ann");
    let of_tool = |tool: &str| {
        let identity = format!("identity=ann&identity={tool}");
        left(service, &format!("tool-{name}"), &identity)
    };
    let send = |batch: &Value| post_with(service, transport, "", &batch.to_string());
    let batch = json!([
        tool("a", 1),
        tool("b", "2"),
        { "jsonrpc": "2.0", "method": "notifications/progress" },
        { "jsonrpc": "2.0", "id": 4, "result": {} },
        tool("a", 5),
    ]);
    assert_eq!(send(&batch).status, 200);
    assert_eq!((calls(), of_tool("a"), of_tool("b")), (6, 1, 2));

    // One call of `a` is left, so both are refused, and `b` with them.
    let refused = send(&batch);
    assert_eq!(refused.status, 429, "{refused:?}");
    let errors = json_of(&refused);
    let ids: Vec<_> = errors
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["id"])
        .collect();
    assert_eq!(ids, [&json!(1), &json!("2"), &json!(5)]);
    for error in errors.as_array().unwrap() {
        assert_eq!(error["error"]["code"], -32000);
        assert_eq!(error["error"]["data"]["rule"], format!("tool-{name}"));
    }
    assert_eq!(refused.values("retry-after").len(), 1);
    assert_eq!((calls(), of_tool("a"), of_tool("b")), (6, 1, 2));

    let forbidden = send(&json!([tool("b", 1), tool("shell", 2), tool("b", 3)]));
    assert_eq!(forbidden.status, 403);
    assert_eq!(json_of(&forbidden).as_array().unwrap().len(), 3);
    assert_eq!(forbidden.values("x-ratelimit-limit"), [""; 0]);
    assert_eq!((calls(), of_tool("a"), of_tool("b")), (6, 1, 2));

    assert_eq!(send(&json!([tool("a", 1)])).status, 200);
    assert_eq!((calls(), of_tool("a")), (5, 0));
    let one = send(&json!([tool("a", 1)]));
    assert_eq!(one.status, 429);
    // A batch of one is answered by a batch.
    assert_eq!(json_of(&one)[0]["id"], 1);
}

#[test]
fn a_refused_batch_of_notifications_has_one_error_without_an_id() {
    let upstream = RawUpstream::answering(OK);
    let service = start(&upstream);
    let call = json!({ "method": "tools/call", "params": { "name": "shell" } });
    let refused = post(&service, &json!([call, call]));
    assert_eq!(refused.status, 403);
    assert_eq!(json_of(&refused)["id"], Value::Null);
}

#[test]
fn more_calls_than_a_limit_holds_never_pass() {
    let upstream = RawUpstream::answering(OK);
    let service = start(&upstream);
    let batch: Vec<_> = (0..11)
        .map(|id| json!({ "id": id, "method": "ping" }))
        .collect();
    let refused = post(&service, &json!(batch));
    assert_eq!(refused.status, 429);
    let error = &json_of(&refused)[0]["error"];
    assert_eq!(error["data"]["rule"], "calls");
    assert_eq!(post(&service, &json!(batch[..10])).status, 200);
    assert_eq!(left(&service, "calls", "identity=ann"), 0);
}
