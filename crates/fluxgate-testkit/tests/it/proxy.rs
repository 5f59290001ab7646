//! The fault proxy: the effect of each fault on the client and the server.

use std::io::{self, ErrorKind};
use std::time::Duration;

use fluxgate_testkit::{
    Cli, FaultProxy, Mode, RedisServer, Reply, ReplyFault, Stopwatch, timed, wait_until,
};

const SHORT: Duration = Duration::from_millis(200);

fn start() -> (RedisServer, FaultProxy) {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr());
    (server, proxy)
}

fn connect(proxy: &FaultProxy) -> Cli {
    Cli::connect(proxy.addr()).unwrap()
}

/// Pings on a new connection, which may fail before it sends anything.
fn try_ping(proxy: &FaultProxy) -> io::Result<Reply> {
    Cli::connect(proxy.addr())?.try_command(&["PING"])
}

/// Returns the error of a command.
#[track_caller]
fn failure(cli: &mut Cli, arguments: &[&str]) -> ErrorKind {
    cli.try_command(arguments).unwrap_err().kind()
}

/// Returns whether a command gets no reply while the connection stays open.
fn gets_no_reply(cli: &mut Cli, arguments: &[&str]) -> bool {
    cli.set_timeout(SHORT).unwrap();
    cli.send(arguments).unwrap();
    cli.receive().unwrap_err().kind() == ErrorKind::WouldBlock
}

#[test]
fn bytes_and_connections_are_forwarded_and_counted() {
    let (_server, proxy) = start();
    let mut cli = connect(&proxy);
    assert_eq!(cli.command(&["PING"]).text(), "PONG");
    let request = b"*1\r\n$4\r\nPING\r\n".len() as u64;
    assert_eq!((proxy.bytes_up(), proxy.bytes_down()), (request, 7));
    assert_eq!((proxy.accepted(), proxy.open()), (1, 1));
    let big = "x".repeat(1_000_000);
    cli.command(&["SET", "big", &big]).expect_ok();
    assert_eq!(cli.command(&["GET", "big"]).bytes().len(), 1_000_000);
    drop(cli);
    wait_until("the connection is closed", || proxy.open() == 0);
    assert_eq!(proxy.accepted(), 1);
    let port = proxy.port();
    assert_eq!(proxy.url("redis"), format!("redis://127.0.0.1:{port}"));
}

#[test]
fn a_delay_applies_to_each_direction_and_does_not_add_up() {
    let (_server, proxy) = start();
    let mut cli = connect(&proxy);
    cli.command(&["PING"]);
    proxy.set_mode(Mode::Delay(Duration::from_millis(100)));
    let (_, one) = timed(|| assert_eq!(cli.command(&["PING"]).text(), "PONG"));
    assert!(one >= Duration::from_millis(200), "{one:?}");
    // If the delays added up, this would take six seconds.
    let watch = Stopwatch::start();
    for _ in 0..30 {
        cli.send(&["PING"]).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    (0..30).for_each(|_| assert_eq!(cli.receive().unwrap().text(), "PONG"));
    let many = watch.elapsed();
    assert!(many < Duration::from_secs(3), "{many:?}");
    proxy.heal();
    assert_eq!(proxy.mode(), Mode::Pass);
}

#[test]
fn a_black_hole_discards_all_bytes_of_old_and_new_connections() {
    let (server, proxy) = start();
    let mut old = connect(&proxy);
    old.command(&["PING"]);
    proxy.set_mode(Mode::BlackHole);
    let mut new = connect(&proxy);
    // The kernel connects before the proxy accepts.
    wait_until("both are accepted", || {
        (proxy.accepted(), proxy.open()) == (2, 2)
    });
    assert!(gets_no_reply(&mut old, &["SET", "old", "1"]));
    assert!(gets_no_reply(&mut new, &["SET", "new", "1"]));
    assert_eq!(server.cli().dbsize(), 0);
    assert_eq!((proxy.accepted(), proxy.open()), (2, 2));
    proxy.heal();
    assert_eq!(connect(&proxy).command(&["PING"]).text(), "PONG");
}

#[test]
fn a_black_hole_needs_no_server() {
    let (server, proxy) = start();
    server.kill();
    proxy.set_mode(Mode::BlackHole);
    assert!(gets_no_reply(&mut connect(&proxy), &["PING"]));
}

#[test]
fn new_connections_are_refused_and_old_ones_go_on() {
    let (_server, proxy) = start();
    let mut old = connect(&proxy);
    assert_eq!(old.command(&["PING"]).text(), "PONG");
    proxy.set_mode(Mode::Refuse);
    assert!(try_ping(&proxy).is_err());
    assert_eq!(old.command(&["PING"]).text(), "PONG");
    assert_eq!((proxy.accepted(), proxy.open()), (2, 1));
}

#[test]
fn existing_connections_are_closed_or_reset() {
    let (server, proxy) = start();
    let [mut closed, mut reset] = [connect(&proxy), connect(&proxy)];
    assert_eq!(closed.command(&["PING"]).text(), "PONG");
    drop(reset.command(&["PING"]));
    drop(reset);
    wait_until("one connection is closed", || proxy.open() == 1);
    proxy.close_connections();
    assert_eq!(
        closed.receive().unwrap_err().kind(),
        ErrorKind::UnexpectedEof
    );

    reset = connect(&proxy);
    reset.command(&["PING"]);
    proxy.reset_connections();
    assert_eq!(
        reset.receive().unwrap_err().kind(),
        ErrorKind::ConnectionReset
    );
    wait_until("all connections are closed", || proxy.open() == 0);
    wait_until("the server sees the connections close", || {
        server.cli().info("connected_clients").as_deref() == Some("1")
    });
    assert_eq!(connect(&proxy).command(&["PING"]).text(), "PONG");
}

#[test]
fn a_reply_is_truncated_and_the_connection_closed() {
    let (server, proxy) = start();
    server.cli().command(&["SET", "a", "value"]).expect_ok();
    proxy.fault_next_reply(ReplyFault::Cut(6));
    let mut cli = connect(&proxy);
    assert_eq!(failure(&mut cli, &["GET", "a"]), ErrorKind::UnexpectedEof);
    assert_eq!(connect(&proxy).command(&["GET", "a"]).text(), "value");
    wait_until("the connection is closed", || proxy.open() == 0);
}

#[test]
fn a_command_whose_reply_is_discarded_is_executed() {
    let (server, proxy) = start();
    let mut cli = connect(&proxy);
    proxy.fault_next_reply(ReplyFault::Swallow);
    assert!(gets_no_reply(&mut cli, &["INCR", "a"]));
    assert_eq!(cli.command(&["INCR", "a"]), Reply::Int(2), "still open");

    proxy.fault_next_reply(ReplyFault::SwallowAndClose);
    assert_eq!(failure(&mut cli, &["INCR", "a"]), ErrorKind::UnexpectedEof);
    assert_eq!(server.cli().command(&["GET", "a"]).text(), "3");
    assert_eq!(proxy.faults_pending(), 0);
}

#[test]
fn bytes_are_sent_before_a_reply_or_instead_of_it() {
    let (_server, proxy) = start();
    let mut cli = connect(&proxy);
    proxy.fault_next_reply(ReplyFault::Inject(b":7\r\n".to_vec()));
    proxy.fault_next_reply(ReplyFault::Replace(b"-LOADING yes\r\n".to_vec()));
    assert_eq!(cli.command(&["PING"]), Reply::Int(7));
    assert_eq!(cli.receive().unwrap().text(), "PONG");
    let reply = cli.command(&["PING"]);
    assert_eq!(reply, Reply::Error("LOADING yes".to_owned()));
    assert_eq!(cli.command(&["PING"]).text(), "PONG");
}

#[test]
fn a_fault_applies_to_the_matching_reply_of_a_pipeline() {
    let (_server, proxy) = start();
    let mut cli = connect(&proxy);
    proxy.fault_reply_to("INCRBY", ReplyFault::Replace(b"+HERE\r\n".to_vec()));
    cli.send(&["PING"]).unwrap();
    cli.send(&["ECHO", "a\r\nb"]).unwrap();
    cli.send(&["INCRBY", "a", "5"]).unwrap();
    cli.send(&["INCRBY", "a", "5"]).unwrap();
    let replies: Vec<_> = (0..4).map(|_| cli.receive().unwrap()).collect();
    assert_eq!(replies[0].text(), "PONG");
    assert_eq!(replies[1].text(), "a\r\nb");
    assert_eq!(replies[2].text(), "HERE");
    assert_eq!(replies[3], Reply::Int(10));
}

#[test]
fn a_dead_server_closes_its_clients() {
    let (server, proxy) = start();
    let mut cli = connect(&proxy);
    cli.command(&["PING"]);
    server.kill();
    assert!(cli.try_command(&["PING"]).is_err());
    assert!(try_ping(&proxy).is_err());
    server.restart();
    assert_eq!(connect(&proxy).command(&["PING"]).text(), "PONG");
    wait_until("all connections are closed", || proxy.open() == 0);
}

#[test]
fn dropping_a_proxy_closes_all_connections() {
    let (server, proxy) = start();
    let mut cli = connect(&proxy);
    cli.command(&["PING"]);
    let addr = proxy.addr();
    drop(proxy);
    assert!(cli.try_command(&["PING"]).is_err());
    assert!(Cli::connect(addr).is_err());
    wait_until("the server sees the connection close", || {
        server.cli().info("connected_clients").as_deref() == Some("1")
    });
}
