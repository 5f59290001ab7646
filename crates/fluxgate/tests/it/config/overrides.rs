//! Overrides by the environment and by `--set`.

use crate::support::{Dir, Run};

const CONFIG: &str = "\
store: memory
listen: { api: 127.0.0.1:1 }
filters: { main: { max_concurrent_waits: 7 } }
gateway: { routes: [ { id: a, upstreams: [echo] }, { id: b, upstreams: [echo] } ] }
";

fn show(environment: &[(&str, &str)], sets: &[&str]) -> Run {
    let dir = Dir::new();
    dir.write("fluxgate.yaml", CONFIG);
    let mut arguments = vec!["config", "show", "--config", "fluxgate.yaml"];
    for set in sets {
        arguments.extend(["--set", set]);
    }
    let mut command = dir.command(&arguments);
    command.envs(environment.iter().copied());
    command.output().unwrap().into()
}

#[track_caller]
fn has_line(run: &Run, line: &str) {
    assert!(
        run.stdout.lines().any(|known| known.trim() == line),
        "{line}\n{run:?}"
    );
}

#[test]
fn the_environment_overrides_the_file_and_flags_override_both() {
    let url = ("FLUXGATE__STORE__REDIS__URL", "redis://one:1");
    let deadline = ("FLUXGATE__STORE__REDIS__DEADLINE", "20ms");
    let other = ("FLUXGATE_STORE__REDIS__DEADLINE", "9ms");
    let run = show(&[url, deadline, other], &[]);
    has_line(
        &run,
        "url: \"redis://one:1\" # environment FLUXGATE__STORE__REDIS__URL",
    );
    has_line(
        &run,
        "deadline: 20ms # environment FLUXGATE__STORE__REDIS__DEADLINE",
    );
    has_line(&run, "near_cache: true");
    let run = show(
        &[url, deadline],
        &[
            "store.redis.url=redis://two:2",
            "listen.api=[]",
            "listen.api=localhost:2",
        ],
    );
    has_line(&run, "url: \"redis://two:2\" # --set store.redis.url");
    has_line(
        &run,
        "deadline: 20ms # environment FLUXGATE__STORE__REDIS__DEADLINE",
    );
    has_line(&run, "api: \"127.0.0.1:2\" # --set listen.api");
    let api = ("FLUXGATE__LISTEN__API", ":2");
    let run = show(&[api], &["listen.resp=:3"]);
    has_line(&run, "api: \"[::]:2\" # environment FLUXGATE__LISTEN__API");
    has_line(&run, "resp: \"[::]:3\" # --set listen.resp");
}

#[test]
fn sections_list_items_and_null_can_be_set() {
    let run = show(
        &[
            ("FLUXGATE__FILTERS__MAIN__MAX_CONCURRENT_WAITS", "null"),
            (
                "FLUXGATE__GATEWAY__ROUTES__1__UPSTREAMS",
                "['http://b:1', 'http://c:2']",
            ),
            ("FLUXGATE__GATEWAY__ROUTES__1__UPSTREAMS__0", "http://d:3"),
        ],
        &[
            "telemetry={ log: text, level: warn }",
            "gateway.routes.0={ id: z, upstreams: [echo] }",
        ],
    );
    has_line(
        &run,
        "max_concurrent_waits: 100 # environment FLUXGATE__FILTERS__MAIN__MAX_CONCURRENT_WAITS",
    );
    has_line(
        &run,
        "upstreams: [\"http://d:3\", \"http://c:2\"] # environment FLUXGATE__GATEWAY__ROUTES__1__UPSTREAMS",
    );
    has_line(&run, "telemetry: # --set telemetry");
    has_line(&run, "level: warn");
    has_line(&run, "# --set gateway.routes.0");
    has_line(&run, "- id: z");
}

#[test]
fn faults_name_the_variable_or_the_flag() {
    let run = show(
        &[
            ("FLUXGATE__STORE__REDIS__URL", "http://u:hush@a"),
            ("FLUXGATE__COLOUR", "red"),
            ("FLUXGATE__LISTEN__GRPC", "[::1]:2"),
        ],
        &[
            "listen.api=nowhere",
            "admin.open.wide=true",
            "telemetry",
            "gateway.routes.9.id=x",
        ],
    );
    assert_eq!((run.code, &*run.stdout), (Some(78), ""));
    assert!(!run.stderr.contains("hush"));
    let expected = [
        "environment FLUXGATE__COLOUR: unknown field `colour` in a config; allowed are ",
        "environment FLUXGATE__LISTEN__GRPC: not valid YAML: ",
        "environment FLUXGATE__STORE__REDIS__URL: `url` must be redis://HOST:PORT",
        "--set admin.open.wide: `open` must be true or false",
        "--set gateway.routes.9.id: `9` is not an index of the list, which has 2 items",
        "--set listen.api: `api` must be an address and a port",
        "--set telemetry: must be PATH=VALUE",
    ];
    let lines: Vec<_> = run.stderr.lines().collect();
    assert_eq!(lines.len(), expected.len(), "{lines:#?}");
    for (line, beginning) in lines.iter().zip(expected) {
        assert!(line.starts_with(beginning), "{line}\n{beginning}");
    }
}

#[test]
fn a_fault_caused_by_another_override_is_reported_at_its_own_origin() {
    let run = show(&[], &["admin.open=true", "listen.api=0.0.0.0:1"]);
    let fault = "--set admin.open: `open: true` is allowed only where the API listens on loopback; `listen.api` is 0.0.0.0:1\n";
    assert_eq!((run.code, &*run.stderr), (Some(78), fault));
}

/// In YAML, a carriage return alone ends a line.
#[test]
fn a_fault_of_the_file_is_not_blamed_on_an_override() {
    let dir = Dir::new();
    dir.write("fluxgate.yaml", "listen: {}\r\rx: y");
    let arguments = ["config", "show", "--config", "fluxgate.yaml"];
    let run = dir.run(&[&arguments[..], &["--set", "listen.api=127.0.0.1:1"]].concat());
    assert_eq!(run.code, Some(78));
    let fault = "fluxgate.yaml:3:1: unknown field `x`";
    assert!(run.stderr.starts_with(fault), "{}", run.stderr);
}

#[test]
fn without_a_file_overrides_apply_to_the_demo() {
    let dir = Dir::new();
    let run = dir.run(&["config", "show", "--set", "listen.api=127.0.0.1:9"]);
    has_line(&run, "api: \"127.0.0.1:9\" # --set listen.api");
    has_line(&run, "upstreams: [echo]");
    has_line(&run, "- id: leaky");
}

#[test]
fn an_unreadable_file_exits_with_66() {
    let run = Dir::new().run(&["config", "show", "--config", "nowhere.yaml"]);
    let message = "nowhere.yaml: No such file or directory (os error 2)\n";
    assert_eq!((run.code, &*run.stderr), (Some(66), message));
}

#[test]
fn validate_ignores_the_environment() {
    let dir = Dir::new();
    dir.write("fluxgate.yaml", CONFIG);
    let mut command = dir.command(&["validate", "fluxgate.yaml"]);
    command.env("FLUXGATE__COLOUR", "red");
    assert_eq!(command.output().unwrap().status.code(), Some(0));
}
