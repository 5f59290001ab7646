//! Decisions while the store is down.

use fluxgate_testkit::RedisServer;
use serde_json::json;

use super::Client;
use crate::service::Service;

/// Returns a config with a rule set for each value of `on_error`.
pub(super) fn config(store: &RedisServer) -> String {
    let mut config = format!(
        "store: {{ redis: {{ url: \"{}\", deadline: 10s }} }}\nrule_sets:\n",
        store.url()
    );
    for on_error in ["allow", "deny", "local"] {
        config += &format!(
            "  {on_error}:\n    on_error: {on_error}\n    rules:\n      \
             - {{ id: r, key: [\"attr:user\"], bands: [ {{ capacity: 2, window: 1h }} ] }}\n"
        );
    }
    config
}

#[test]
fn on_error_of_the_rule_set_decides() {
    let store = RedisServer::start();
    let service = Service::start(&["grpc"], &config(&store));
    let mut client = Client::of(&service);
    for domain in ["allow", "deny", "local"] {
        assert_eq!(
            client.check(domain, "user", "ann").remaining(),
            [1],
            "{domain}"
        );
    }
    store.kill();

    let allow = client.check("allow", "user", "ann");
    assert_eq!(
        allow.0["statuses"],
        json!([{ "code": "OK", "limit_remaining": 0 }])
    );
    assert!(allow.header_names().is_empty());

    let deny = client.check("deny", "user", "ann");
    assert_eq!(deny.code(), "OVER_LIMIT");
    assert_eq!(
        deny.0["statuses"],
        json!([{ "code": "OVER_LIMIT", "limit_remaining": 0 }])
    );
    // No header says that the quota is used up.
    assert_eq!(deny.header_names(), ["retry-after", "x-fluxgate-outcome"]);
    assert_eq!(deny.header("retry-after"), Some("1"));
    assert_eq!(deny.header("x-fluxgate-outcome"), Some("failed_closed"));

    // The local fallback decides by the same rules.
    let mut local = || {
        let response = client.check("local", "user", "ann");
        (response.code().to_owned(), response.remaining()[0])
    };
    assert_eq!(local(), ("OK".into(), 1));
    assert_eq!(local(), ("OK".into(), 0));
    assert_eq!(local(), ("OVER_LIMIT".into(), 0));
}
