//! Benchmarks, each measured beside its yardstick in the same run.
//!
//! `fluxgate-bench [--json] [NAME…]`; `scripts/bench` calls it and adds what
//! needs other programs.
#![allow(
    clippy::disallowed_methods,
    clippy::float_arithmetic,
    reason = "measuring is looking at the clock, and ratios are fractions"
)]

mod decision;
mod direct;
mod ext_authz;
mod fleet;
mod gateway;
mod grpc;
mod h2load;
mod haproxy;
mod history;
mod http;
mod http_hold;
mod keyed;
mod layer;
mod lease;
mod live;
mod llm;
mod load;
mod matching;
mod memory;
mod nginx;
mod redis;
mod report;
mod resp;
mod service;
mod simulate;
mod start;
mod tls;
mod wrk;

use report::Report;

type Bench = (&'static str, fn(&mut Report));

const BENCHES: [Bench; 32] = [
    ("keyed-1k", keyed::thousand),
    ("keyed-1m", keyed::million),
    ("direct-1-thread", direct::one_thread),
    ("direct-2-threads", direct::two_threads),
    ("decision", decision::run),
    ("matching", matching::run),
    ("lists", matching::run_lists),
    ("memory", memory::bytes_per_key),
    ("flood", memory::flood),
    ("simulate", simulate::run),
    ("redis", redis::run),
    ("redis-lease", lease::run),
    ("fleet", fleet::run_all),
    ("cluster-lease", lease::on_clusters),
    ("start", start::run),
    ("http", http::run),
    ("http-hold", http_hold::run),
    ("http-hold-redis", http_hold::on_redis),
    ("http-lease", lease::http),
    ("http-live", live::run),
    ("http-history", history::http),
    ("redis-history", history::redis),
    ("resp", resp::run),
    ("grpc", grpc::run),
    ("grpc-ext-authz", ext_authz::run),
    ("gateway", gateway::run),
    ("gateway-lease", lease::gateway),
    ("gateway-jwt", gateway::jwt),
    ("gateway-llm", llm::run),
    ("gateway-tls-h1", gateway::tls_h1),
    ("gateway-tls-h2", gateway::tls_h2),
    ("layer", layer::run),
];

fn main() {
    let mut json = false;
    let mut wanted = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            memory::MEASURE => return memory::measure(&arguments.next().unwrap_or_default()),
            layer::SERVE => return layer::serve(&arguments.next().unwrap_or_default()),
            "--json" => json = true,
            "--list" => {
                for (name, _) in BENCHES {
                    println!("{name}");
                }
                return;
            }
            _ => wanted.push(argument),
        }
    }
    for name in &wanted {
        if !BENCHES.iter().any(|(known, _)| known == name) {
            eprintln!("there is no benchmark `{name}`; --list names them");
            std::process::exit(64);
        }
    }
    let mut report = Report::new(json);
    for (name, run) in BENCHES {
        if wanted.is_empty() || wanted.iter().any(|wanted| wanted == name) {
            run(&mut report);
        }
    }
}
