//! Decisions over the Redis protocol.

mod checks;
mod clients;
mod connections;
mod protocol;
mod redis_store;
mod throttle;
mod transactions;

use fluxgate_testkit::{Cli, Reply};

use super::Service;

/// Starts a service and connects to it.
fn start(config: &str) -> (Service, Cli) {
    let service = Service::start(&["resp"], config);
    let cli = connect(&service);
    (service, cli)
}

fn connect(service: &Service) -> Cli {
    Cli::connect(service.address("resp")).unwrap()
}

/// Runs a command without spaces in its arguments.
#[track_caller]
fn run(cli: &mut Cli, command: &str) -> Reply {
    let arguments: Vec<_> = command.split(' ').collect();
    cli.command(&arguments)
}

/// Runs commands that are sent in one write, so that little time passes between them.
#[track_caller]
fn run_all(cli: &mut Cli, commands: &[&str]) -> Vec<Reply> {
    let lines: Vec<_> = commands.iter().map(|line| format!("{line}\r\n")).collect();
    cli.send_raw(lines.concat().as_bytes()).unwrap();
    commands.iter().map(|_| cli.receive().unwrap()).collect()
}

#[track_caller]
fn integers(reply: &Reply) -> Vec<i64> {
    reply.array().iter().map(Reply::int).collect()
}

/// Returns whether the service has closed the connection.
fn is_closed(cli: &mut Cli) -> bool {
    cli.receive().is_err()
}
