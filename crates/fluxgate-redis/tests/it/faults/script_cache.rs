//! The server loses its scripts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use fluxgate_core::Outcome;
use fluxgate_testkit::RedisServer;

use crate::support::{Bench, one_band, store_at};

const LIMIT: usize = 1000;

/// Runs 32 tasks of 50 requests each.
async fn admitted(bench: &Bench) -> usize {
    let task = || {
        let bench = bench.clone();
        tokio::spawn(async move {
            let mut admitted = 0;
            for _ in 0..50 {
                let decision = bench.check("ann").await;
                let outcome = decision.outcome();
                assert!(matches!(outcome, Outcome::Allowed | Outcome::Denied));
                admitted += usize::from(decision.allowed());
            }
            admitted
        })
    };
    let tasks: Vec<_> = (0..32).map(|_| task()).collect();
    let mut sum = 0;
    for task in tasks {
        sum += task.await.unwrap();
    }
    sum
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flushing_scripts_in_a_loop_loses_no_unit_and_loads_once_at_a_time() {
    let server = RedisServer::start();
    let rules = one_band("deny", "fixed_window", LIMIT as u64, "300d");
    let bench = Bench::new(rules, store_at(server.url()).near_cache(false));
    let stop = Arc::new(AtomicBool::new(false));
    let flushing = {
        let (stop, mut cli) = (Arc::clone(&stop), server.cli());
        thread::spawn(move || {
            let mut flushes = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                cli.command(&["SCRIPT", "FLUSH"]).expect_ok();
                flushes += 1;
                thread::sleep(Duration::from_micros(500));
            }
            flushes
        })
    };
    let admitted = admitted(&bench).await;
    stop.store(true, Ordering::Relaxed);
    let flushes = flushing.join().unwrap();
    assert_eq!(admitted, LIMIT);
    assert_eq!(bench.errors.all(), []);
    // The first call also finds no script.
    let loads = server.cli().calls("script|load");
    assert!((1..=flushes + 1).contains(&loads), "{loads} of {flushes}");
    assert!(server.cli().calls("eval") >= 1);
}

/// The script is loaded once, however many calls miss it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_script_lost_once_is_loaded_once() {
    let server = RedisServer::start();
    let rules = one_band("deny", "fixed_window", LIMIT as u64, "300d");
    let bench = Bench::new(rules, store_at(server.url()).near_cache(false));
    bench.recovery("somebody").await;
    let mut cli = server.cli();
    crate::support::until("the first load", || cli.calls("script|load") == 1).await;
    cli.command(&["SCRIPT", "FLUSH"]).expect_ok();
    assert_eq!(admitted(&bench).await, LIMIT);
    assert_eq!(bench.errors.all(), []);
    let loads = cli.calls("script|load");
    // Two calls may be in flight when it is lost; the second may fail after the
    // load for the first is done.
    assert!((2..=3).contains(&loads), "{loads} loads");
}
