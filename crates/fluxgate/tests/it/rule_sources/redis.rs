//! Rules in Redis.

use std::sync::atomic::{AtomicU32, Ordering};

use fluxgate_testkit::{FaultProxy, RedisServer};
use serde_json::Value;

use super::suite::rule_source_suite;
use super::{Corruption, POLL, RuleHost, deep_nesting, huge_id, many_rules};

rule_source_suite!(RedisHost, silence_keeps_the_rules);

const INDEX: &str = "fluxgate:1:{rules}:index";
const SETS: &str = "fluxgate:1:{rules}:set:";

/// Replaces the index and all sets at once, as the service never does.
const REPLACE: &str = "
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], '', ARGV[1])
for i = 2, #ARGV, 3 do
  redis.call('DEL', KEYS[2] .. ARGV[i])
  redis.call('SET', KEYS[2] .. ARGV[i], ARGV[i + 2])
  redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
end";

/// Changes the version, so that the service reads what a script has done.
const CORRUPT: &str = "redis.call('HSET', KEYS[1], '', ARGV[1]) ";

/// A server behind a proxy that breaks its connections.
struct RedisHost {
    server: RedisServer,
    proxy: FaultProxy,
    version: AtomicU32,
}

impl RedisHost {
    fn next_version(&self) -> String {
        self.version.fetch_add(1, Ordering::Relaxed).to_string()
    }

    fn write_texts<'a>(&self, sets: impl Iterator<Item = (&'a str, String)>) {
        let mut command: Vec<String> = ["EVAL", REPLACE, "2", INDEX, SETS].map(Into::into).into();
        command.push(self.next_version());
        for (name, text) in sets {
            command.extend([name.into(), fluxgate_redis::etag_of(&text), text]);
        }
        let reply = self.server.cli().command(&command);
        assert_eq!(reply.error(), None);
    }

    fn run(&self, script: &str) {
        let script = CORRUPT.to_owned() + script;
        let version = self.next_version();
        let reply = self
            .server
            .cli()
            .command(&["EVAL", &script, "2", INDEX, SETS, &version]);
        assert_eq!(reply.error(), None);
    }
}

impl RuleHost for RedisHost {
    fn start(rule_sets: &Value) -> Self {
        let server = RedisServer::start();
        let proxy = FaultProxy::start(server.addr());
        let host = Self {
            server,
            proxy,
            version: AtomicU32::new(1),
        };
        host.write(rule_sets);
        host
    }

    fn config(&self, fields: &str) -> String {
        assert_eq!(fields, "");
        let (url, poll) = (self.proxy.url("redis"), POLL.as_millis());
        // The rules share a breaker with the decisions. Decisions that are late on a busy machine
        // must not open it: the reads that it stops then count as failures of the source.
        format!(
            "store: {{ redis: {{ url: {url:?}, deadline: 900ms }} }}\n\
             rules_from: {{ redis: {{}}, poll: {poll}ms }}\n"
        )
    }

    fn write(&self, rule_sets: &Value) {
        let sets = rule_sets.as_object().unwrap().iter();
        self.write_texts(sets.map(|(name, set)| (&**name, set.to_string())));
    }

    fn place(&self) -> String {
        "rule set \"api\":1:".into()
    }

    fn corrupt(&self, how: Corruption) -> Option<String> {
        let text = |text: String| self.write_texts([("api", text)].into_iter());
        let expected = match how {
            Corruption::WrongType => {
                self.run("redis.call('DEL', KEYS[1]) redis.call('LPUSH', KEYS[1], 'x')");
                "the stored rules: "
            }
            Corruption::Endless => {
                self.run("redis.call('SETRANGE', KEYS[2] .. 'api', 100000000, 'x')");
                "the rule sets have 100000001 bytes"
            }
            Corruption::ManyDocuments => {
                self.run("for i = 1, 1000000 do redis.call('HSET', KEYS[1], i, i) end");
                "there are 1000001 rule sets; at most 10000 are read"
            }
            Corruption::ManyRules => {
                text(many_rules());
                "rule set \"api\" has"
            }
            Corruption::DeepNesting => {
                text(deep_nesting());
                "rule set \"api\":1:"
            }
            Corruption::HugeString => {
                text(huge_id());
                "rule set \"api\" has"
            }
        };
        Some(expected.into())
    }

    fn proxy(&self) -> &FaultProxy {
        &self.proxy
    }
}
