//! A flood of denials of many identities, by Zipf's law: rows and what was dropped are all of them, the
//! heaviest have rows with right counts, and the record stays within its bounds.
//!
//! `FLUXGATE_LONG` lets a million identities be denied for five minutes.

use std::collections::HashMap;
use std::thread;
use std::time::Duration;

use fluxgate_testkit::{RedisServer, now, wait_until};
use serde_json::{Value, json};

use super::denials::all;
use super::{check_many, now_ms, on_redis};
use crate::service::Service;
use crate::service::telemetry::Metrics;

/// All requests cost more than the limit.
const RULES: &str = "
telemetry: { identities: true }
rule_sets:
  api:
    rules:
      - { id: blocked, scope: per_user, algorithm: fixed_window, bands: [ 1/h ] }
";
/// How many requests a call has.
const BATCH: usize = 500;
/// The rows that a rule has in a minute.
const ROWS_OF_MINUTE: u64 = 1_000;
/// What a row takes in Redis, and what all else of the record may take there.
const ROW_IN_REDIS: u64 = 300;
const REST_IN_REDIS: u64 = 8 << 20;
/// What the record may take in the process: the tables of a few threads, and the rows.
const MOST_IN_MEMORY: u64 = 100 << 20;

/// How much is denied, and how right the rows must be.
#[derive(Clone, Copy)]
struct Flood {
    identities: u64,
    /// It lasts as long as this, and until there are so many requests.
    span: Duration,
    requests: u64,
    /// The least part of its denials that each of the heaviest identities has rows for, in percent.
    least_part: u64,
}

/// Draws identities by Zipf's law.
struct Zipf {
    /// The sums of the weights up to each rank.
    sums: Vec<u64>,
    random: u64,
}

impl Zipf {
    fn new(identities: u64) -> Self {
        let mut sum = 0;
        let weights = (1..=identities).map(|rank| {
            sum += 1_000_000_000 / rank;
            sum
        });
        Self {
            sums: weights.collect(),
            random: 88_172_645_463_325_252,
        }
    }

    fn draw(&mut self) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let point = self.random % self.sums[self.sums.len() - 1];
        self.sums.partition_point(|sum| *sum <= point)
    }
}

/// Denies requests. Returns how many of each identity.
fn deny(service: &Service, flood: Flood) -> Vec<u64> {
    let (mut zipf, start, mut total) = (Zipf::new(flood.identities), now(), 0);
    let mut counts = vec![0; flood.identities as usize];
    while start.elapsed() < flood.span || total < flood.requests {
        total += BATCH as u64;
        let ranks: Vec<_> = (0..BATCH).map(|_| zipf.draw()).collect();
        ranks.iter().for_each(|rank| counts[*rank] += 1);
        let requests: Vec<_> = { ranks.iter() }
            .map(|rank| json!({ "user": format!("u{rank}"), "cost": 2 }))
            .collect();
        check_many(service, &requests);
    }
    counts
}

fn count(row: &Value) -> u64 {
    row["count"].as_u64().unwrap()
}

/// Checks what a service has of the denials. Returns how many rows that are.
fn check_rows(service: &Service, flood: Flood, counts: &[u64]) -> u64 {
    let total: u64 = counts.iter().sum();
    let mut rows = Vec::new();
    wait_until("rows and what was dropped to be all denials", || {
        let (found, dropped) = all(service, "n=10000");
        let sum: u64 = found.iter().map(count).sum();
        rows = found;
        sum + dropped == total
    });
    let mut known = HashMap::<&str, u64>::new();
    for row in &rows {
        *known.entry(row["identity"].as_str().unwrap()).or_default() += count(row);
    }
    let mut heaviest: Vec<_> = (0..counts.len()).collect();
    heaviest.sort_by_key(|rank| u64::MAX - counts[*rank]);
    let (mut truth, mut found) = (0, 0);
    for rank in &heaviest[..100] {
        let name = format!("user=u{rank}");
        let (is, of) = (known.get(&*name).copied().unwrap_or(0), counts[*rank]);
        // What is missing was dropped before there was a row.
        assert!(is > 0 && is <= of, "{name}: {is} of {of}");
        assert!(is * 100 >= of * flood.least_part, "{name}: {is} of {of}");
        truth += of;
        found += is;
    }
    assert!(found * 20 >= truth * 19, "{found} of {truth}");
    let shown = format!(
        "{total} denials, {} rows, {found} of {truth} of the top 100",
        rows.len()
    );
    println!("{shown}");
    rows.len() as u64
}

#[test]
fn the_heaviest_of_a_flood_have_rows_and_the_record_stays_within_its_bounds() {
    let flood = match std::env::var_os("FLUXGATE_LONG") {
        Some(_) => Flood {
            identities: 1_000_000,
            span: Duration::from_secs(300),
            requests: 1_000_000,
            least_part: 90,
        },
        None => Flood {
            identities: 30_000,
            span: Duration::ZERO,
            requests: 40_000,
            least_part: 50,
        },
    };
    let server = RedisServer::start();
    let services = [
        Service::start(&[], RULES),
        Service::start(&[], &on_redis(&server, RULES)),
    ];
    let used = || server.cli().info("used_memory").unwrap().parse::<u64>();
    let resident = |service: &Service| Metrics::of(service).sum("process_resident_memory_bytes");
    let before = services.each_ref().map(resident);
    let (used_before, begin) = (used().unwrap(), now_ms() / 60_000);
    thread::scope(|scope| {
        let floods = services.each_ref().map(|service| {
            scope.spawn(move || {
                let counts = deny(service, flood);
                (check_rows(service, flood, &counts), service)
            })
        });
        for (flood, before) in floods.into_iter().zip(before) {
            let (rows, service) = flood.join().unwrap();
            let minutes = now_ms() / 60_000 - begin + 1;
            assert!(
                rows <= ROWS_OF_MINUTE * (minutes + 1),
                "{rows} rows in {minutes} minutes"
            );
            let grown = resident(service).saturating_sub(before);
            println!("{} MB more in the process", grown >> 20);
            assert!(grown <= MOST_IN_MEMORY, "{grown}");
        }
    });
    let minutes = now_ms() / 60_000 - begin + 1;
    let grown = used().unwrap().saturating_sub(used_before);
    println!("{} kB more in Redis", grown >> 10);
    let most = ROWS_OF_MINUTE * (minutes + 1) * ROW_IN_REDIS + REST_IN_REDIS;
    assert!(grown <= most, "{grown}");
}
