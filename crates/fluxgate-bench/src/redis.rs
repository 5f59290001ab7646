//! The Redis store beside a plain script with a hash of two fields, called once
//! for each decision over the same client.

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

/// Of both sides: nobody waits for ever, and none fails because the machine is
/// busy.
const DEADLINE: Duration = Duration::from_secs(10);

/// What most people write: tokens and a time in a hash, with floating point.
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

/// A unit comes back every 3.6 s.
const WHOLE: u64 = 1_000;
/// The same, but for a fraction of a microsecond that must not get lost.
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

/// A server of its own, and one who asks it.
struct Bench {
    server: RedisServer,
    runtime: Runtime,
    asks: Arc<Asks>,
    users: Arc<[String]>,
}

enum Asks {
    Ours(Box<Limiter<RedisStore>>),
    Theirs(MultiplexedConnection, String),
}

impl Asks {
    /// Takes a unit; it is there.
    #[expect(clippy::unwrap_used, reason = "a benchmark that cannot run has failed")]
    async fn take(&self, user: &str) {
        match self {
            Self::Ours(limiter) => {
                let context = RequestContext::builder().user(user).build();
                let decision = limiter.check("api-limits", &context).await;
                assert!(decision.unwrap().allowed());
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
            Asks::Ours(Box::new(Limiter::new(rules, store)))
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
            Asks::Theirs(connection, sha1.unwrap())
        })
    }

    fn new(asks: impl FnOnce(&RedisServer, &Runtime) -> Asks) -> Self {
        let server = RedisServer::start();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let asks = Arc::new(asks(&server, &runtime));
        let users = (0..KEYS).map(|index| format!("user-{index:08}"));
        Self {
            server,
            runtime,
            asks,
            users: users.collect(),
        }
    }

    /// Decisions a second, by callers who each wait for one before the next.
    fn per_second(&self) -> f64 {
        let start = Instant::now();
        self.runtime.block_on(async {
            let callers: Vec<_> = (0..CALLERS)
                .map(|caller| {
                    let (asks, users) = (Arc::clone(&self.asks), Arc::clone(&self.users));
                    tokio::spawn(async move {
                        let mut random = Random::new(caller as u64 + 1);
                        for _ in 0..CALLS / CALLERS {
                            asks.take(&users[random.next() as usize % KEYS]).await;
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

    /// What half of the calls of a lone caller take, at most.
    fn median_micros(&self) -> f64 {
        let mut random = Random::new(1);
        let mut times: Vec<Duration> = self.runtime.block_on(async {
            let mut times = Vec::with_capacity(LONE_CALLS);
            for _ in 0..LONE_CALLS {
                let start = Instant::now();
                self.asks
                    .take(&self.users[random.next() as usize % KEYS])
                    .await;
                times.push(start.elapsed());
            }
            times
        });
        times.sort_unstable();
        times[LONE_CALLS / 2].as_nanos() as f64 / 1000.0
    }

    /// What the server needs for a key, its expiry included.
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
                self.asks.take(user).await;
            }
        });
        assert_eq!(cli.dbsize() as usize, KEYS);
        (used(&mut cli) - before) / KEYS as f64
    }
}
