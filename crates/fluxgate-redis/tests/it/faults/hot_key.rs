//! One key, two processes, 64 clients.

use std::env;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};

use fluxgate_core::Outcome;
use fluxgate_testkit::RedisServer;
use tokio::task::JoinSet;

use crate::support::{Bench, one_band, store_at};

const LIMIT: usize = 1000;
const CLIENTS: usize = 32;
/// One process alone asks for less than the limit.
const ASKED_BY_EACH: usize = 25;
/// Where the server is and which algorithm decides, for a worker.
const SERVER: &str = "FLUXGATE_TEST_HOT_KEY_SERVER";
const ALGORITHM: &str = "FLUXGATE_TEST_HOT_KEY_ALGORITHM";
/// What a worker says before the number of those it admitted, and before it
/// waits for a line to begin.
const READY: &str = "hot key worker is ready";
const ADMITTED: &str = "hot key worker admitted ";

/// This test program again, as a process that asks.
fn worker(url: &str, algorithm: &str) -> Child {
    Command::new(env::current_exe().unwrap())
        .args(["--exact", "faults::hot_key::a_worker_of_the_test_above"])
        .args(["--ignored", "--nocapture"])
        .env(SERVER, url)
        .env(ALGORITHM, algorithm)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// What follows `sign` in the next line that has it.
fn told(output: &mut impl BufRead, sign: &str) -> String {
    let mut line = String::new();
    loop {
        line.clear();
        let length = output.read_line(&mut line).unwrap();
        assert!(length > 0, "a worker ended without `{sign}`");
        if let Some((_, rest)) = line.split_once(sign) {
            return rest.trim().to_owned();
        }
    }
}

fn admitted_by_two_processes(url: &str, algorithm: &str) -> usize {
    let mut workers = [worker(url, algorithm), worker(url, algorithm)];
    let outputs = workers.each_mut().map(|it| it.stdout.take().unwrap());
    let mut outputs = outputs.map(BufReader::new);
    // Both at once, or the first might be done before the second begins.
    for output in &mut outputs {
        told(output, READY);
    }
    for worker in &mut workers {
        writeln!(worker.stdin.take().unwrap(), "go").unwrap();
    }
    let counts = outputs.map(|mut output| {
        let count = told(&mut output, ADMITTED);
        // What it says at its end must be taken, or it ends with an error.
        output.read_to_string(&mut String::new()).unwrap();
        count
    });
    for worker in &mut workers {
        assert!(worker.wait().unwrap().success());
    }
    let counts = counts.map(|count| count.parse::<usize>().unwrap());
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    counts.iter().sum()
}

#[test]
fn two_processes_with_32_clients_each_admit_exactly_the_limit() {
    let server = RedisServer::start();
    for algorithm in ["fixed_window", "sliding_window", "sliding_log"] {
        server.cli().command(&["FLUSHALL"]).expect_ok();
        let admitted = admitted_by_two_processes(&server.url(), algorithm);
        assert_eq!(admitted, LIMIT, "{algorithm}");
    }
}

#[test]
#[ignore = "a part of the test above, which runs it in a process of its own"]
fn a_worker_of_the_test_above() {
    let (Ok(url), Ok(algorithm)) = (env::var(SERVER), env::var(ALGORITHM)) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let admitted = runtime.unwrap().block_on(async {
        let rules = one_band("deny", &algorithm, LIMIT as u64, "1d");
        let bench = Bench::new(rules, store_at(url));
        bench.store().ping().await.unwrap();
        println!("{READY}");
        std::io::stdin().read_line(&mut String::new()).unwrap();
        let mut clients = JoinSet::new();
        for _ in 0..CLIENTS {
            let bench = bench.clone();
            clients.spawn(async move {
                let mut admitted = 0;
                for _ in 0..ASKED_BY_EACH {
                    let decision = bench.check("ann").await;
                    let outcome = decision.outcome();
                    assert!(matches!(outcome, Outcome::Allowed | Outcome::Denied));
                    admitted += usize::from(decision.allowed());
                }
                admitted
            });
        }
        let mut sum = 0;
        while let Some(client) = clients.join_next().await {
            sum += client.unwrap();
        }
        sum
    });
    println!("{ADMITTED}{admitted}");
}
