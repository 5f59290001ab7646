//! One key, two processes, 64 clients.

use fluxgate_testkit::RedisServer;

use crate::load::{LoadProcess, Tally};

/// With 32 clients, one process alone sends fewer requests than the limit.
const TIMES: usize = 25;

#[test]
fn two_processes_with_32_clients_each_admit_exactly_the_limit() {
    let server = RedisServer::start();
    for algorithm in ["fixed_window", "sliding_window", "sliding_log"] {
        server.cli().command(&["FLUSHALL"]).expect_ok();
        let start = |_| LoadProcess::start(&[server.url()], algorithm, TIMES);
        // Both start together, or the first might finish before the second
        // begins.
        let mut processes = [0, 1].map(start);
        processes.iter_mut().for_each(LoadProcess::begin);
        let mut sum = Tally::default();
        for process in processes {
            let tally = process.wait();
            assert!(tally.admitted > 0, "{tally:?}");
            sum.add(tally);
        }
        assert_eq!((sum.admitted, sum.failed), (1000, 0), "{algorithm}");
    }
}
