//! Any program that runs for as long as a test needs it.

use std::io::{BufRead, BufReader};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use crate::process::{Process, bound_to_us};
use crate::wait::wait_for;

/// A program that is killed when dropped. What it writes to standard error is
/// kept.
#[derive(Debug)]
pub struct Program {
    process: Process,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Program {
    /// Starts a program with what `configure` adds: arguments, environment,
    /// directory.
    pub fn start(
        program: impl AsRef<std::path::Path>,
        configure: impl FnOnce(&mut Command),
    ) -> Self {
        let mut command = bound_to_us(program.as_ref());
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        configure(&mut command);
        let process = Process::start(command);
        let lines = Arc::new(Mutex::new(Vec::new()));
        if let Some(stderr) = process.take_stderr() {
            let lines = Arc::clone(&lines);
            thread::spawn(move || {
                let mut stderr = BufReader::new(stderr);
                let mut line = Vec::new();
                while let Ok(1..) = stderr.read_until(b'\n', &mut line) {
                    let text = String::from_utf8_lossy(&line).trim_end().to_owned();
                    lines
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push(text);
                    line.clear();
                }
            });
        }
        Self { process, lines }
    }

    /// What it wrote to standard error so far.
    pub fn lines(&self) -> Vec<String> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.clone()
    }

    /// Waits for a line on standard error of which something can be made.
    ///
    /// # Panics
    /// If the program ends, or says nothing of the kind in time.
    #[track_caller]
    pub fn wait_for_line<T>(&self, what: &str, make: impl Fn(&str) -> Option<T>) -> T {
        wait_for(what, || {
            let found = self.lines().iter().find_map(|line| make(line));
            if found.is_none()
                && let Some(status) = self.ended()
            {
                panic!("{what}: it ended with {status}: {:#?}", self.lines());
            }
            found
        })
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// How it ended, if it has.
    pub fn ended(&self) -> Option<ExitStatus> {
        self.process.ended()
    }

    /// Waits until it has ended.
    #[track_caller]
    pub fn wait(&self) -> ExitStatus {
        wait_for("the end of a program", || self.ended())
    }

    /// Sends a signal by its short name, as `TERM`.
    pub fn signal(&self, name: &str) {
        self.process.signal(name);
    }

    /// SIGKILL, and wait until it has gone.
    pub fn kill(&self) {
        self.process.kill();
    }
}
