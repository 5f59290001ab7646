//! `MULTI`, `EXEC` and `DISCARD`: commands that wait for others.
//!
//! Nothing is charged before `EXEC`. It runs the commands in order; other connections
//! may come in between, and a command that fails keeps no other from running.

use super::command::{Command, Description};
use super::request::{LONGEST_REQUEST, MOST_ARGUMENTS};
use super::session::Refused;

/// How many commands may wait.
const MOST_COMMANDS: usize = MOST_ARGUMENTS;
/// How many bytes they may have in all.
const MAX_BYTES: usize = LONGEST_REQUEST;

/// The commands since `MULTI`.
#[derive(Debug, Default)]
pub(super) struct Transaction {
    queued: Queued,
    /// Whether a command was refused: then none is run.
    is_broken: bool,
}

/// Commands that wait.
#[derive(Debug, Default)]
pub(super) struct Queued {
    /// As they came.
    pub(super) bytes: Vec<u8>,
    pub(super) count: usize,
}

impl Transaction {
    /// Whether a command is run at once between `MULTI` and `EXEC`.
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

    /// Adds a command of these bytes. If that cannot be done, `EXEC` will run nothing.
    pub(super) fn queue(
        &mut self,
        known: &Description,
        arguments: usize,
        bytes: &[u8],
    ) -> Result<(), Refused> {
        let queued = self.try_queue(known, arguments, bytes);
        self.is_broken |= queued.is_err();
        queued
    }

    fn try_queue(
        &mut self,
        known: &Description,
        arguments: usize,
        bytes: &[u8],
    ) -> Result<(), Refused> {
        if !known.accepts(arguments) {
            return Err(Refused::arguments(known.name));
        }
        if !matches!(
            known.command,
            Command::Throttle | Command::Check | Command::Ping | Command::Echo | Command::Unwatch
        ) {
            let name = known.name;
            let refused = format!("ERR Command '{name}' not allowed inside a transaction");
            return Err(Refused::new(refused));
        }
        let queued = &mut self.queued;
        if self.is_broken {
            // None of them is run, so none need be kept.
            queued.bytes = Vec::new();
            return Ok(());
        }
        if queued.count == MOST_COMMANDS || queued.bytes.len() + bytes.len() > MAX_BYTES {
            return Err(Refused::new(format!(
                "ERR a transaction has at most {MOST_COMMANDS} commands and {MAX_BYTES} bytes"
            )));
        }
        queued.bytes.extend_from_slice(bytes);
        queued.count += 1;
        Ok(())
    }

    /// A command that does not exist cannot be run.
    pub(super) fn break_off(&mut self) {
        self.is_broken = true;
    }

    /// Returns the commands to run.
    pub(super) fn finish(self) -> Result<Queued, Refused> {
        match self.is_broken {
            true => Err(Refused::new(
                "EXECABORT Transaction discarded because of previous errors.",
            )),
            false => Ok(self.queued),
        }
    }
}
