//! An imported configuration admits as many requests as Spring Cloud Gateway does.

use std::net::SocketAddr;

use fluxgate_testkit::{Http, Program, RawUpstream, RedisServer, ports, wait_for, wait_until};

use crate::service::Service;
use crate::support::{Dir, fetched};

const APPLICATION: &str = "
spring:
  data.redis: { host: 127.0.0.1, port: REDIS }
  cloud.gateway.server.webflux:
    default-filters:
      - name: RequestRateLimiter
        args:
          redis-rate-limiter.replenishRate: 1
          redis-rate-limiter.burstCapacity: 4
          key-resolver: '#{@userKeyResolver}'
    routes:
      - id: everything
        order: 10
        uri: http://127.0.0.1:UPSTREAM
        predicates: [ 'Path=/**' ]
      - id: users
        uri: http://127.0.0.1:UPSTREAM
        predicates:
          - Path=/users/{id}
          - name: Method
            args: { methods: GET }
      - id: 주문
        uri: http://127.0.0.1:UPSTREAM
        predicates: [ 'Path=/orders/**' ]
        filters:
          - name: RequestRateLimiter
            args:
              redis-rate-limiter: { replenishRate: 2, burstCapacity: 6, requestedTokens: 3 }
              key-resolver: '#{@remoteAddrKeyResolver}'
";

/// Sends a request of a user. Returns whether it is admitted.
fn is_admitted(address: SocketAddr, path: &str, user: &str) -> bool {
    let headers = [("X-User-Id", user)];
    let headers = if user.is_empty() { &[][..] } else { &headers };
    match Http::new(address).request("GET", path, headers, "").status {
        200 => true,
        429 | 403 => false,
        other => panic!("{path}: {other}"),
    }
}

/// Sends requests of several kinds. Returns how many of each kind are admitted.
fn admitted(address: SocketAddr, round: &str) -> [usize; 5] {
    let count = |path: &str, user: &dyn Fn(usize) -> String| {
        let requests = 0..8;
        requests
            .filter(|index| is_admitted(address, path, &user(*index)))
            .count()
    };
    let ann = |_| format!("ann-{round}");
    [
        count("/users/7", &ann),
        count("/users/7/", &|_| format!("bob-{round}")),
        count("/other", &ann),
        count("/users/7", &|_| String::new()),
        count("/orders/1/2", &|index| format!("user-{index}-{round}")),
    ]
}

/// Returns the seconds and the microseconds of the clock of Redis.
fn redis_time(redis: &RedisServer) -> (u64, u64) {
    let micros = redis.cli().time_micros().unsigned_abs();
    (micros / 1_000_000, micros % 1_000_000)
}

fn start_gateway(dir: &Dir) -> (Program, ports::Port) {
    let port = ports::free();
    let jar = fetched(
        "FLUXGATE_SPRING_CLOUD_GATEWAY",
        "spring-cloud-gateway/gateway.jar",
    );
    let program = Program::start("java", |command| {
        command
            .args(["-XX:TieredStopAtLevel=1", "-jar"])
            .arg(jar)
            .arg("--spring.config.location=application.yml")
            .arg("--server.address=127.0.0.1")
            .arg(format!("--server.port={}", port.number()))
            .current_dir(dir.path(""));
    });
    wait_for("Spring Cloud Gateway accepts connections", || {
        assert!(program.ended().is_none(), "{:#?}", program.lines());
        std::net::TcpStream::connect(port.addr()).ok()
    });
    (program, port)
}

#[test]
fn routes_admit_as_many_requests() {
    let redis = RedisServer::start();
    let app = RawUpstream::answering(*b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let dir = Dir::new();
    let text = APPLICATION.replace("REDIS", &redis.port().to_string());
    let text = text.replace("UPSTREAM", &app.address().port().to_string());
    dir.write("application.yml", text);
    let run = dir.run(&[
        "import",
        "spring-cloud-gateway",
        "application.yml",
        "--config",
        "--output",
        "fluxgate.yaml",
    ]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let config = dir.read("fluxgate.yaml");
    assert!(config.contains("name: \"주문\""), "{config}");
    let (_spring, port) = start_gateway(&dir);
    let api = "listen.api='127.0.0.1:0'";
    let gateway = "listen.gateway='127.0.0.1:0'";
    let arguments = [
        "run",
        "--config",
        "fluxgate.yaml",
        "--set",
        api,
        "--set",
        gateway,
    ];
    let service = Service::run_in(dir, &arguments, 2);
    let addresses = [port.addr(), service.address("gateway")];
    // The first requests of a virtual machine are slow.
    for address in addresses {
        admitted(address, "first");
    }
    for round in 0..5 {
        // All buckets are full. Those of Spring Cloud Gateway gain tokens when a second begins.
        let (full, _) = redis_time(&redis);
        let start = wait_for("a second begins", || {
            let (second, micros) = redis_time(&redis);
            (second > full + 4 && micros < 200_000).then_some(second)
        });
        let round = round.to_string();
        let bursts = addresses.map(|address| admitted(address, &round));
        let is_quick = redis_time(&redis).0 == start;
        wait_until("three seconds later", || {
            let (second, micros) = redis_time(&redis);
            second >= start + 3 && micros > 300_000
        });
        let later = addresses.map(|address| admitted(address, &round));
        if !is_quick || redis_time(&redis).0 != start + 3 {
            continue;
        }
        assert_eq!(bursts[0], [4, 4, 4, 0, 2], "{config}");
        assert_eq!(bursts[1], bursts[0], "{config}");
        assert_eq!(later[0], [3, 3, 3, 0, 2]);
        assert_eq!(later[1], later[0], "{config}");
        return;
    }
    panic!("the machine is too slow to compare the counts of one second");
}
