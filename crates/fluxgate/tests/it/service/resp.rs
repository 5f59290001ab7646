//! Decisions over the Redis protocol.

mod checks;
mod clients;
mod ends;
mod protocol;
mod shared;
mod throttle;
mod transactions;

use fluxgate_testkit::{Cli, Reply};

use super::Service;

/// A service with these rules, and a connection to it.
fn start(config: &str) -> (Service, Cli) {
    let service = Service::start(&["resp"], config);
    let cli = connect(&service);
    (service, cli)
}

/// One more connection.
fn connect(service: &Service) -> Cli {
    Cli::connect(service.address("resp")).unwrap()
}

/// The reply to a command without spaces in its arguments.
#[track_caller]
fn ask(cli: &mut Cli, command: &str) -> Reply {
    let arguments: Vec<_> = command.split(' ').collect();
    cli.command(&arguments)
}

/// The replies to commands that come in one write, so that hardly any time
/// passes between them.
#[track_caller]
fn ask_all(cli: &mut Cli, commands: &[&str]) -> Vec<Reply> {
    let lines: Vec<_> = commands.iter().map(|line| format!("{line}\r\n")).collect();
    cli.send_raw(lines.concat().as_bytes()).unwrap();
    commands.iter().map(|_| cli.receive().unwrap()).collect()
}

/// The integers of a reply.
#[track_caller]
fn integers(reply: &Reply) -> Vec<i64> {
    reply.array().iter().map(Reply::int).collect()
}

/// Whether the other side has ended the connection.
fn has_ended(cli: &mut Cli) -> bool {
    cli.receive().is_err()
}
