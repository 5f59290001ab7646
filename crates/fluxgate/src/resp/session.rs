//! Dispatches the commands of a client.

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;

use std::fmt::Write as _;
use std::sync::Arc;

use super::check::{self, Check};
use super::client::Client;
use super::command::{Command, Description};
use super::pipeline::PendingDecisions;
use super::reply::{CommandError, Replies, Version};
use super::request::{self, Arguments, Form, Parsed, parse_integer};
use super::throttle::{LimitCache, Throttle};
use super::transaction::{Queued, Transaction};
use super::{describe, hello, info};
use crate::engine::{Engine, EngineError};

/// How many bytes of replies are sent before the next command runs.
const MAX_UNSENT: usize = 64 * 1024;

/// What the connection does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Read until there are so many bytes.
    Read(usize),
    /// Send, and run the remaining commands.
    Send,
    /// Send, and close.
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

    /// Answers all complete requests in `input`, in order. Returns how many bytes they are.
    /// With a store in memory, it does not wait.
    pub(super) async fn answer(&mut self, input: &[u8], out: &mut Vec<u8>) -> (usize, Next) {
        let engine = Arc::clone(&self.engine);
        let at_once = engine.store().redis().is_none();
        let mut replies = Replies::new(out, self.client.version);
        let mut arguments = Arguments::new();
        let mut pending = PendingDecisions::default();
        let mut read = 0;
        let next = loop {
            if replies.len() >= MAX_UNSENT {
                break Next::Send;
            }
            let rest = &input[read..];
            if rest.is_empty() {
                break Next::Read(1);
            }
            let (form, request) = match request::parse(rest, &mut arguments) {
                Ok(Parsed::Whole(form, length)) => {
                    read += length;
                    (form, &rest[..length])
                }
                Ok(Parsed::Partial(needed)) => break Next::Read(needed),
                Err(error) => {
                    pending.finish(&mut replies).await;
                    replies.error(&format!("ERR Protocol error: {error}"));
                    break Next::End;
                }
            };
            let Some(name) = arguments.first() else {
                continue;
            };
            let known = Description::find(name);
            if let Some(known) = known
                && known.command == Command::Throttle
                && self.transaction.is_none()
                && let Ok(throttle) = Throttle::read(&arguments, &mut self.limits)
            {
                if at_once {
                    throttle.decide(&engine).await.write(&mut replies);
                } else {
                    pending.push(throttle, &engine, &mut replies).await;
                }
                continue;
            }
            pending.finish(&mut replies).await;
            let answered = match known {
                Some(known) if self.waits(known) => {
                    self.queue(known, &arguments, request, &mut replies)
                }
                Some(known) if known.command == Command::Exec && arguments.len() == 1 => {
                    self.exec(&mut replies).await
                }
                Some(known) => self.run(known, &arguments, &mut replies).await,
                None => {
                    if let Some(transaction) = &mut self.transaction {
                        transaction.abort();
                    }
                    replies.error(&unknown(&arguments));
                    // An inline command that does not exist is likely another protocol.
                    if form == Form::Inline {
                        break Next::End;
                    }
                    continue;
                }
            };
            if let Err(error) = answered {
                replies.error(error.text());
            } else if known.is_some_and(|known| known.command == Command::Quit) {
                break Next::End;
            }
        };
        pending.finish(&mut replies).await;
        (read, next)
    }

    /// Returns whether a command waits for `EXEC`.
    fn waits(&self, known: &Description) -> bool {
        self.transaction.is_some() && !Transaction::passes(known.command)
    }

    /// Queues a command until `EXEC`.
    #[cold]
    fn queue(
        &mut self,
        known: &Description,
        arguments: &[&[u8]],
        request: &[u8],
        replies: &mut Replies<'_>,
    ) -> Result<(), CommandError> {
        if let Some(transaction) = &mut self.transaction {
            transaction.queue(known, arguments.len(), request)?;
            replies.simple("QUEUED");
        }
        Ok(())
    }

    /// Runs the queued commands.
    #[cold]
    async fn exec(&mut self, replies: &mut Replies<'_>) -> Result<(), CommandError> {
        let transaction = self.transaction.take();
        let transaction = transaction.ok_or_else(|| CommandError::new("ERR EXEC without MULTI"))?;
        let Queued { bytes, count } = transaction.finish()?;
        let engine = Arc::clone(&self.engine);
        replies.array(count);
        let mut pending = PendingDecisions::default();
        let mut arguments = Arguments::new();
        let mut rest = &bytes[..];
        // They parse: they were parsed when they were queued.
        while let Ok(Parsed::Whole(_, length)) = request::parse(rest, &mut arguments)
            && let Some(known) = arguments.first().and_then(|name| Description::find(name))
        {
            rest = &rest[length..];
            if known.command == Command::Throttle
                && let Ok(throttle) = Throttle::read(&arguments, &mut self.limits)
            {
                pending.push(throttle, &engine, replies).await;
                continue;
            }
            pending.finish(replies).await;
            if let Err(error) = self.run(known, &arguments, replies).await {
                replies.error(error.text());
            }
        }
        pending.finish(replies).await;
        Ok(())
    }

    async fn run(
        &mut self,
        known: &Description,
        arguments: &[&[u8]],
        replies: &mut Replies<'_>,
    ) -> Result<(), CommandError> {
        if !known.accepts(arguments.len()) {
            return Err(CommandError::arguments(known.name));
        }
        let too_many = || Err(CommandError::arguments(known.name));
        let arguments_after_name = &arguments[1..];
        match (known.command, arguments_after_name) {
            (Command::Throttle, _) => {
                let throttle = Throttle::read(arguments, &mut self.limits)?;
                throttle.decide(&self.engine).await.write(replies);
            }
            (Command::Check, _) => {
                let decided = Check::read(arguments)?.decide(&self.engine).await;
                check::write(&decided.map_err(no_decision)?, replies);
            }
            (Command::Ping, []) => replies.simple("PONG"),
            (Command::Ping | Command::Echo, [message]) => replies.bulk(message),
            (Command::Ping | Command::Echo, _) => return too_many(),
            (Command::Hello, options) => hello::hello(&mut self.client, options, replies)?,
            (Command::Auth, given) => {
                hello::auth(given)?;
                replies.ok();
            }
            (Command::Client, [subcommand, more @ ..]) => {
                self.client.run(subcommand, more, replies)?;
            }
            (Command::Select, [index]) => match parse_integer(index) {
                Some(0) => replies.ok(),
                Some(_) => return Err(CommandError::new("ERR DB index is out of range")),
                None => {
                    return Err(CommandError::new(
                        "ERR value is not an integer or out of range",
                    ));
                }
            },
            (Command::Client | Command::Select, _) => return too_many(),
            (Command::Describe, more) => describe::run(more, replies)?,
            (Command::Info, sections) => replies.verbatim(&info::info(sections)),
            (Command::Reset, _) => {
                self.client.reset();
                self.transaction = None;
                replies.switch_to(Version::Two);
                replies.simple("RESET");
            }
            (Command::Multi, _) if self.transaction.is_some() => {
                return Err(CommandError::new("ERR MULTI calls can not be nested"));
            }
            (Command::Multi, _) => {
                self.transaction = Some(Transaction::default());
                replies.ok();
            }
            // `EXEC` without arguments is run by `exec`.
            (Command::Exec, _) => return too_many(),
            (Command::Discard, _) => match self.transaction.take() {
                Some(_) => replies.ok(),
                None => return Err(CommandError::new("ERR DISCARD without MULTI")),
            },
            (Command::Watch, _) if self.transaction.is_some() => {
                return Err(CommandError::new("ERR WATCH inside MULTI is not allowed"));
            }
            (Command::Watch, _) => {
                return Err(CommandError::new(
                    "ERR WATCH is not supported: keys cannot be watched",
                ));
            }
            (Command::Unwatch | Command::Quit, _) => replies.ok(),
        }
        Ok(())
    }
}

fn no_decision(error: EngineError) -> CommandError {
    CommandError::new(match error {
        EngineError::NotReady => format!("LOADING {error}"),
        EngineError::Call(_) => format!("ERR {error}"),
    })
}

/// Returns the error that Redis gives for an unknown command.
#[cold]
fn unknown(arguments: &[&[u8]]) -> String {
    const LONGEST: usize = 128;
    let shown = |argument: &[u8]| {
        let short = &argument[..argument.len().min(LONGEST)];
        String::from_utf8_lossy(short).into_owned()
    };
    let [name, rest @ ..] = arguments else {
        return "ERR no command".into();
    };
    let mut text = format!(
        "ERR unknown command '{}', with args beginning with: ",
        shown(name)
    );
    let longest = text.len() + LONGEST;
    for argument in rest {
        if text.len() >= longest {
            break;
        }
        // Writing to memory does not fail.
        let _ = write!(text, "'{}' ", shown(argument));
    }
    text
}

#[cfg(test)]
mod tests;
