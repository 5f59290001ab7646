//! A program that runs for the duration of a test.

use std::env;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};

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

/// A process that can be killed and restarted, and is killed when dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Mutex<Child>,
}

impl Process {
    pub(crate) fn start(command: Command) -> Self {
        Self {
            child: Mutex::new(spawn(command)),
        }
    }

    /// Replaces the process, which must have exited, by a new one.
    pub(crate) fn start_again(&self, command: Command) {
        let mut child = self.child();
        *child = spawn(command);
    }

    /// Takes standard error, if it is piped and not taken yet.
    pub(crate) fn take_stderr(&self) -> Option<ChildStderr> {
        self.child().stderr.take()
    }

    pub(crate) fn id(&self) -> u32 {
        self.child().id()
    }

    /// Returns the exit status if the process has exited.
    pub(crate) fn ended(&self) -> Option<ExitStatus> {
        self.child().try_wait().expect("check a child process")
    }

    /// Kills the process and waits for its exit. Does nothing if it has already exited.
    pub(crate) fn kill(&self) {
        let mut child = self.child();
        child.kill().expect("kill a child process");
        child.wait().expect("wait for a killed process");
    }

    /// Sends a signal by its short name, such as `STOP`.
    pub(crate) fn signal(&self, name: &str) {
        // The lock keeps other threads from reaping the child, so its id is not reused.
        let child = self.child();
        // The shell's built-in, because the program `kill` may not be installed.
        let status = Command::new("sh")
            .args(["-c", "kill -s \"$1\" \"$2\"", "sh", name])
            .arg(child.id().to_string())
            .status()
            .expect("run sh to send a signal");
        assert!(status.success(), "signal {name} to {}", child.id());
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let mut child = self.child();
        // Kills a stopped process too. Errors are ignored, because a panic here could hide
        // another one.
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Returns a command that the kernel kills when this process dies, if `setpriv` is
/// installed.
pub(crate) fn killed_with_parent(program: &Path) -> Command {
    let Some(setpriv) = find_program("setpriv") else {
        return Command::new(program);
    };
    let mut command = Command::new(setpriv);
    command.args(["--pdeathsig", "KILL"]).arg(program);
    command
}

/// Finds a program in the search path.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .map(|directory: PathBuf| directory.join(name))
        .find(|file: &PathBuf| Path::is_file(file))
}

type SpawnRequest = (Command, Sender<std::io::Result<Child>>);

/// Starts a child from a thread that lives as long as this process. The kernel kills a child
/// when the thread that started it ends, and the thread of a test may end before a server
/// that several tests share.
fn spawn(command: Command) -> Child {
    static SPAWNER: OnceLock<Sender<SpawnRequest>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (requests, receiver) = mpsc::channel::<SpawnRequest>();
        thread::spawn(move || {
            for (mut command, result) in receiver {
                // The caller waits for the result.
                let _ = result.send(command.spawn());
            }
        });
        requests
    });
    let what = format!("{command:?}");
    let (result, receiver) = mpsc::channel();
    spawner
        .send((command, result))
        .expect("the spawner lives as long as the process");
    let child = receiver.recv().expect("the spawner sends a result");
    child.unwrap_or_else(|error| panic!("start {what}: {error}"))
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
