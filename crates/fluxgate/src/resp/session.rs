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
}

impl Session {
    pub(super) fn new(engine: Arc<Engine>, client: Client) -> Self {
        Self {
            engine,
            client,
            limits: Limits::default(),
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
            let form = match request::parse(rest, &mut arguments) {
                Ok(Parsed::Whole(form, length)) => {
                    read += length;
                    form
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
                Some(known) => self.run(known, &arguments, &mut replies).await,
                None => {
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
                replies.switch_to(Version::Two);
                replies.simple("RESET");
            }
            (Command::Quit, _) => replies.ok(),
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
