//! Settlements on Redis.

use fluxgate_testkit::{FaultProxy, RedisServer, ReplyFault, wait_until};

use super::*;

#[test]
fn a_settlement_that_fails_on_redis_is_tried_again() {
    let redis = RedisServer::start();
    let proxy = FaultProxy::start(redis.addr());
    let store = format!(
        "store: {{ redis: {{ url: \"{}\", deadline: 10s }} }}\n",
        proxy.url("redis")
    );
    // The record of the hold cannot be read, or it is settled and the reply is lost.
    for request in ["GET", "EVALSHA"] {
        let model = ModelServer::start();
        let service = start_with(&model, &format!("{store}{RULES}"));
        let mut client = send(&service, &streamed_chat("wait=1"));
        wait_until("the call is forwarded", || model.requests().len() == 1);
        assert_eq!(charged(&service), [PROMPT_BOUND + 50, PROMPT_BOUND, 50, 1]);

        proxy.fault_reply_to(request, ReplyFault::SwallowAndClose);
        model.release();
        // The answer does not wait for the store.
        assert_eq!(client.read_answer(false).unwrap().status, 200);
        wait_until("the settlement fails", || proxy.faults_pending() == 0);
        let left = format!("\"remaining\":{}", CAPACITY - TOTAL);
        wait_until("the call is settled", || {
            let mut api = service.http();
            let state = api.get("/v1/state?rule_set=s&rule=total&identity=k");
            state.body.contains(&left)
        });
        assert_eq!(charged(&service), REPORTED, "{request}");
        let holds = redis.cli().command(&["KEYS", "*:hold:*"]);
        assert_eq!(holds.array().len(), 0, "{holds:?}");
        redis.cli().command(&["FLUSHALL"]).expect_ok();
    }
}
