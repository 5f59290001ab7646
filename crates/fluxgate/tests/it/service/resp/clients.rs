//! Real clients: redis-cli and redis-py.

use std::process::Command;

use super::super::Service;
use super::start;
use crate::support::{TWO_A_SECOND, project_file, python};

/// Returns the output of a program, which must succeed.
fn output(command: &mut Command) -> String {
    let output = command.output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// Returns the output of `redis-cli` in its format for humans.
fn redis_cli(service: &Service, version: &str, command: &str) -> String {
    let port = service.address("resp").port().to_string();
    output(
        Command::new("redis-cli")
            .args(["-p", &port, version, "--no-raw"])
            .args(command.split(' ')),
    )
}

#[test]
fn redis_cli_shows_decisions() {
    let (service, _cli) = start(TWO_A_SECOND);
    for version in ["-2", "-3"] {
        let throttle = format!("CL.THROTTLE user{version} 15 30 60");
        assert_eq!(
            redis_cli(&service, version, &throttle),
            "1) (integer) 0\n2) (integer) 16\n3) (integer) 15\n4) (integer) -1\n5) (integer) 2\n"
        );
        let check = format!("fg.check api user {version}");
        assert_eq!(
            redis_cli(&service, version, &check),
            "1) (integer) 1\n2) (integer) 2\n3) (integer) 1\n4) (integer) 0\n5) (integer) 500\n\
             6) (integer) 0\n7) \"r\"\n8) \"b0\"\n9) \"allowed\"\n"
        );
        let none = redis_cli(&service, version, "FG.CHECK nope");
        assert!(
            none.starts_with("1) (integer) 1\n2) (nil)\n3) (nil)\n"),
            "{none}"
        );
        let error = redis_cli(&service, version, "GET x");
        assert_eq!(
            error,
            "(error) ERR unknown command 'GET', with args beginning with: 'x' \n"
        );
    }
    assert!(redis_cli(&service, "-3", "HELLO 3").contains("\"proto\" => (integer) 3"));
    assert!(redis_cli(&service, "-3", "COMMAND DOCS fg.check").contains("\"field-value\""));
}

#[test]
fn redis_cli_runs_a_transaction() {
    let (service, _cli) = start(TWO_A_SECOND);
    let port = service.address("resp").port().to_string();
    let script = "printf 'MULTI\\nCL.THROTTLE k 9 1 100000\\nEXEC\\nMULTI\\nCL.THROTTLE k 9 1 100000\\nDISCARD\\n\
                  CL.THROTTLE k 9 1 100000 0\\n' | redis-cli -p \"$0\"";
    let printed = output(Command::new("sh").args(["-c", script, &port]));
    // A busy machine may take some seconds of it.
    let printed = printed.lines().map(|line| match line.parse::<u32>() {
        Ok(99_900..100_000) => "100000",
        _ => line,
    });
    let expected = "OK QUEUED 0 10 9 -1 100000 OK QUEUED OK 0 10 9 -1 100000";
    assert_eq!(printed.collect::<Vec<_>>().join(" "), expected);
}

#[test]
fn redis_py_works_with_both_protocol_versions() {
    let (service, _cli) = start(TWO_A_SECOND);
    let port = service.address("resp").port().to_string();
    let script = project_file("crates/fluxgate/tests/it/service/resp/redis_py.py");
    let printed = output(Command::new(python()).arg(script).arg(port));
    assert_eq!(printed, "ok\n");
}
