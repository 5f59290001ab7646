//! Services under load, and their faults.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use fluxgate_testkit::{FaultProxy, Http, Mode, ModelServer, RawUpstream, RedisServer, wait_until};

use crate::service::Service;
use crate::support::Dir;

const RULES: &str = "
rule_sets:
  api:
    rules:
      - { id: users, scope: per_user, bands: [ { capacity: 1000000, window: 1h } ] }
      - { id: strict, match: { path: [/strict] }, scope: global, bands: [ { capacity: 1, window: 1d } ] }
      - { id: exports, match: { path: [/exports] }, scope: global, algorithm: concurrency, hold: 1s, bands: [ { capacity: 5 } ] }
      - { id: planned, match: { path: [/planned] }, mode: shadow, scope: global, bands: [ { capacity: 1, window: 1d } ] }
";

/// Takes rules from a directory. Nobody receives its events.
const MEMORY: &str = "
rules_from: { dir: rules.d }
webhooks: [ { url: 'http://127.0.0.1:1/', secret_file: hook-secret, kinds: [rules] } ]
";

/// Allows one request per hour. Others wait.
const WAITING: &str = "
filters: { main: { rule_set: slow }, models: { rule_set: models } }
gateway:
  routes:
    - { id: models, match: { path: [\"/v1/**\"] }, upstreams: [\"MODEL\"], filters: [models], llm: { rules: models } }
    - { id: fragile, match: { path: [/fragile] }, upstreams: [\"FRAGILE\"], retry: {} }
    - { id: all, upstreams: [echo], filters: [main] }
rule_sets:
  slow:
    rules:
      - { id: r, scope: global, on_exceed: wait, max_wait: 30d, bands: [ { capacity: 1, window: 1h } ] }
  models:
    rules:
      - { id: tokens, scope: global, cost: \"llm:total_tokens\", bands: [ { capacity: 1000000000, window: 1h } ] }
";

/// Services that each fail in their own way.
pub(super) struct Fleet {
    /// In memory. Gets invalid rules and a flood of requests.
    memory: Service,
    /// With Redis behind a proxy. Redis dies.
    shared: Service,
    proxy: FaultProxy,
    redis: RedisServer,
    /// Runs out of file descriptors.
    few_descriptors: Service,
    /// Idle clients of `few_descriptors`.
    idle: Vec<Http>,
    /// Gets killed.
    killed: Service,
    /// A gateway whose clients wait for hours.
    gateway: Service,
    _model: ModelServer,
    /// An upstream of the gateway, which dies.
    fragile: Option<RawUpstream>,
    waiting: Vec<Http>,
    /// Started later, without rules.
    unready: Option<Service>,
    is_flooded: bool,
}

impl Fleet {
    pub(super) fn start() -> Self {
        let dir = Dir::new();
        std::fs::create_dir(dir.path("rules.d")).unwrap();
        dir.write("rules.d/rules.yaml", RULES);
        dir.write("hook-secret", "secret");
        let redis = RedisServer::start();
        let proxy = FaultProxy::start(redis.addr());
        let model = ModelServer::start();
        let fragile = RawUpstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        let waiting = WAITING.replace("MODEL", &model.url());
        let waiting = waiting.replace("FRAGILE", &format!("http://{}", fragile.address()));
        let mut fleet = Self {
            memory: Service::start_in(dir, &[], MEMORY),
            shared: Service::start(&[], &shared_config(&proxy)),
            proxy,
            redis,
            few_descriptors: Service::start(&[], RULES),
            idle: Vec::new(),
            killed: Service::start(&[], RULES),
            gateway: Service::start(&["gateway"], &waiting),
            _model: model,
            fragile: Some(fragile),
            waiting: Vec::new(),
            unready: None,
            is_flooded: false,
        };
        wait_until("the store answers", || {
            fleet
                .check_shared()
                .iter()
                .all(|outcome| outcome == "allowed")
        });
        let first = Http::new(fleet.gateway.address("gateway")).get("/");
        assert_eq!(first.status, 200, "{first:?}");
        fleet.add_waiting_clients(1);
        fleet
    }

    /// Returns the addresses to scrape, including those of dead services.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        let services = [
            &self.memory,
            &self.shared,
            &self.few_descriptors,
            &self.killed,
            &self.gateway,
        ];
        let services = services.into_iter().chain(&self.unready);
        services.map(|service| service.address("api")).collect()
    }

    /// Sends some requests of each kind.
    pub(super) fn traffic(&self) {
        let mut http = self.memory.http();
        for (user, path) in [
            ("a", "/"),
            ("b", "/"),
            ("c", "/planned"),
            ("d", "/strict"),
            ("e", "/exports"),
        ] {
            check(
                &mut http,
                &format!(r#"{{"user":"{user}","path":"{path}"}}"#),
            );
        }
        if self.is_flooded {
            for _ in 0..20 {
                check(&mut http, r#"{"user":"d","path":"/strict"}"#);
            }
        }
        self.check_shared();
        self.spend_leases();
        let call = r#"{"model":"m","messages":[{"role":"user","content":"hello"}]}"#;
        let answer = Http::new(self.gateway.address("gateway")).post("/v1/chat/completions", call);
        assert_eq!(answer.status, 200, "{answer:?}");
        // Fails once the upstream is dead.
        Http::new(self.gateway.address("gateway")).get("/fragile");
        if let Some(unready) = &self.unready {
            let answer = unready.http().post("/v1/check", "{}");
            assert_eq!(answer.status, 503, "{answer:?}");
        }
    }

    /// Makes many quick decisions in services that have few, so that a slow one of before, by a
    /// machine that stalled, is less than a hundredth. They count for no rule set.
    pub(super) fn quick_decisions(&self) {
        let checks = [r#"{"rule_set":"none"}"#; 100].join(",");
        for service in [&self.memory, &self.gateway] {
            let body = format!(r#"{{"checks":[{checks}]}}"#);
            let answer = service.http().post("/v1/check/batch", &body);
            assert_eq!(answer.status, 200, "{answer:?}");
        }
    }

    /// Checks by each rule set of the shared service. Returns the outcomes.
    fn check_shared(&self) -> Vec<String> {
        let mut http = self.shared.http();
        let sets = ["allow", "deny", "local"];
        sets.map(|set| check(&mut http, &format!(r#"{{"rule_set":"{set}"}}"#)))
            .to_vec()
    }

    /// Checks keys so often that the shared service takes units of them in advance.
    fn spend_leases(&self) {
        let mut http = self.shared.http();
        for set in ["kept", "returned"] {
            for _ in 0..10 {
                check(&mut http, &format!(r#"{{"rule_set":"{set}"}}"#));
            }
        }
    }

    /// Makes Redis slow.
    pub(super) fn slow_store(&self) {
        self.proxy.set_mode(Mode::Delay(Duration::from_millis(20)));
    }

    fn add_waiting_clients(&mut self, count: usize) {
        for _ in 0..count {
            let mut client = Http::new(self.gateway.address("gateway"));
            client
                .send_raw(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
                .unwrap();
            self.waiting.push(client);
        }
        let waiting = u64::try_from(self.waiting.len()).unwrap();
        wait_until("the clients wait", || {
            sample(&self.gateway, "fluxgate_waiting") == waiting
        });
    }

    /// Opens idle connections, so that most descriptors belong to clients. How many a service
    /// has without clients depends on the number of cores and on its parent process.
    fn add_idle_clients(&mut self, count: usize) {
        for _ in 0..count {
            let mut client = self.few_descriptors.http();
            assert_eq!(client.get("/livez").status, 200);
            self.idle.push(client);
        }
    }

    /// Kills Redis, an upstream and a service, writes invalid rules, exhausts descriptors, starts a flood,
    /// adds waiting clients, and starts a service without rules.
    pub(super) fn fail(&mut self) {
        self.redis.kill();
        drop(self.fragile.take());
        self.killed.program.kill();
        self.memory
            .dir
            .write("rules.d/rules.yaml", "rule_sets: nonsense\n");
        self.is_flooded = true;
        self.add_waiting_clients(90);
        self.add_idle_clients(100);
        // A few descriptors are left for Prometheus and for the files in /proc.
        let open = sample(&self.few_descriptors, "process_open_fds") + 5;
        let prlimit = Command::new("prlimit")
            .args(["--pid", &self.few_descriptors.program.id().to_string()])
            .arg(format!("--nofile={open}:{open}"))
            .status();
        assert!(prlimit.unwrap().success());

        let dir = Dir::new();
        let url = self.redis.url();
        let config = format!(
            "listen: {{ api: '127.0.0.1:0' }}\nstore: {{ redis: {{ url: '{url}' }} }}\n\
             rules_from: {{ redis: {{}} }}\n"
        );
        dir.write("fluxgate.yaml", config);
        let arguments = ["run", "--config", "fluxgate.yaml"];
        self.unready = Some(Service::open_in(dir, &arguments, 1));
    }

    /// Returns the names of all metrics.
    pub(super) fn metric_names(&self) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for service in [&self.memory, &self.shared] {
            let text = service.http().get("/metrics").body;
            let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
            let name = |line: &str| line.split(' ').next().unwrap().to_owned();
            names.extend(types.map(name));
        }
        names
    }
}

/// Returns a config with a rule set for each value of `on_error`, and two that lease: one keeps
/// its units between two rounds of traffic, the other returns them.
fn shared_config(proxy: &FaultProxy) -> String {
    let set = |name: &str| {
        format!(
            "  {name}:\n    on_error: {name}\n    rules:\n      \
             - {{ id: r, scope: global, bands: [ {{ capacity: 1000000, window: 1h }} ] }}\n"
        )
    };
    let leased = |name: &str, span: &str| {
        format!(
            "  {name}:\n    rules:\n      - {{ id: r, scope: global, lease: {{ share: 20%, for: \
             {span} }}, bands: [ {{ capacity: 1000000, window: 1h }} ] }}\n"
        )
    };
    let mut sets: String = ["allow", "deny", "local"].map(set).concat();
    sets += &(leased("kept", "1m") + &leased("returned", "200ms"));
    let url = proxy.url("redis");
    // A long deadline, so that a slow store does not fail.
    format!("store: {{ redis: {{ url: '{url}', deadline: 20s }} }}\nrule_sets:\n{sets}")
}

/// Returns the outcome of a check.
fn check(http: &mut Http, body: &str) -> String {
    let answer = http.post("/v1/check", body);
    assert_eq!(answer.status, 200, "{answer:?}");
    let decision: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
    decision["outcome"].as_str().unwrap().to_owned()
}

/// Returns the value of a sample without labels.
fn sample(service: &Service, name: &str) -> u64 {
    let text = service.http().get("/metrics").body;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap().parse().unwrap()
}
