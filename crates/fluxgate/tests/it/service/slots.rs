//! Slots of two instances on one Redis, for 64 clients, while instances are killed.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use fluxgate_testkit::{Cli, Http, RedisServer, wait_for, wait_until};
use tokio::time::Instant;

use super::Service;

const SLOTS: usize = 10;
const CLIENTS: usize = 64;
const HOLD: Duration = Duration::from_secs(1);
/// How far the clocks of the server and of the clients may drift apart in a hold.
const DRIFT: Duration = Duration::from_millis(1);

/// Returns how often a slot is taken, and how often an instance is killed meanwhile.
fn size() -> (usize, usize) {
    match std::env::var_os("FLUXGATE_LONG") {
        Some(_) => (100_000, 40),
        None => (5_000, 3),
    }
}

/// The instances. Each may be replaced at any time.
struct Instances<'s> {
    server: &'s RedisServer,
    running: [Mutex<Service>; 2],
}

impl<'s> Instances<'s> {
    fn start(server: &'s RedisServer) -> Self {
        let running = [0, 1].map(|_| Mutex::new(start(server)));
        Self { server, running }
    }

    fn address(&self, index: usize) -> SocketAddr {
        self.running[index].lock().unwrap().address("api")
    }

    /// Kills an instance and starts another one in its place.
    fn replace(&self, index: usize) {
        let killed = self.running[index].lock().unwrap().program.id();
        let new = start(self.server);
        let mut running = self.running[index].lock().unwrap();
        assert_eq!(running.program.id(), killed);
        running.program.kill();
        *running = new;
    }
}

fn start(server: &RedisServer) -> Service {
    let url = server.url();
    Service::start(
        &[],
        &format!(
            "store: {{ redis: {{ url: \"{url}\", deadline: 10s }} }}\n\
             rule_sets: {{ api: {{ on_error: deny, rules: [ {{ id: r, scope: global, \
             algorithm: concurrency, hold: 1s, bands: [ {{ capacity: {SLOTS} }} ] }} ] }} }}\n"
        ),
    )
}

/// A slot that a client has, from a reply to what it sent last, and so for not longer than
/// it is really held.
#[derive(Clone, Copy, Debug)]
struct Held {
    from: Instant,
    until: Instant,
}

enum Acquired {
    Slot {
        id: String,
        asked: Instant,
        from: Instant,
    },
    Denied,
    /// No reply: nobody knows.
    Lost,
}

/// A client of one instance. It dies with it.
struct Client(Http);

impl Client {
    fn new(address: SocketAddr) -> Self {
        Self(Http::new(address))
    }

    fn post(&mut self, path: &str, body: &str) -> Option<(u16, serde_json::Value)> {
        let headers = [("Content-Type", "application/json")];
        let answer = self.0.try_request("POST", path, &headers, body).ok()?;
        let json = serde_json::from_str(&answer.body).unwrap();
        Some((answer.status, json))
    }

    fn acquire(&mut self) -> Acquired {
        let asked = Instant::now();
        let check = r#"{"rule_set":"api","hold":"1s"}"#;
        let Some((status, json)) = self.post("/v1/check", check) else {
            return Acquired::Lost;
        };
        assert_eq!(status, 200, "{json}");
        let outcome = json["outcome"].as_str().unwrap();
        match json["hold"].as_str() {
            Some(id) => {
                assert_eq!(outcome, "allowed");
                Acquired::Slot {
                    id: id.to_owned(),
                    asked,
                    from: Instant::now(),
                }
            }
            None => {
                assert_eq!(outcome, "denied");
                Acquired::Denied
            }
        }
    }

    /// Releases a hold. Returns the status, if there is a reply.
    fn release(&mut self, id: &str) -> Option<u16> {
        let body = format!(r#"{{"hold":"{id}"}}"#);
        self.post("/v1/release", &body).map(|(status, _)| status)
    }
}

/// Takes and releases slots until enough have been taken. Clients of a killed instance die
/// with their slots.
fn run_client(instances: &Instances<'_>, index: usize, taken: &AtomicUsize) -> Vec<Held> {
    let (most, _) = size();
    let mut held = Vec::new();
    let mut address = instances.address(index % 2);
    let mut client = Client::new(address);
    while taken.load(Ordering::Relaxed) < most {
        if instances.address(index % 2) != address {
            address = instances.address(index % 2);
            client = Client::new(address);
        }
        let (id, asked, from) = match client.acquire() {
            Acquired::Slot { id, asked, from } => (id, asked, from),
            Acquired::Denied => {
                // Like a client that retries later.
                std::thread::sleep(Duration::from_millis(2));
                continue;
            }
            Acquired::Lost => continue,
        };
        taken.fetch_add(1, Ordering::Relaxed);
        // At the earliest, the hold expires so long after the request was sent.
        let expires = asked + HOLD - DRIFT;
        // Some work for a while, so that instances are killed meanwhile.
        if held.len().is_multiple_of(8) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let is_dead = instances.address(index % 2) != address;
        let until = if is_dead { expires } else { Instant::now() };
        held.push(Held {
            from,
            until: until.min(expires),
        });
        if !is_dead && let Some(status) = client.release(&id) {
            let may_have_expired = Instant::now() >= expires;
            assert!(
                status == 200 || status == 404 && may_have_expired,
                "{status}"
            );
        }
    }
    held
}

/// Returns the most slots that clients had at the same time.
fn most_at_once(held: &[Held]) -> usize {
    let real = held.iter().filter(|held| held.from < held.until);
    // At the same instant an end comes before a start.
    let mut changes: Vec<_> = real
        .flat_map(|held| [(held.from, 1_isize), (held.until, -1)])
        .collect();
    changes.sort_unstable();
    let counts = changes.iter().scan(0, |count, (_, change)| {
        *count += change;
        Some(*count)
    });
    counts.max().unwrap_or(0).try_into().unwrap()
}

/// Returns the slots that are held by the server's count and clock.
fn held_now(cli: &mut Cli, key: &str) -> usize {
    const COUNT: &str = "local t = redis.call('TIME') \
        return redis.call('ZCOUNT', KEYS[1], string.format('(%.0f', t[1] * 1000000 + t[2]), '+inf')";
    let count = cli.command(&["EVAL", COUNT, "1", key]);
    count.int().try_into().unwrap()
}

/// Runs all clients while instances are killed. Returns what the clients held, and the
/// most that the server counted.
fn run_clients(instances: &Instances<'_>, key: &str) -> (Vec<Held>, usize) {
    let (most, kills) = size();
    let (taken, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let taken = &taken;
    std::thread::scope(|scope| {
        let monitor = scope.spawn(|| {
            let mut cli = instances.server.cli();
            let mut most = 0;
            while !is_over.load(Ordering::Relaxed) {
                most = most.max(held_now(&mut cli, key));
            }
            most
        });
        let clients: Vec<_> = (0..CLIENTS)
            .map(|index| scope.spawn(move || run_client(instances, index, taken)))
            .collect();
        for kill in 0..kills {
            let before = most * (kill + 1) / (kills + 1);
            wait_until("enough slots are taken", || {
                taken.load(Ordering::Relaxed) >= before
                    || clients.iter().any(|client| client.is_finished())
            });
            instances.replace(kill % 2);
        }
        let held = clients
            .into_iter()
            .flat_map(|client| client.join().unwrap())
            .collect();
        is_over.store(true, Ordering::Relaxed);
        (held, monitor.join().unwrap())
    })
}

/// Returns how many keys have the state of limits.
fn states(server: &RedisServer) -> usize {
    let keys = server.cli().keys("*");
    keys.iter().filter(|key| key.contains(":2:")).count()
}

#[test]
fn two_instances_never_hold_more_slots_than_there_are_and_the_dead_free_theirs() {
    let server = RedisServer::start();
    let instances = Instances::start(&server);
    let mut client = Client::new(instances.address(0));
    // On a busy machine, the hold may have expired.
    let key = wait_for("a slot is taken and released", || {
        let Acquired::Slot { id, .. } = client.acquire() else {
            panic!("there are slots");
        };
        let key = server.cli().keys("*:h").pop();
        key.filter(|_| client.release(&id) == Some(200))
    });
    wait_until("nothing is held", || states(&server) == 0);

    let (held, counted) = run_clients(&instances, &key);
    assert!(held.len() >= size().0);
    assert!(counted <= SLOTS, "the server counted {counted}");
    let most = most_at_once(&held);
    assert!(most <= SLOTS, "clients had {most} at once");
    // The limit was the bottleneck.
    assert!(counted == SLOTS, "only {counted} were held at once");

    wait_until("all to expire", || states(&server) == 0);
    the_slots_of_the_dead_are_free_after_a_hold(&instances);
    wait_until("all to expire", || states(&server) == 0);
}

fn the_slots_of_the_dead_are_free_after_a_hold(instances: &Instances<'_>) {
    let mut dying = Client::new(instances.address(0));
    let mut other = Client::new(instances.address(1));
    let start = Instant::now();
    for _ in 0..SLOTS {
        assert!(matches!(dying.acquire(), Acquired::Slot { .. }));
    }
    let last = Instant::now();
    instances.running[0].lock().unwrap().program.kill();
    let mut free = 0;
    while free < SLOTS {
        let asked = Instant::now();
        match other.acquire() {
            Acquired::Slot { from, .. } => {
                let early = (start + HOLD - DRIFT).saturating_duration_since(from);
                assert!(early.is_zero(), "{early:?} too early");
                free += 1;
            }
            Acquired::Denied => {
                let late = asked.saturating_duration_since(last + HOLD + DRIFT);
                assert!(late.is_zero(), "{late:?} too late");
            }
            Acquired::Lost => panic!("the other instance runs"),
        }
    }
}
