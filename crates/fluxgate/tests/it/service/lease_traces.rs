//! Instances that share a limit by leases, each a process of its own, while faults happen to them
//! and to Redis. What they record is replayed against the specification (`spec/tla/Leases.tla`).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fluxgate_testkit::{
    FaultProxy, LeaseRecorder, LeaseTraces, RedisServer, ReplyFault, now, wait_until,
};

use super::Service;
use crate::support::Dir;

const CAPACITY: u64 = 300;
/// 40% of the capacity.
const LEASED: u64 = 120;
/// Units that refill in a second.
const REFILL: u64 = 1000;

fn config(url: &str) -> String {
    format!(
        "store: {{ redis: {{ url: \"{url}\", deadline: 300ms }} }}
rule_sets:
  api:
    on_error: deny
    rules:
      - id: leased
        scope: per_user
        lease: {{ share: 40%, for: 200ms }}
        bands: [ {{ capacity: {CAPACITY}, window: 1s, refill: {REFILL} }} ]
"
    )
}

/// The instants before and after each admitted request.
type Admitted = Arc<Mutex<Vec<(Instant, Instant)>>>;

/// A process under load.
struct Instance {
    service: Service,
    stop: Arc<AtomicBool>,
    caller: JoinHandle<()>,
}

impl Instance {
    fn start(url: &str, recorder: &LeaseRecorder, admitted: &Admitted) -> Self {
        let dir = Dir::new();
        let listen = "listen: { api: \"127.0.0.1:0\" }\n";
        dir.write("fluxgate.yaml", listen.to_owned() + &config(url));
        let trace = format!("FLUXGATE_LEASE_TRACE={}", recorder.directory().display());
        let program = env!("CARGO_BIN_EXE_fluxgate");
        let arguments = [&trace, program, "run", "--config", "fluxgate.yaml"];
        let service = Service::open_by(dir, "/usr/bin/env".as_ref(), &arguments, 1);
        service.wait_until_ready();
        let stop = Arc::<AtomicBool>::default();
        let caller = {
            let (mut http, stop) = (service.http(), Arc::clone(&stop));
            let admitted = Arc::clone(admitted);
            thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let before = now();
                    let answer = http.post("/v1/check", r#"{"user":"ann"}"#);
                    if answer.body.contains("\"allowed\":true") {
                        admitted.lock().unwrap().push((before, now()));
                    }
                }
            })
        };
        Self {
            service,
            stop,
            caller,
        }
    }

    /// Ends the load. The instance keeps its units.
    fn stop(self) -> Service {
        self.stop.store(true, Ordering::Relaxed);
        self.caller.join().unwrap();
        self.service
    }
}

/// Panics if any interval has more than the bucket admits.
fn expect_bucket(mut admitted: Vec<(Instant, Instant)>) {
    admitted.sort_unstable();
    let begin = admitted[0].0;
    let micros = |at: Instant| at.duration_since(begin).as_micros() as i128;
    let (mut least, mut last) = (i128::MAX, 0);
    for (number, (before, after)) in admitted.into_iter().enumerate() {
        let units = |count: usize| 1_000_000 * count as i128;
        least = least.min(units(number) - i128::from(REFILL) * micros(before));
        last = last.max(micros(after));
        let most = units(number + 1) - i128::from(REFILL) * last - least;
        let over = most - 1_000_000 * i128::from(CAPACITY);
        assert!(over <= 0, "{over} millionths over after {number} requests");
    }
}

fn spent(recorder: &LeaseRecorder) -> usize {
    let traces = recorder.traces();
    let lines = traces.instances.iter().flatten();
    lines.filter(|line| line.contains(" spend ")).count()
}

#[test]
fn processes_under_faults_do_what_the_specification_allows() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr());
    let (recorder, admitted) = (LeaseRecorder::new(), Admitted::default());
    let start = || Instance::start(&proxy.url("redis"), &recorder, &admitted);
    let mut instances = vec![start(), start(), start()];
    let goes_on = || {
        let before = spent(&recorder);
        wait_until("leases decide", || spent(&recorder) > before + 20);
    };
    goes_on();
    for fault in [ReplyFault::Swallow, ReplyFault::SwallowAndClose] {
        for _ in 0..5 {
            proxy.fault_reply_to("EVALSHA", fault.clone());
            thread::sleep(Duration::from_millis(50));
        }
    }
    proxy.heal();
    goes_on();

    // A process that dies with units on lease, and one that starts.
    instances.remove(0).stop().program.kill();
    instances.push(start());
    // A process that stands still for longer than a lease, and Redis that does so.
    instances[0].service.program.signal("STOP");
    thread::sleep(Duration::from_millis(500));
    instances[0].service.program.signal("CONT");
    goes_on();
    server.pause();
    thread::sleep(Duration::from_millis(500));
    server.resume();
    proxy.reset_connections();
    goes_on();

    for instance in instances {
        let service = instance.stop();
        service.program.signal("TERM");
        assert!(service.program.wait().success());
    }
    expect_bucket(std::mem::take(&mut *admitted.lock().unwrap()));
    let traces = recorder.traces();
    let instances = traces.instances.iter().filter(|lines| !lines.is_empty());
    assert_eq!(instances.count(), 4);
    let replayed = traces.replay(LEASED).unwrap();
    assert!(
        replayed.spent > 100 && replayed.returned > 0,
        "{replayed:?}"
    );
    assert!(replayed.answers < replayed.calls, "{replayed:?}");

    expect_planted_events_to_be_found(&traces);
}

/// Changes one event of a real trace at a time: the replay finds each.
fn expect_planted_events_to_be_found(traces: &LeaseTraces) {
    let plant = |action: &str, change: &dyn Fn(&str) -> String| {
        let mut planted = traces.clone();
        let mut lines = planted.instances.iter_mut().flatten();
        let line = lines.find(|line| line.contains(action)).unwrap();
        let changed = change(line);
        line.clone_from(&changed);
        assert!(planted.replay(LEASED).is_err(), "{changed}");
    };
    plant(" spend 1 ", &|line| line.replace(" spend 1 ", " spend 2 "));
    plant(" receive ", &|line| line.replace(" receive ", " receive 1"));
    plant(" ask ", &|line| line.replace(" |", " 1:1:1 |"));
    plant(" receive ", &|line| line.replace(" receive ", " give-up "));
}
