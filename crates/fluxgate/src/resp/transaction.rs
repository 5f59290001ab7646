//! `MULTI`, `EXEC` and `DISCARD`: queued commands.
//!
//! Only `EXEC` charges anything. It runs the commands in order; commands of other
//! connections may run in between, and a command that fails does not stop the others.

use super::command::{Command, CommandSpec};
use super::reply::CommandError;
use super::request::{MAX_ARGUMENTS, MAX_REQUEST_BYTES};

/// How many commands may be queued.
const MAX_COMMANDS: usize = MAX_ARGUMENTS;
/// How many bytes the queued commands may have in total.
const MAX_BYTES: usize = MAX_REQUEST_BYTES;

/// The commands since `MULTI`.
#[derive(Debug, Default)]
pub(super) struct Transaction {
    queued: QueuedCommands,
    /// Whether a command was rejected, so that `EXEC` runs none.
    is_aborted: bool,
}

/// Commands that wait for `EXEC`.
#[derive(Debug, Default)]
pub(super) struct QueuedCommands {
    /// The requests as they were received.
    pub(super) bytes: Vec<u8>,
    pub(super) count: usize,
}

impl Transaction {
    /// Returns whether a command runs at once between `MULTI` and `EXEC`.
    pub(super) fn passes(command: Command) -> bool {
        matches!(
            command,
            Command::Multi
                | Command::Exec
                | Command::Discard
                | Command::Watch
                | Command::Reset
                | Command::Quit
        )
    }

    /// Queues a command. If that fails, `EXEC` runs none.
    pub(super) fn queue(
        &mut self,
        spec: &CommandSpec,
        arguments: usize,
        bytes: &[u8],
    ) -> Result<(), CommandError> {
        let queued = self.try_queue(spec, arguments, bytes);
        self.is_aborted |= queued.is_err();
        queued
    }

    fn try_queue(
        &mut self,
        spec: &CommandSpec,
        arguments: usize,
        bytes: &[u8],
    ) -> Result<(), CommandError> {
        if !spec.accepts(arguments) {
            return Err(CommandError::arguments(spec.name));
        }
        if !matches!(
            spec.command,
            Command::Throttle | Command::Check | Command::Ping | Command::Echo | Command::Unwatch
        ) {
            let name = spec.name;
            let refused = format!("ERR Command '{name}' not allowed inside a transaction");
            return Err(CommandError::new(refused));
        }
        let queued = &mut self.queued;
        if self.is_aborted {
            // None of them will run.
            queued.bytes = Vec::new();
            return Ok(());
        }
        if queued.count == MAX_COMMANDS || queued.bytes.len() + bytes.len() > MAX_BYTES {
            return Err(CommandError::new(format!(
                "ERR a transaction has at most {MAX_COMMANDS} commands and {MAX_BYTES} bytes"
            )));
        }
        queued.bytes.extend_from_slice(bytes);
        queued.count += 1;
        Ok(())
    }

    /// Makes `EXEC` run none of the commands.
    pub(super) fn abort(&mut self) {
        self.is_aborted = true;
    }

    /// Returns the commands to run.
    pub(super) fn finish(self) -> Result<QueuedCommands, CommandError> {
        if self.is_aborted {
            Err(CommandError::new(
                "EXECABORT Transaction discarded because of previous errors.",
            ))
        } else {
            Ok(self.queued)
        }
    }
}
