//! Sentinels and failovers.

use fluxgate_testkit::Sentinels;

#[test]
fn a_killed_primary_is_replaced() {
    let all = Sentinels::start();
    assert_eq!(all.master_name(), "mymaster");
    assert_eq!((all.sentinel_urls().len(), all.sentinels().len()), (3, 3));
    let first = all.primary().port();
    assert_eq!(first, all.servers()[0].port());
    let refused = all.replica().cli().command(&["SET", "a", "b"]);
    assert!(refused.error().unwrap().starts_with("READONLY"));

    let dead = all.kill_primary();
    assert_eq!(dead.port(), first);
    let new = all.wait_for_failover();
    assert_ne!(new.port(), first);
    assert_eq!(all.primary().port(), new.port());
    new.cli().command(&["SET", "a", "b"]).expect_ok();

    // The sentinels do not accept the old primary as one.
    dead.restart();
    assert_eq!(all.primary().port(), new.port());
}
