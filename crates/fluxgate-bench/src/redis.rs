//! The Redis store, compared with a simple script that keeps two fields in a hash and is
//! called once per decision by the same client crate.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fluxgate_core::{Limiter, RequestContext, RuleSets};
use fluxgate_redis::{RedisStore, Topology};
use fluxgate_testkit::RedisServer;
use redis::aio::MultiplexedConnection;
use tokio::runtime::Runtime;

use crate::report::{Better, Random, Report, in_turn};

const KEYS: usize = 10_000;
const CALLERS: usize = 64;
const CALLS: usize = 100_000;
const LONE_CALLS: usize = 5_000;

/// The deadline of both clients, long enough for a busy machine.
const DEADLINE: Duration = Duration::from_secs(10);

/// A typical script: tokens and a time in a hash, in floating point.
const HASH_SCRIPT: &str = "
local state = redis.call('HMGET', KEYS[1], 'tokens', 'ts')
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
local capacity, rate = tonumber(ARGV[1]), tonumber(ARGV[2])
local tokens = tonumber(state[1]) or capacity
local ts = tonumber(state[2]) or now
tokens = math.min(capacity, tokens + (now - ts) * rate)
local allowed = 0
if tokens >= 1 then
  tokens = tokens - 1
  allowed = 1
end
redis.call('HMSET', KEYS[1], 'tokens', tokens, 'ts', now)
redis.call('EXPIRE', KEYS[1], 3600)
return { allowed, tostring(tokens) }
";

/// A capacity that refills a unit every 3.6 s.
const WHOLE: u64 = 1_000;
/// A capacity whose refill interval has a fraction of a microsecond.
const FRACTION: u64 = 1_001;

fn rules(capacity: u64) -> String {
    format!(
        "
rule_sets:
  api-limits:
    on_error: deny
    rules:
      - id: per-user
        scope: per_user
        bands: [ {{ id: burst, capacity: {capacity}, window: 1h }} ]
"
    )
}

pub(crate) fn run(report: &mut Report) {
    let (ours, theirs) = (Bench::ours(WHOLE), Bench::theirs());
    let yardstick = "hash script, one call a decision";
    let figures = in_turn(5, || ours.per_second(), || theirs.per_second());
    report.line(
        "redis-64-callers",
        figures,
        yardstick,
        "decisions/s",
        Better::More,
    );
    let figures = in_turn(5, || ours.median_micros(), || theirs.median_micros());
    report.line("redis-lone-p50", figures, yardstick, "us", Better::Less);
    let yardstick = "hash script, key of the same user";
    let bytes = theirs.bytes_per_key();
    for (name, ours) in [
        ("redis-memory", ours),
        ("redis-memory-fraction", Bench::ours(FRACTION)),
    ] {
        let figures = (ours.bytes_per_key(), bytes);
        report.line(name, figures, yardstick, "bytes/key", Better::Less);
    }
}

/// A Redis server and a client of it.
struct Bench {
    server: RedisServer,
    runtime: Runtime,
    client: Arc<Client>,
    users: Arc<[String]>,
}

enum Client {
    Ours(Box<Limiter<RedisStore>>),
    Theirs(MultiplexedConnection, String),
}

impl Client {
    /// Takes a unit, which must be available.
    #[expect(clippy::unwrap_used, reason = "a benchmark that cannot run has failed")]
    async fn take(&self, user: &str) {
        match self {
            Self::Ours(limiter) => {
                let context = RequestContext::builder().user(user).build();
                let decision = limiter.check("api-limits", &context).await;
                assert!(decision.allowed());
            }
            Self::Theirs(connection, sha1) => {
                let mut command = redis::cmd("EVALSHA");
                let key = format!("fluxgate:api-limits:per-user:{user}:burst");
                command.arg(sha1).arg(1).arg(key).arg(1_000).arg("0.2777");
                let reply: (i64, String) =
                    command.query_async(&mut connection.clone()).await.unwrap();
                assert_eq!(reply.0, 1);
            }
        }
    }
}

#[expect(clippy::unwrap_used, reason = "a benchmark that cannot run has failed")]
impl Bench {
    fn ours(capacity: u64) -> Self {
        Self::new(|server, runtime| {
            let store = RedisStore::builder([server.url()])
                .topology(Topology::Standalone)
                .deadline(DEADLINE);
            let store = runtime.block_on(store.connect()).unwrap();
            let rules = RuleSets::from_yaml(&rules(capacity)).unwrap();
            Client::Ours(Box::new(Limiter::new(rules, store)))
        })
    }

    fn theirs() -> Self {
        Self::new(|server, runtime| {
            let client = redis::Client::open(server.url()).unwrap();
            let config = redis::AsyncConnectionConfig::new().set_response_timeout(Some(DEADLINE));
            let connection = client.get_multiplexed_async_connection_with_config(&config);
            let connection = runtime.block_on(connection).unwrap();
            let mut load = redis::cmd("SCRIPT");
            load.arg("LOAD").arg(HASH_SCRIPT);
            let sha1 = runtime.block_on(load.query_async(&mut connection.clone()));
            Client::Theirs(connection, sha1.unwrap())
        })
    }

    fn new(client: impl FnOnce(&RedisServer, &Runtime) -> Client) -> Self {
        let server = RedisServer::start();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let client = Arc::new(client(&server, &runtime));
        let users = (0..KEYS).map(|index| format!("user-{index:08}"));
        Self {
            server,
            runtime,
            client,
            users: users.collect(),
        }
    }

    /// Returns the decisions per second of `CALLERS` concurrent callers. Each makes one call at a
    /// time.
    fn per_second(&self) -> f64 {
        let start = Instant::now();
        self.runtime.block_on(async {
            let callers: Vec<_> = (0..CALLERS)
                .map(|caller| {
                    let (client, users) = (Arc::clone(&self.client), Arc::clone(&self.users));
                    tokio::spawn(async move {
                        let mut random = Random::new(caller as u64 + 1);
                        for _ in 0..CALLS / CALLERS {
                            client.take(&users[random.next() as usize % KEYS]).await;
                        }
                    })
                })
                .collect();
            for caller in callers {
                caller.await.unwrap();
            }
        });
        CALLS as f64 / start.elapsed().as_secs_f64()
    }

    /// Returns the median latency of a single caller.
    fn median_micros(&self) -> f64 {
        let mut random = Random::new(1);
        let mut times: Vec<Duration> = self.runtime.block_on(async {
            let mut times = Vec::with_capacity(LONE_CALLS);
            for _ in 0..LONE_CALLS {
                let start = Instant::now();
                self.client
                    .take(&self.users[random.next() as usize % KEYS])
                    .await;
                times.push(start.elapsed());
            }
            times
        });
        times.sort_unstable();
        times[LONE_CALLS / 2].as_nanos() as f64 / 1000.0
    }

    /// Returns the server memory that one key takes, including its expiry.
    fn bytes_per_key(&self) -> f64 {
        let mut cli = self.server.cli();
        cli.command(&["FLUSHALL"]).expect_ok();
        let used = |cli: &mut fluxgate_testkit::Cli| -> f64 {
            let used = cli.info("used_memory_dataset").unwrap();
            used.parse().unwrap()
        };
        let before = used(&mut cli);
        self.runtime.block_on(async {
            for user in self.users.iter() {
                self.client.take(user).await;
            }
        });
        assert_eq!(cli.dbsize() as usize, KEYS);
        (used(&mut cli) - before) / KEYS as f64
    }
}
