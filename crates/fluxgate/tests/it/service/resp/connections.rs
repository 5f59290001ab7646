//! The end of connections, and their number.

use super::{connect, is_closed, run, start};
use crate::support::TWO_A_SECOND;

#[test]
fn quit_is_answered_and_closes_the_connection() {
    let (_service, mut cli) = start(TWO_A_SECOND);
    cli.send_raw(b"PING\r\nQUIT\r\nPING\r\n").unwrap();
    assert_eq!(cli.receive().unwrap().text(), "PONG");
    cli.receive().unwrap().expect_ok();
    assert!(is_closed(&mut cli));
}

#[test]
fn idle_connections_do_not_delay_the_shutdown() {
    let (service, mut cli) = start(TWO_A_SECOND);
    let mut idle: Vec<_> = (0..50).map(|_| connect(&service)).collect();
    idle[0].send_raw(b"*1\r\n$4\r\nPI").unwrap();
    assert_eq!(run(&mut cli, "PING").text(), "PONG");
    service.program.signal("TERM");
    for cli in &mut idle {
        assert!(is_closed(cli));
    }
    assert!(service.program.wait().success());
}

#[test]
fn commands_sent_before_the_shutdown_are_answered() {
    let (service, mut cli) = start(TWO_A_SECOND);
    assert_eq!(run(&mut cli, "PING").text(), "PONG");
    // While stopped, the service cannot answer before it receives SIGTERM.
    service.program.signal("STOP");
    let many = 5_000;
    cli.send_raw(&b"PING\r\n".repeat(many)).unwrap();
    service.program.signal("TERM");
    service.program.signal("CONT");
    for _ in 0..many {
        assert_eq!(cli.receive().unwrap().text(), "PONG");
    }
    assert!(is_closed(&mut cli));
    assert!(service.program.wait().success());
}

#[test]
fn connected_clients_are_counted() {
    let (service, mut cli) = start(TWO_A_SECOND);
    let more: Vec<_> = (0..3)
        .map(|_| {
            let mut cli = connect(&service);
            run(&mut cli, "PING");
            cli
        })
        .collect();
    let count = |cli: &mut fluxgate_testkit::Cli| cli.info("connected_clients").unwrap();
    assert_eq!(count(&mut cli), "4");
    drop(more);
    fluxgate_testkit::wait_until("three clients have disconnected", || count(&mut cli) == "1");
}
