//! Follows each document from top to bottom in one directory: writes its files, runs its
//! commands and compares their output.

use std::path::Path;
use std::process::Command;
use std::thread;

use fluxgate_testkit::ports::{self, Port};
use fluxgate_testkit::{Http, Program, RedisServer, wait_until};

use super::{Block, documents, is_not_run};
use crate::support::Dir;

/// The ports in the documents, except that of Redis.
const PORTS: [u16; 6] = [8080, 8081, 8082, 8083, 8091, 9000];
const REDIS: u16 = 6379;

#[test]
fn the_commands_in_the_documents_print_what_is_shown() {
    let mut documents = documents();
    documents.retain(|it| {
        Block::all_of(it)
            .iter()
            .any(|block| block.kind == "console")
    });
    assert!(documents.contains(&"README.md".to_owned()));
    thread::scope(|scope| {
        let readers = documents.iter().map(|it| scope.spawn(move || follow(it)));
        let readers: Vec<_> = readers.collect();
        for (reader, document) in readers.into_iter().zip(&documents) {
            assert!(reader.join().is_ok(), "a command in {document} failed");
        }
    });
}

fn follow(document: &str) {
    let mut session = Session::new();
    for block in Block::all_of(document) {
        match &block.file {
            Some(file) => session.save(file, &block.text),
            None if block.kind == "console" => session.type_in(&block),
            None => {}
        }
    }
}

/// A directory and the services that run in it.
struct Session {
    dir: Dir,
    ports: Vec<(u16, Port)>,
    redis: RedisServer,
    services: Vec<Program>,
}

impl Session {
    fn new() -> Self {
        Self {
            dir: Dir::new(),
            ports: PORTS.map(|number| (number, ports::free())).into(),
            redis: RedisServer::start(),
            services: Vec::new(),
        }
    }

    /// Returns the documented ports and their replacements.
    fn numbers(&self) -> Vec<(String, String)> {
        let ports = self.ports.iter();
        let ports = ports.map(|(number, port)| (*number, port.number()));
        let ports = ports.chain([(REDIS, self.redis.addr().port())]);
        ports
            .map(|(number, port)| (number.to_string(), port.to_string()))
            .collect()
    }

    fn with_free_ports(&self, text: &str) -> String {
        put(text, &self.numbers())
    }

    fn with_documented_ports(&self, text: &str) -> String {
        let numbers = self.numbers().into_iter();
        put(
            text,
            &numbers
                .map(|(number, port)| (port, number))
                .collect::<Vec<_>>(),
        )
    }

    fn save(&self, file: &str, text: &str) {
        let path = self.dir.path(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        self.dir.write(file, self.with_free_ports(text));
    }

    /// Runs the commands of a block. Starting a service stops those of earlier blocks.
    fn type_in(&mut self, block: &Block) {
        let mut earlier = Some(std::mem::take(&mut self.services));
        for step in block.commands() {
            if step.command == "redis-server" && !self.redis.is_running() {
                self.redis.restart();
            }
            if is_not_run(&step.command) {
                continue;
            }
            let command = match step.command.strip_prefix("cargo run --release") {
                Some("") => "fluxgate run".to_owned(),
                Some(rest) => rest.replacen(" --", "fluxgate", 1),
                None => step.command,
            };
            if let Some(arguments) = command.strip_prefix("fluxgate run") {
                drop(earlier.take());
                self.start(arguments);
                continue;
            }
            // A command that depends on the clock may fail if the machine stalls.
            let tries = if command.contains("$(date ") { 3 } else { 1 };
            let mut printed = String::new();
            let is_as_shown = (0..tries).any(|_| {
                printed = self.run(block, &command);
                step.shown.is_empty() || is_alike(&step.shown, &printed)
            });
            let shown = step.shown.join("\n");
            assert!(
                is_as_shown,
                "{block}: {command}\nshould print\n{shown}\nbut prints\n{printed}"
            );
        }
        // Services that still run serve the next block as well.
        self.services.extend(earlier.into_iter().flatten());
    }

    /// Starts the service, or the demo without arguments, and waits until it is ready.
    fn start(&mut self, arguments: &str) {
        let arguments = self.with_free_ports(arguments);
        // The default of 50 ms is not enough on a busy machine.
        let uses_redis = arguments
            .split_whitespace()
            .filter(|word| word.ends_with(".yaml"))
            .any(|file| self.dir.read(file).contains("redis:"));
        let program = Program::start(env!("CARGO_BIN_EXE_fluxgate"), |command| {
            command.current_dir(self.dir.path("")).arg("run");
            command.args(arguments.split_whitespace());
            if uses_redis {
                command.env("FLUXGATE__STORE__REDIS__DEADLINE", "10s");
            }
            if arguments.is_empty() {
                let listeners = ["GATEWAY", "API", "GRPC", "RESP"];
                for (listener, (_, port)) in listeners.iter().zip(&self.ports) {
                    let address = port.addr().to_string();
                    command.env(format!("FLUXGATE__LISTEN__{listener}"), address);
                }
            }
        });
        let api = program.wait_for_line("where the API listens", |line| {
            let is_api = line.contains("listening") && line.contains("api");
            let (_, rest) = line.split_once("127.0.0.1:").filter(|_| is_api)?;
            let digits = rest.split(|it: char| !it.is_ascii_digit()).next()?;
            format!("127.0.0.1:{digits}").parse().ok()
        });
        wait_until("the service is ready", || {
            Http::new(api).get("/readyz").status == 200
        });
        self.services.push(program);
    }

    /// Returns the output of a command, which must succeed.
    fn run(&self, block: &Block, command: &str) -> String {
        // Print as in a terminal.
        let typed = command.replace("redis-cli ", "redis-cli --no-raw ");
        // What takes a moment takes longer on a busy machine.
        let typed = typed.replace("; sleep 1", "; sleep 3");
        let path = std::env::var("PATH").unwrap();
        let binary = Path::new(env!("CARGO_BIN_EXE_fluxgate")).parent().unwrap();
        let output = Command::new("bash")
            .args(["-c", &self.with_free_ports(&typed)])
            .env("PATH", format!("{}:{path}", binary.display()))
            .current_dir(self.dir.path(""))
            .output()
            .unwrap();
        assert!(output.status.success(), "{block}: {command}: {output:?}");
        let printed = String::from_utf8(output.stdout).unwrap();
        assert!(!printed.starts_with("(error)"), "{block}: {printed}");
        self.with_documented_ports(&printed)
    }
}

/// Replaces whole numbers in a text.
fn put(text: &str, numbers: &[(String, String)]) -> String {
    let is_end = |(index, it): &(usize, char)| {
        let next = text[index + it.len_utf8()..].chars().next();
        next.is_none_or(|next| next.is_ascii_digit() != it.is_ascii_digit())
    };
    let ends = text.char_indices().filter(is_end);
    let mut begin = 0;
    let mut changed = String::new();
    for (index, last) in ends {
        let end = index + last.len_utf8();
        let piece = &text[begin..end];
        let new = numbers.iter().find(|(old, _)| old == piece);
        changed += new.map_or(piece, |(_, new)| new);
        begin = end;
    }
    changed
}

/// Returns whether the output is as shown, where `…` matches any text.
fn is_alike(shown: &[String], printed: &str) -> bool {
    let shown: Vec<_> = shown.iter().map(|line| line.trim()).collect();
    let printed: Vec<_> = printed.lines().map(str::trim).collect();
    let alike = |(shown, printed): (&&str, &&str)| {
        let (begin, rest) = shown.split_once('…').unwrap_or((shown, ""));
        let Some(mut printed) = printed.strip_prefix(begin) else {
            return false;
        };
        if !shown.contains('…') {
            return printed.is_empty();
        }
        let (inner, end) = rest.rsplit_once('…').unwrap_or(("", rest));
        for piece in inner.split('…') {
            let Some((_, after)) = printed.split_once(piece) else {
                return false;
            };
            printed = after;
        }
        printed.ends_with(end)
    };
    shown.len() == printed.len() && shown.iter().zip(&printed).all(alike)
}
