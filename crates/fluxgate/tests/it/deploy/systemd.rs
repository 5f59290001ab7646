//! Checks the unit with `systemd-analyze`, and that the program respects its restrictions.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use fluxgate_testkit::{Http, Program, RedisServer, wait_for, wait_until};

use super::{assert_valid, deployed, output_of};
use crate::docs;
use crate::support::{Dir, project_file};

const UNIT: &str = "systemd/fluxgate.service";
const SECRETS: &str = "systemd/fluxgate.service.d/secrets.conf";

fn read(path: &str) -> String {
    fs::read_to_string(deployed(path)).unwrap()
}

/// Returns the values of a setting of the unit.
fn setting(name: &str) -> Vec<String> {
    let unit = read(UNIT);
    let lines = unit
        .lines()
        .filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    lines.map(str::to_owned).collect()
}

/// Writes the unit and its drop-in, with programs that exist.
fn install(dir: &Dir) -> PathBuf {
    let program = env!("CARGO_BIN_EXE_fluxgate");
    let unit = read(UNIT);
    assert!(unit.contains("ExecStart=/usr/local/bin/fluxgate run "));
    let unit = unit.replace("/usr/local/bin/fluxgate", program);
    dir.write(
        "fluxgate.service",
        unit.replace("ExecReload=/bin/kill", "ExecReload=/bin/true"),
    );
    fs::create_dir(dir.path("fluxgate.service.d")).unwrap();
    dir.write("fluxgate.service.d/secrets.conf", read(SECRETS));
    dir.path("fluxgate.service")
}

#[test]
fn systemd_accepts_the_unit_and_rates_it_as_safe() {
    let dir = Dir::new();
    let unit = install(&dir);
    let mut verify = Command::new("systemd-analyze");
    let verify = output_of(verify.args(["verify", "--man=no"]).arg(&unit));
    assert_eq!(verify, "");
    // In tenths: 0 is the safest, 100 the least safe.
    let mut security = Command::new("systemd-analyze");
    security.args(["security", "--offline=true", "--threshold=15", "--no-pager"]);
    output_of(security.arg(&unit));
}

/// Runs the commands that do not need systemd in a temporary directory.
#[test]
fn the_commands_of_the_guide_install_the_files_of_the_unit() {
    let mut blocks = docs::blocks("sh systemd");
    let block = blocks.remove(0);
    assert!(blocks.is_empty());
    let dir = Dir::new();
    for folder in ["target/dist", "usr/local/bin", "etc/systemd/system"] {
        fs::create_dir_all(dir.path(folder)).unwrap();
    }
    symlink(project_file("deploy"), dir.path("deploy")).unwrap();
    let program = env!("CARGO_BIN_EXE_fluxgate");
    symlink(program, dir.path("target/dist/fluxgate")).unwrap();
    for step in block.runnable() {
        let command = step.command.replace(" /", " ./");
        output_of(
            Command::new("sh")
                .args(["-ec", &command])
                .current_dir(dir.path("")),
        );
    }
    let start = setting("ExecStart").remove(0);
    let files = start.split(' ').filter_map(|word| word.strip_prefix('/'));
    let rules = "etc/fluxgate/rules.d/api-limits.yaml";
    assert!(read("systemd/fluxgate.yaml").contains("/etc/fluxgate/rules.d"));
    let unit = "etc/systemd/system/fluxgate.service";
    for file in files.chain([rules, unit]) {
        assert!(dir.path(file).is_file(), "{file}");
    }
}

/// Returns the system calls of a group of systemd, including nested groups.
fn calls_of(group: &str) -> BTreeSet<String> {
    let mut analyze = Command::new("systemd-analyze");
    let text = output_of(analyze.args(["syscall-filter", "--no-pager", group]));
    let lines = text.lines().skip(1).map(str::trim);
    let mut calls = BTreeSet::new();
    for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if line.starts_with('@') {
            calls.extend(calls_of(line));
        } else {
            calls.insert(line.to_owned());
        }
    }
    calls
}

/// Returns the system calls that the unit allows.
fn allowed_calls() -> BTreeSet<String> {
    let mut allowed = BTreeSet::new();
    for line in setting("SystemCallFilter") {
        match line.strip_prefix('~') {
            None => line
                .split(' ')
                .for_each(|group| allowed.extend(calls_of(group))),
            Some(line) => {
                let removed: BTreeSet<_> = line.split(' ').flat_map(calls_of).collect();
                allowed.retain(|call| !removed.contains(call));
            }
        }
    }
    assert!(allowed.contains("epoll_wait") && !allowed.contains("mount"));
    allowed
}

/// Runs the program under strace, and returns its system calls.
fn trace() -> Vec<String> {
    let redis = RedisServer::start();
    let (dir, trace) = (Dir::new(), Dir::new());
    fs::create_dir(dir.path("rules.d")).unwrap();
    dir.write(
        "rules.d/rules.yaml",
        read("systemd/rules.d/api-limits.yaml"),
    );
    dir.write("fluxgate.yaml", read("systemd/fluxgate.yaml"));
    // Outside the watched directory: otherwise each line would cause the next.
    let trace = trace.path("trace");
    let program = Program::start("strace", |command| {
        command.current_dir(dir.path(""));
        command.args(["-f", "-qq", "-s", "200", "-o"]).arg(&trace);
        // If strace ends, the program is killed.
        command.args(["setpriv", "--pdeathsig", "KILL"]);
        command.args([
            env!("CARGO_BIN_EXE_fluxgate"),
            "run",
            "--config",
            "fluxgate.yaml",
        ]);
        command.args([
            "--set",
            "rules_from.dir=rules.d",
            "--set",
            "store.redis.username=null",
        ]);
        let url = format!("store.redis.url='redis://localhost:{}'", redis.port());
        // A traced program is slow.
        command.args(["--set", &url, "--set", "store.redis.deadline=5s"]);
        for listener in ["api", "grpc", "resp"] {
            command.args(["--set", &format!("listen.{listener}='127.0.0.1:0'")]);
        }
    });
    let api = program.wait_for_line("the address of the API", |line| {
        let line: serde_json::Value = serde_json::from_str(line).ok()?;
        let address = (line["listener"] == "api").then(|| line["address"].as_str())??;
        address.parse().ok()
    });
    let mut http = Http::new(api);
    wait_until("the service is ready", || http.get("/readyz").status == 200);
    // A traced program may take too long to connect to Redis at first.
    wait_until("the store decides", || {
        let answer = http.post("/v1/check", r#"{"user":"ann","path":"/api/x"}"#);
        answer.body.contains(r#""outcome":"allowed""#)
    });
    assert_eq!(http.get("/metrics").status, 200);
    let start = format!("execve(\"{}\"", env!("CARGO_BIN_EXE_fluxgate"));
    let pid = wait_for("its process id", || {
        let trace = fs::read_to_string(&trace).ok()?;
        let line = trace.lines().find(|line| line.contains(&start))?;
        Some(line.split(' ').next()?.to_owned())
    });
    dir.write("rules.d/rules.yaml", "rule_sets: {}\n");
    for signal in ["HUP", "TERM"] {
        output_of(Command::new("sh").args(["-c", "kill -s $1 $2", "sh", signal, &pid]));
    }
    assert!(program.wait().success(), "{:#?}", program.lines());
    let trace = fs::read_to_string(&trace).unwrap();
    let lines = trace.lines().map(|line| {
        let call = line.split_once(' ').unwrap().1;
        call.trim_start().to_owned()
    });
    lines.skip_while(|line| !line.starts_with(&start)).collect()
}

#[test]
fn the_program_uses_nothing_that_the_unit_forbids() {
    let trace = trace();
    let allowed = allowed_calls();
    let families = setting("RestrictAddressFamilies").concat();
    assert_eq!(setting("MemoryDenyWriteExecute"), ["yes"]);
    let mut seen = BTreeSet::new();
    for line in &trace {
        let call = match line.strip_prefix("<... ") {
            Some(resumed) => resumed.split(' ').next(),
            None => line.split_once('(').map(|(call, _)| call),
        };
        // Signals and ends of threads are not calls. Neither is `???`: a thread that ended
        // with the process before its call reached the kernel.
        let Some(call) = call.filter(|_| !line.starts_with(['-', '+', '?'])) else {
            continue;
        };
        assert!(allowed.contains(call), "{line}");
        seen.insert(call.to_owned());
        let is_writable_code = line.contains("PROT_WRITE") && line.contains("PROT_EXEC");
        assert!(!is_writable_code, "writable and executable memory: {line}");
        if call == "socket" && line.starts_with(call) {
            let family = line.split(['(', ',']).nth(1).unwrap();
            assert!(families.split(' ').any(|known| known == family), "{line}");
        }
        if call.starts_with("open") {
            let writes = ["O_WRONLY", "O_RDWR", "O_CREAT"];
            let writes = writes.iter().any(|flag| line.contains(flag));
            assert!(!writes, "a file is written: {line}");
        }
    }
    for call in ["accept4", "connect", "inotify_add_watch", "exit_group"] {
        assert!(seen.contains(call), "{call} is not in {seen:?}");
    }
}

#[test]
fn config_rules_and_secrets_of_the_unit_are_valid() {
    assert_valid(&read("systemd/rules.d/api-limits.yaml"));
    let dir = Dir::new();
    dir.write("fluxgate.yaml", read("systemd/fluxgate.yaml"));
    let mut command = dir.command(&["config", "show", "--config", "fluxgate.yaml"]);
    let secrets = read(SECRETS);
    let mut names = Vec::new();
    for line in secrets.lines() {
        if let Some(credential) = line.strip_prefix("LoadCredential=") {
            names.push(credential.split_once(':').unwrap().0.to_owned());
        }
        if let Some((variable, value)) = line
            .strip_prefix("Environment=")
            .and_then(|line| line.split_once('='))
        {
            let name = value.strip_prefix("%d/").unwrap();
            assert!(names.iter().any(|known| known == name), "{name}");
            command.env(variable, value.replace("%d", "/run/credentials"));
        }
    }
    let shown = output_of(&mut command);
    assert_eq!(names.len(), 3);
    for name in names {
        assert!(
            shown.contains(&format!("/run/credentials/{name}")),
            "{shown}"
        );
    }
}
