//! How connections end.

use super::{ask, connect, has_ended, start};
use crate::support::TWO_A_SECOND;

#[test]
fn quit_is_answered_and_ends_the_connection() {
    let (_service, mut cli) = start(TWO_A_SECOND);
    cli.send_raw(b"PING\r\nQUIT\r\nPING\r\n").unwrap();
    assert_eq!(cli.receive().unwrap().text(), "PONG");
    cli.receive().unwrap().expect_ok();
    assert!(has_ended(&mut cli));
}

#[test]
fn idle_connections_do_not_hold_up_the_end_of_the_service() {
    let (service, mut cli) = start(TWO_A_SECOND);
    let mut idle: Vec<_> = (0..50).map(|_| connect(&service)).collect();
    idle[0].send_raw(b"*1\r\n$4\r\nPI").unwrap();
    assert_eq!(ask(&mut cli, "PING").text(), "PONG");
    service.program.signal("TERM");
    for cli in &mut idle {
        assert!(has_ended(cli));
    }
    assert!(service.program.wait().success());
}

#[test]
fn what_was_asked_before_the_end_is_answered() {
    let (service, mut cli) = start(TWO_A_SECOND);
    assert_eq!(ask(&mut cli, "PING").text(), "PONG");
    // Stopped, it cannot answer before it hears of its end.
    service.program.signal("STOP");
    let many = 5_000;
    cli.send_raw(&b"PING\r\n".repeat(many)).unwrap();
    service.program.signal("TERM");
    service.program.signal("CONT");
    for _ in 0..many {
        assert_eq!(cli.receive().unwrap().text(), "PONG");
    }
    assert!(has_ended(&mut cli));
    assert!(service.program.wait().success());
}

#[test]
fn clients_are_counted() {
    let (service, mut cli) = start(TWO_A_SECOND);
    let more: Vec<_> = (0..3)
        .map(|_| {
            let mut cli = connect(&service);
            ask(&mut cli, "PING");
            cli
        })
        .collect();
    let count = |cli: &mut fluxgate_testkit::Cli| cli.info("connected_clients").unwrap();
    assert_eq!(count(&mut cli), "4");
    drop(more);
    fluxgate_testkit::wait_until("three have left", || count(&mut cli) == "1");
}
