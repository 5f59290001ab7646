//! A program that runs for the duration of a test.

use std::io::{BufRead, BufReader};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use crate::process::{Process, killed_with_parent};
use crate::wait::{wait_for, wait_until};

/// A program that is killed when dropped. Its standard error is collected.
#[derive(Debug)]
pub struct Program {
    process: Process,
    lines: Arc<Mutex<Vec<String>>>,
    /// Reads standard error to its end; `None` if that is not piped.
    reader: Option<JoinHandle<()>>,
}

impl Program {
    /// Starts a program. `configure` adds arguments, environment and directory.
    pub fn start(
        program: impl AsRef<std::path::Path>,
        configure: impl FnOnce(&mut Command),
    ) -> Self {
        let mut command = killed_with_parent(program.as_ref());
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        configure(&mut command);
        let process = Process::start(command);
        let lines = Arc::new(Mutex::new(Vec::new()));
        let reader = process.take_stderr().map(|stderr| {
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
            })
        });
        Self {
            process,
            lines,
            reader,
        }
    }

    /// Returns the lines that the program has written to standard error.
    pub fn lines(&self) -> Vec<String> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.clone()
    }

    /// Waits until `parse` accepts a line on standard error.
    ///
    /// # Panics
    /// If the program ends before that, or on timeout.
    #[track_caller]
    pub fn wait_for_line<T>(&self, what: &str, parse: impl Fn(&str) -> Option<T>) -> T {
        wait_for(what, || {
            // In this order: the program may write the line and end at once.
            let ended = self.ended().filter(|_| self.is_read());
            let found = self.lines().iter().find_map(|line| parse(line));
            if found.is_none()
                && let Some(status) = ended
            {
                panic!(
                    "{what}: the program ended with {status}: {:#?}",
                    self.lines()
                );
            }
            found
        })
    }

    /// Returns the process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Returns the exit status if the program has exited.
    pub fn ended(&self) -> Option<ExitStatus> {
        self.process.ended()
    }

    /// Waits for the exit of the program, and until all that it wrote to standard error has
    /// been read.
    #[track_caller]
    pub fn wait(&self) -> ExitStatus {
        let status = wait_for("the end of a program", || self.ended());
        wait_until("the rest of its standard error", || self.is_read());
        status
    }

    /// Returns whether standard error has been read to its end.
    fn is_read(&self) -> bool {
        self.reader.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Sends a signal by its short name, such as `TERM`.
    pub fn signal(&self, name: &str) {
        self.process.signal(name);
    }

    /// Kills the program and waits for its exit.
    pub fn kill(&self) {
        self.process.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_of_a_program_is_found() {
        for _ in 0..50 {
            let program = Program::start("/bin/sh", |command| {
                command.args(["-c", "echo here >&2"]);
            });
            program.wait_for_line("the line", |line| (line == "here").then_some(()));
            assert_eq!(program.wait().code(), Some(0));
        }
    }
}
