//! The session of a client: parses requests and runs their commands.

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;

use std::fmt::Write as _;
use std::sync::Arc;

use super::check::{self, Check};
use super::client::Client;
use super::command::{Command, CommandSpec};
use super::reply::{CommandError, Replies, Version};
use super::request::{self, Arguments, ParsedRequest, RequestForm, parse_integer};
use super::throttle::{LimitCache, PendingDecisions, Throttle};
use super::transaction::{QueuedCommands, Transaction};
use super::{command_info, hold, info};
use crate::engine::Engine;

/// Replies of this length are sent before the next command runs.
const MAX_UNSENT: usize = 64 * 1024;

/// The next step of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextStep {
    /// Read until the input has this length.
    Read(usize),
    /// Send the replies and run the remaining commands.
    Send,
    /// Send the replies and close.
    End,
}

/// The state of one connection.
#[derive(Debug)]
pub(super) struct Session {
    engine: Arc<Engine>,
    client: Client,
    limits: LimitCache,
    /// The commands queued since `MULTI`.
    transaction: Option<Transaction>,
}

impl Session {
    pub(super) fn new(engine: Arc<Engine>, client: Client) -> Self {
        Self {
            engine,
            client,
            limits: LimitCache::default(),
            transaction: None,
        }
    }

    /// Answers all complete requests in `input` in order, and returns their length. With a
    /// store in memory, the future is always ready.
    pub(super) async fn answer(&mut self, input: &[u8], out: &mut Vec<u8>) -> (usize, NextStep) {
        let engine = Arc::clone(&self.engine);
        let at_once = engine.store().redis().is_none();
        let mut replies = Replies::new(out, self.client.version);
        let mut arguments = Arguments::new();
        let mut pending = PendingDecisions::default();
        let mut read = 0;
        let next = loop {
            if replies.len() >= MAX_UNSENT {
                break NextStep::Send;
            }
            let rest = &input[read..];
            if rest.is_empty() {
                break NextStep::Read(1);
            }
            let (form, request) = match request::parse(rest, &mut arguments) {
                Ok(ParsedRequest::Whole(form, length)) => {
                    read += length;
                    (form, &rest[..length])
                }
                Ok(ParsedRequest::Partial(needed)) => break NextStep::Read(needed),
                Err(error) => {
                    pending.finish(&mut replies).await;
                    replies.error(&format!("ERR Protocol error: {error}"));
                    break NextStep::End;
                }
            };
            let Some(name) = arguments.first() else {
                continue;
            };
            let spec = CommandSpec::find(name);
            if let Some(spec) = spec
                && spec.command == Command::Throttle
                && self.transaction.is_none()
                && let Ok(throttle) = Throttle::parse(&arguments, &mut self.limits)
            {
                if at_once {
                    throttle.decide(&engine).await.write(&mut replies);
                } else {
                    pending.push(throttle, &engine, &mut replies).await;
                }
                continue;
            }
            pending.finish(&mut replies).await;
            let answered = match spec {
                Some(spec) if self.waits(spec) => {
                    self.queue(spec, &arguments, request, &mut replies)
                }
                Some(spec) if spec.command == Command::Exec && arguments.len() == 1 => {
                    self.exec(&mut replies).await
                }
                Some(spec) => self.run(spec, &arguments, &mut replies).await,
                None => {
                    if let Some(transaction) = &mut self.transaction {
                        transaction.abort();
                    }
                    replies.error(&unknown_command(&arguments));
                    // An unknown inline command is likely another protocol.
                    if form == RequestForm::Inline {
                        break NextStep::End;
                    }
                    continue;
                }
            };
            if let Err(error) = answered {
                replies.error(error.text());
            } else if spec.is_some_and(|spec| spec.command == Command::Quit) {
                break NextStep::End;
            }
        };
        pending.finish(&mut replies).await;
        (read, next)
    }

    /// Returns whether a command waits for `EXEC`.
    fn waits(&self, spec: &CommandSpec) -> bool {
        self.transaction.is_some() && !Transaction::passes(spec.command)
    }

    /// Queues a command until `EXEC`.
    #[cold]
    fn queue(
        &mut self,
        spec: &CommandSpec,
        arguments: &[&[u8]],
        request: &[u8],
        replies: &mut Replies<'_>,
    ) -> Result<(), CommandError> {
        if let Some(transaction) = &mut self.transaction {
            transaction.queue(spec, arguments.len(), request)?;
            replies.simple("QUEUED");
        }
        Ok(())
    }

    /// Runs the queued commands.
    #[cold]
    async fn exec(&mut self, replies: &mut Replies<'_>) -> Result<(), CommandError> {
        let transaction = self
            .transaction
            .take()
            .ok_or_else(|| CommandError::new("ERR EXEC without MULTI"))?;
        let QueuedCommands { bytes, count } = transaction.finish()?;
        let engine = Arc::clone(&self.engine);
        replies.array(count);
        let mut pending = PendingDecisions::default();
        let mut arguments = Arguments::new();
        let mut rest = &bytes[..];
        // They were parsed when they were queued, so they parse again.
        while let Ok(ParsedRequest::Whole(_, length)) = request::parse(rest, &mut arguments)
            && let Some(spec) = arguments.first().and_then(|name| CommandSpec::find(name))
        {
            rest = &rest[length..];
            if spec.command == Command::Throttle
                && let Ok(throttle) = Throttle::parse(&arguments, &mut self.limits)
            {
                pending.push(throttle, &engine, replies).await;
                continue;
            }
            pending.finish(replies).await;
            if let Err(error) = self.run(spec, &arguments, replies).await {
                replies.error(error.text());
            }
        }
        pending.finish(replies).await;
        Ok(())
    }

    async fn run(
        &mut self,
        spec: &CommandSpec,
        arguments: &[&[u8]],
        replies: &mut Replies<'_>,
    ) -> Result<(), CommandError> {
        if !spec.accepts(arguments.len()) {
            return Err(CommandError::arguments(spec.name));
        }
        let too_many = || Err(CommandError::arguments(spec.name));
        let refuse = |error: &'static str| Err(CommandError::new(error));
        let arguments_after_name = &arguments[1..];
        match (spec.command, arguments_after_name) {
            (Command::Throttle, _) => {
                let throttle = Throttle::parse(arguments, &mut self.limits)?;
                throttle.decide(&self.engine).await.write(replies);
            }
            (Command::Check, _) => {
                let check = Check::parse(arguments)?;
                let decided = check.decide(&self.engine).await?;
                check::write(&decided, check.requests_hold(), replies);
            }
            (Command::Settle, more) => hold::settle(&self.engine, more, replies).await?,
            (Command::Renew, more) => hold::renew(&self.engine, more, replies).await?,
            (Command::Release, more) => hold::release(&self.engine, more, replies).await?,
            (Command::Ping, []) => replies.simple("PONG"),
            (Command::Ping | Command::Echo, [message]) => replies.bulk(message),
            (Command::Ping | Command::Echo, _) => return too_many(),
            (Command::Hello, options) => info::hello(&mut self.client, options, replies)?,
            (Command::Auth, arguments) => {
                info::auth(arguments)?;
                replies.ok();
            }
            (Command::Client, [subcommand, more @ ..]) => {
                self.client.run(subcommand, more, replies)?;
            }
            (Command::Select, [index]) => match parse_integer(index) {
                Some(0) => replies.ok(),
                Some(_) => return refuse("ERR DB index is out of range"),
                None => return refuse("ERR value is not an integer or out of range"),
            },
            (Command::Client | Command::Select, _) => return too_many(),
            (Command::Describe, more) => command_info::run(more, replies)?,
            (Command::Info, sections) => replies.verbatim(&info::info(sections)),
            (Command::Reset, _) => {
                self.client.reset();
                self.transaction = None;
                replies.switch_to(Version::Two);
                replies.simple("RESET");
            }
            (Command::Multi, _) if self.transaction.is_some() => {
                return refuse("ERR MULTI calls can not be nested");
            }
            (Command::Multi, _) => {
                self.transaction = Some(Transaction::default());
                replies.ok();
            }
            // `exec` runs `EXEC` without arguments.
            (Command::Exec, _) => return too_many(),
            (Command::Discard, _) => match self.transaction.take() {
                Some(_) => replies.ok(),
                None => return refuse("ERR DISCARD without MULTI"),
            },
            (Command::Watch, _) if self.transaction.is_some() => {
                return refuse("ERR WATCH inside MULTI is not allowed");
            }
            (Command::Watch, _) => {
                return refuse("ERR WATCH is not supported: keys cannot be watched");
            }
            (Command::Unwatch | Command::Quit, _) => replies.ok(),
        }
        Ok(())
    }
}

/// Returns Redis' error for an unknown command.
#[cold]
fn unknown_command(arguments: &[&[u8]]) -> String {
    const MAX_BYTES: usize = 128;
    let truncated = |argument: &[u8]| {
        let start = &argument[..argument.len().min(MAX_BYTES)];
        String::from_utf8_lossy(start).into_owned()
    };
    let [name, rest @ ..] = arguments else {
        return "ERR no command".into();
    };
    let mut text = format!(
        "ERR unknown command '{}', with args beginning with: ",
        truncated(name)
    );
    let max_bytes = text.len() + MAX_BYTES;
    for argument in rest {
        if text.len() >= max_bytes {
            break;
        }
        // Writing to a string cannot fail.
        let _ = write!(text, "'{}' ", truncated(argument));
    }
    text
}

#[cfg(test)]
mod tests;
