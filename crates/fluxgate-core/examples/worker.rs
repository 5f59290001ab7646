//! A worker that calls several hosts, each no faster than the host allows.
//!
//! `cargo run -p fluxgate-core --example worker --features tokio`

use fluxgate_core::{KeyedLimiter, Quota};
use tokio::task::JoinSet;
use tokio::time::Instant;

const JOBS: u32 = 5;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    // For each host two calls at once, then one every 50 ms.
    let limiter = KeyedLimiter::new(Quota::per_second(20).burst(2));
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for job in 1..=JOBS {
        for host in ["a.example", "b.example"] {
            // Clones share their state.
            let limiter = limiter.clone();
            tasks.spawn(async move {
                // Waits without occupying a thread. Jobs of one host are served in order.
                limiter.until_ready(host).await;
                call(host, job, started).await;
            });
        }
    }
    tasks.join_all().await;
}

/// Replaces a request over the network in this example.
async fn call(host: &str, job: u32, started: Instant) {
    let millis = started.elapsed().as_millis();
    println!("{host}: job {job} after {millis} ms");
}
