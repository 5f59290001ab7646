//! Runs many clients of one process on one key. Start it in several processes at
//! once: together they are admitted exactly as often as the rule allows.
//!
//! ```console
//! $ cargo run -p fluxgate-redis --example hammer -- \
//!     --url redis://127.0.0.1:6379 --algorithm fixed_window --limit 1000
//! ready
//! tally 1000 280 0
//! ```
//!
//! It starts when it reads a line, and prints how many requests were admitted, denied, and
//! decided by `on_error`. With `--until-eof true` it goes on until its input ends.

use std::error::Error;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fluxgate_core::{Limiter, Outcome, RequestContext, RuleSets};
use fluxgate_redis::RedisStore;

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut urls = Vec::new();
    let (mut algorithm, mut limit) = ("token_bucket".to_owned(), 1000);
    let (mut clients, mut times, mut pause) = (32, 40, Duration::ZERO);
    let mut until_eof = false;
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments
            .next()
            .ok_or_else(|| format!("{name} needs a value"))?;
        match name.as_str() {
            "--url" => urls.push(value),
            "--algorithm" => algorithm = value,
            "--limit" => limit = value.parse()?,
            "--clients" => clients = value.parse()?,
            "--times" => times = value.parse()?,
            "--pause-ms" => pause = Duration::from_millis(value.parse()?),
            "--until-eof" => until_eof = value.parse()?,
            _ => return Err(format!("unknown option {name}").into()),
        }
    }
    let store = RedisStore::builder(urls).deadline(Duration::from_secs(10));
    let limiter = Limiter::new(rules(&algorithm, limit)?, store.connect().await?);
    println!("ready");
    io::stdin().read_line(&mut String::new())?;

    let is_over = Arc::new(AtomicBool::new(!until_eof));
    if until_eof {
        let is_over = Arc::clone(&is_over);
        std::thread::spawn(move || {
            // An error ends the input, too.
            let _ = io::stdin().read_to_end(&mut Vec::new());
            is_over.store(true, Ordering::Relaxed);
        });
    }
    let client = || client(limiter.clone(), times, pause, Arc::clone(&is_over));
    let tasks: Vec<_> = (0..clients).map(|_| tokio::spawn(client())).collect();
    let mut tally = [0; 3];
    for task in tasks {
        for (sum, count) in tally.iter_mut().zip(task.await?) {
            *sum += count;
        }
    }
    let [admitted, denied, failed] = tally;
    writeln!(io::stdout(), "tally {admitted} {denied} {failed}")?;
    Ok(())
}

/// One key, two bands. Hardly anything comes back while it runs.
fn rules(algorithm: &str, limit: u64) -> Result<RuleSets, Box<dyn Error>> {
    let slow = match algorithm {
        "token_bucket" | "leaky_bucket" => ", refill: 1, period: 1d",
        _ => "",
    };
    Ok(RuleSets::from_yaml(&format!(
        "
rule_sets:
  api:
    on_error: deny
    rules:
      - id: r
        scope: per_user
        algorithm: {algorithm}
        bands:
          - {{ id: one, capacity: {limit}, window: 300d{slow} }}
          - {{ id: two, capacity: {limit}, window: 299d{slow} }}
"
    ))?)
}

/// Admitted, denied, and decided by `on_error`.
async fn client(
    limiter: Limiter<RedisStore>,
    times: u64,
    pause: Duration,
    is_over: Arc<AtomicBool>,
) -> [u64; 3] {
    let mut tally = [0; 3];
    while tally.iter().sum::<u64>() < times || !is_over.load(Ordering::Relaxed) {
        let context = RequestContext::builder().user("ann").build();
        tally[match limiter.check("api", &context).await.outcome() {
            Outcome::Allowed => 0,
            Outcome::Denied => 1,
            _ => 2,
        }] += 1;
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
    }
    tally
}
