//! What is answered to a client.

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod any_bytes;

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::Arc;

use super::check::{self, Check};
use super::client::Client;
use super::command::{Command, Description};
use super::reply::{Replies, Version};
use super::request::{self, Arguments, Form, Parsed};
use super::run::Run;
use super::throttle::{Limits, Throttle, parse_integer};
use super::transaction::{Queued, Transaction};
use super::{describe, hello, info};
use crate::engine::{Engine, EngineError};

/// When so much has been written, it is sent before more is answered.
const MOST_UNSENT: usize = 64 * 1024;

/// Why a command is not run; begins with the code of the error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct Refused(Cow<'static, str>);

impl Refused {
    pub(super) fn new(text: impl Into<Cow<'static, str>>) -> Self {
        Self(text.into())
    }

    /// There are too few or too many arguments for the command.
    #[cold]
    pub(super) fn arguments(command: &str) -> Self {
        Self::new(format!(
            "ERR wrong number of arguments for '{command}' command"
        ))
    }
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Read on, until there are so many bytes.
    Read(usize),
    /// Send, and answer on.
    Send,
    /// Send, and end.
    End,
}

/// One client and what it is served by.
#[derive(Debug)]
pub(super) struct Session {
    engine: Arc<Engine>,
    client: Client,
    limits: Limits,
    /// What waits for `EXEC`, after `MULTI`.
    transaction: Option<Transaction>,
}

impl Session {
    pub(super) fn new(engine: Arc<Engine>, client: Client) -> Self {
        Self {
            engine,
            client,
            limits: Limits::default(),
            transaction: None,
        }
    }

    /// Answers every whole request in `input`, in order; tells how many bytes
    /// they were. Where decisions are ready at once, it waits for nothing.
    pub(super) async fn answer(&mut self, input: &[u8], out: &mut Vec<u8>) -> (usize, Next) {
        let engine = Arc::clone(&self.engine);
        let at_once = engine.store().redis().is_none();
        let mut replies = Replies::new(out, self.client.version);
        let mut arguments = Arguments::new();
        let mut run = Run::default();
        let mut read = 0;
        let next = loop {
            if replies.len() >= MOST_UNSENT {
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
                    run.finish(&mut replies).await;
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
                    run.push(throttle, &engine, &mut replies).await;
                }
                continue;
            }
            run.finish(&mut replies).await;
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
                        transaction.break_off();
                    }
                    replies.error(&unknown(&arguments));
                    // People who type make mistakes, but what nobody has asked
                    // for is more likely of another protocol.
                    if form == Form::Inline {
                        break Next::End;
                    }
                    continue;
                }
            };
            if let Err(refused) = answered {
                replies.error(&refused.0);
            } else if known.is_some_and(|known| known.command == Command::Quit) {
                break Next::End;
            }
        };
        run.finish(&mut replies).await;
        (read, next)
    }

    /// Whether a command waits for `EXEC`.
    fn waits(&self, known: &Description) -> bool {
        self.transaction.is_some() && !Transaction::passes(known.command)
    }

    /// Lets a command of these bytes wait for `EXEC`.
    #[cold]
    fn queue(
        &mut self,
        known: &Description,
        arguments: &[&[u8]],
        request: &[u8],
        replies: &mut Replies<'_>,
    ) -> Result<(), Refused> {
        if let Some(transaction) = &mut self.transaction {
            transaction.queue(known, arguments.len(), request)?;
            replies.simple("QUEUED");
        }
        Ok(())
    }

    /// Runs what waits for `EXEC`.
    #[cold]
    async fn exec(&mut self, replies: &mut Replies<'_>) -> Result<(), Refused> {
        let transaction = self.transaction.take();
        let transaction = transaction.ok_or_else(|| Refused::new("ERR EXEC without MULTI"))?;
        let Queued { bytes, count } = transaction.finish()?;
        let engine = Arc::clone(&self.engine);
        replies.array(count);
        let mut run = Run::default();
        let mut arguments = Arguments::new();
        let mut rest = &bytes[..];
        // They were read once, when they came.
        while let Ok(Parsed::Whole(_, length)) = request::parse(rest, &mut arguments)
            && let Some(known) = arguments.first().and_then(|name| Description::find(name))
        {
            rest = &rest[length..];
            if known.command == Command::Throttle
                && let Ok(throttle) = Throttle::read(&arguments, &mut self.limits)
            {
                run.push(throttle, &engine, replies).await;
                continue;
            }
            run.finish(replies).await;
            if let Err(refused) = self.run(known, &arguments, replies).await {
                replies.error(&refused.0);
            }
        }
        run.finish(replies).await;
        Ok(())
    }

    async fn run(
        &mut self,
        known: &Description,
        arguments: &[&[u8]],
        replies: &mut Replies<'_>,
    ) -> Result<(), Refused> {
        if !known.accepts(arguments.len()) {
            return Err(Refused::arguments(known.name));
        }
        let too_many = || Err(Refused::arguments(known.name));
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
            (Command::Auth, given) => hello::auth(given)?.write(replies),
            (Command::Client, [subcommand, more @ ..]) => {
                self.client.run(subcommand, more, replies)?;
            }
            (Command::Select, [index]) => match parse_integer(index) {
                Some(0) => replies.ok(),
                Some(_) => return Err(Refused::new("ERR DB index is out of range")),
                None => return Err(Refused::new("ERR value is not an integer or out of range")),
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
                return Err(Refused::new("ERR MULTI calls can not be nested"));
            }
            (Command::Multi, _) => {
                self.transaction = Some(Transaction::default());
                replies.ok();
            }
            // With too many arguments.
            (Command::Exec, _) => return too_many(),
            (Command::Discard, _) => match self.transaction.take() {
                Some(_) => replies.ok(),
                None => return Err(Refused::new("ERR DISCARD without MULTI")),
            },
            (Command::Watch, _) if self.transaction.is_some() => {
                return Err(Refused::new("ERR WATCH inside MULTI is not allowed"));
            }
            (Command::Watch, _) => {
                return Err(Refused::new(
                    "ERR WATCH is not supported: keys cannot be watched",
                ));
            }
            (Command::Unwatch | Command::Quit, _) => replies.ok(),
        }
        Ok(())
    }
}

fn no_decision(error: EngineError) -> Refused {
    Refused::new(match error {
        EngineError::NotReady => format!("LOADING {error}"),
        EngineError::Call(_) => format!("ERR {error}"),
    })
}

/// As Redis words it.
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
