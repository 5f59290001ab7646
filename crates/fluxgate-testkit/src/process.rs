//! Child processes that do not outlive the test.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus};
use std::sync::mpsc::{self, Sender};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

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
