//! Services under traffic, and what goes wrong with them.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use fluxgate_testkit::{FaultProxy, Http, Mode, RedisServer, wait_until};

use crate::service::Service;
use crate::support::Dir;

const RULES: &str = "
rule_sets:
  api:
    rules:
      - { id: users, scope: per_user, bands: [ { capacity: 1000000, window: 1h } ] }
      - { id: strict, match: { path: [/strict] }, scope: global, bands: [ { capacity: 1, window: 1d } ] }
      - { id: planned, match: { path: [/planned] }, mode: shadow, scope: global, bands: [ { capacity: 1, window: 1d } ] }
";

/// The first request passes, and then one an hour.
const PATIENT: &str = "
filters: { main: { rule_set: slow } }
gateway: { routes: [ { id: all, upstreams: [echo], filters: [main] } ] }
rule_sets:
  slow:
    rules:
      - { id: r, scope: global, on_exceed: wait, max_wait: 30d, bands: [ { capacity: 1, window: 1h } ] }
";

/// Some services, each with its own way to get into trouble.
pub(super) struct Fleet {
    /// Keeps its state in memory; gets bad rules and a client that does not stop.
    memory: Service,
    /// Keeps its state in Redis, behind a proxy; loses it.
    shared: Service,
    proxy: FaultProxy,
    redis: RedisServer,
    /// Runs out of file descriptors.
    cramped: Service,
    /// Clients that say nothing to it.
    idle: Vec<Http>,
    /// Dies.
    doomed: Service,
    /// A gateway before which clients wait for hours.
    patient: Service,
    waiting: Vec<Http>,
    /// Comes later, and never gets its rules.
    unready: Option<Service>,
    is_flooded: bool,
}

impl Fleet {
    pub(super) fn start() -> Self {
        let dir = Dir::new();
        std::fs::create_dir(dir.path("rules.d")).unwrap();
        dir.write("rules.d/rules.yaml", RULES);
        let redis = RedisServer::start();
        let proxy = FaultProxy::start(redis.addr());
        let mut fleet = Self {
            memory: Service::start_in(dir, &[], "rules_from: { dir: rules.d }\n"),
            shared: Service::start(&[], &shared_config(&proxy)),
            proxy,
            redis,
            cramped: Service::start(&[], RULES),
            idle: Vec::new(),
            doomed: Service::start(&[], RULES),
            patient: Service::start(&["gateway"], PATIENT),
            waiting: Vec::new(),
            unready: None,
            is_flooded: false,
        };
        wait_until("the store answers", || {
            fleet
                .ask_shared()
                .iter()
                .all(|outcome| outcome == "allowed")
        });
        let first = Http::new(fleet.patient.address("gateway")).get("/");
        assert_eq!(first.status, 200, "{first:?}");
        fleet.let_wait(1);
        fleet
    }

    /// Where metrics are read. Who is dead should be there too.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        let services = [&self.memory, &self.shared, &self.cramped, &self.doomed];
        let services = services.into_iter().chain([&self.patient]);
        let services = services.chain(&self.unready);
        services.map(|service| service.address("api")).collect()
    }

    /// A little of everything.
    pub(super) fn traffic(&self) {
        let mut http = self.memory.http();
        for (user, path) in [("a", "/"), ("b", "/"), ("c", "/planned"), ("d", "/strict")] {
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
        self.ask_shared();
        if let Some(unready) = &self.unready {
            let answer = unready.http().post("/v1/check", "{}");
            assert_eq!(answer.status, 503, "{answer:?}");
        }
    }

    /// How each rule set of the shared service decides.
    fn ask_shared(&self) -> Vec<String> {
        let mut http = self.shared.http();
        let sets = ["allow", "deny", "local"];
        sets.map(|set| check(&mut http, &format!(r#"{{"rule_set":"{set}"}}"#)))
            .to_vec()
    }

    /// Redis becomes slow, but answers.
    pub(super) fn slow_store(&self) {
        self.proxy.set_mode(Mode::Delay(Duration::from_millis(20)));
    }

    /// So many more clients wait.
    fn let_wait(&mut self, count: usize) {
        for _ in 0..count {
            let mut client = Http::new(self.patient.address("gateway"));
            client
                .send_raw(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
                .unwrap();
            self.waiting.push(client);
        }
        let waiting = u64::try_from(self.waiting.len()).unwrap();
        wait_until("they wait", || {
            sample(&self.patient, "fluxgate_waiting") == waiting
        });
    }

    /// So many clients keep a connection. How many descriptors a service has without any
    /// depends on the machine's cores, and on what it was started with.
    fn stay_idle(&mut self, count: usize) {
        for _ in 0..count {
            let mut client = self.cramped.http();
            assert_eq!(client.get("/livez").status, 200);
            self.idle.push(client);
        }
    }

    /// Redis dies, a service dies, rules are spoiled, descriptors run out, a client
    /// does not stop, many wait, and a new service finds no rules.
    pub(super) fn everything_else(&mut self) {
        self.redis.kill();
        self.doomed.program.kill();
        self.memory
            .dir
            .write("rules.d/rules.yaml", "rule_sets: nonsense\n");
        self.is_flooded = true;
        self.let_wait(90);
        self.stay_idle(100);
        // A few are left, for the one who reads this and for whom it has to open files.
        let open = sample(&self.cramped, "process_open_fds") + 5;
        let prlimit = Command::new("prlimit")
            .args(["--pid", &self.cramped.program.id().to_string()])
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

    /// The names of all metrics that any of them has.
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

/// A rule set for each thing to do when the store fails.
fn shared_config(proxy: &FaultProxy) -> String {
    let set = |name: &str| {
        format!(
            "  {name}:\n    on_error: {name}\n    rules:\n      \
             - {{ id: r, scope: global, bands: [ {{ capacity: 1000000, window: 1h }} ] }}\n"
        )
    };
    let sets: String = ["allow", "deny", "local"].map(set).concat();
    let url = proxy.url("redis");
    // Slow is not lost.
    format!("store: {{ redis: {{ url: '{url}', deadline: 5s }} }}\nrule_sets:\n{sets}")
}

/// The outcome of a check.
fn check(http: &mut Http, body: &str) -> String {
    let answer = http.post("/v1/check", body);
    assert_eq!(answer.status, 200, "{answer:?}");
    let decision: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
    decision["outcome"].as_str().unwrap().to_owned()
}

/// A sample without labels.
fn sample(service: &Service, name: &str) -> u64 {
    let text = service.http().get("/metrics").body;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap().parse().unwrap()
}
