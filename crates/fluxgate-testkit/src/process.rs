//! Child processes that do not outlive the test.

use std::process::{Child, ChildStderr, Command, ExitStatus};
use std::sync::mpsc::{self, Sender};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

use crate::path;

/// A process that can be ended and started anew, and is ended when dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Mutex<Child>,
}

impl Process {
    /// Starts what `command` makes.
    pub(crate) fn start(command: Command) -> Self {
        Self {
            child: Mutex::new(spawn(command)),
        }
    }

    /// Starts it anew, in place of the old one, which must have ended.
    pub(crate) fn start_again(&self, command: Command) {
        let mut child = self.child();
        *child = spawn(command);
    }

    /// What it writes to standard error, if that was piped; once.
    pub(crate) fn take_stderr(&self) -> Option<ChildStderr> {
        self.child().stderr.take()
    }

    pub(crate) fn id(&self) -> u32 {
        self.child().id()
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&self) -> Option<ExitStatus> {
        self.child().try_wait().expect("look after a child process")
    }

    /// SIGKILL, and wait until it has gone. Nothing if it has ended already.
    pub(crate) fn kill(&self) {
        let mut child = self.child();
        child.kill().expect("kill a child process");
        child.wait().expect("wait for a killed process");
    }

    /// Sends a signal by its short name, as `STOP`.
    pub(crate) fn signal(&self, name: &str) {
        // The child is locked so that nobody reaps it meanwhile: its number is
        // its own until then.
        let child = self.child();
        // `kill` is built into every shell; the program may not be installed.
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
        // Works on a stopped process too. If it does not, there is nobody to
        // tell: a panic here would hide the one that may be under way.
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// `program` as a command that the kernel kills when this process dies, if
/// `setpriv` is there to ask it to.
pub(crate) fn bound_to_us(program: &std::path::Path) -> Command {
    let Some(setpriv) = path::find("setpriv") else {
        return Command::new(program);
    };
    let mut command = Command::new(setpriv);
    command.args(["--pdeathsig", "KILL"]).arg(program);
    command
}

type Order = (Command, Sender<std::io::Result<Child>>);

/// Starts a child from a thread that lives as long as this process: the kernel
/// watches the thread that started a child, not its process, and the thread of
/// a test may end before a server that several tests share.
fn spawn(command: Command) -> Child {
    static SPAWNER: OnceLock<Sender<Order>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (orders, inbox) = mpsc::channel::<Order>();
        thread::spawn(move || {
            for (mut command, reply) in inbox {
                // The one who asked waits for it.
                let _ = reply.send(command.spawn());
            }
        });
        orders
    });
    let what = format!("{command:?}");
    let (reply, answer) = mpsc::channel();
    spawner
        .send((command, reply))
        .expect("the spawner lives as long as the process");
    let child = answer.recv().expect("the spawner answers each order");
    child.unwrap_or_else(|error| panic!("start {what}: {error}"))
}
