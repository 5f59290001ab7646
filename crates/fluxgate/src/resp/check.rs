//! `FG.CHECK rule_set field value …`: a decision by the rules.

use std::str;
use std::time::Duration;

use fluxgate_core::json::{Names, Pairs, unique, whole_number};
use fluxgate_core::{
    ActiveRule, Band, Decision, RequestContext, RequestContextBuilder, RequestFields,
};
use fluxgate_http::server::{Listener, Origin};

use super::reply::{CommandError, Replies};
use crate::engine::{Engine, EngineError};
use crate::hold_span::parse_hold_span;

/// A parsed command.
#[derive(Debug, Default)]
pub(super) struct Check<'a> {
    rule_set: &'a str,
    context: RequestContext<'a>,
    peek: bool,
}

impl<'a> Check<'a> {
    /// Returns whether the client requests a hold.
    pub(super) fn requests_hold(&self) -> bool {
        self.context.is_held()
    }

    /// Parses the arguments. The first is the command's name.
    pub(super) fn parse(arguments: &[&'a [u8]]) -> Result<Self, CommandError> {
        let [_, rule_set, pairs @ ..] = arguments else {
            return Err(CommandError::arguments("fg.check"));
        };
        let (pairs, []) = pairs.as_chunks::<2>() else {
            return Err(CommandError::arguments("fg.check"));
        };
        let mut fields = CheckFields::default();
        for [name, value] in pairs {
            let name = text("field", name)?;
            fields.parse(name, text(name, value)?)?;
        }
        Ok(Self {
            rule_set: text("rule_set", rule_set)?,
            peek: fields.peek.unwrap_or(false),
            context: fields.into_context()?,
        })
    }

    pub(super) async fn decide(&self, engine: &Engine) -> Result<Decision, EngineError> {
        let origin = Origin::of(Listener::Resp);
        if self.peek {
            engine.peek(self.rule_set, &self.context).await
        } else {
            engine
                .check(self.rule_set, &self.context, true, &origin)
                .await
        }
    }
}

/// Writes a decision. Times are in milliseconds, and -1 means never. The id of the hold follows
/// if the client has requested one or a rule takes slots.
pub(super) fn write(decision: &Decision, requests_hold: bool, replies: &mut Replies<'_>) {
    let has_hold = requests_hold || decision.rules().any(|(rule, _)| rule.takes_slots());
    replies.array(9 + usize::from(has_hold));
    replies.integer(u8::from(decision.allowed()));
    replies.integer_or_null(decision.limit());
    replies.integer_or_null(decision.remaining());
    match decision.retry().after() {
        Some(wait) => replies.integer(wait.ceil_millis()),
        None => replies.integer(-1),
    }
    replies.integer(decision.reset_micros().ceil_millis());
    replies.integer(decision.delay_micros().ceil_millis());
    replies.bulk_or_null(decision.rule().map(ActiveRule::id));
    replies.bulk_or_null(decision.band().map(Band::id));
    replies.bulk(decision.outcome().name());
    if has_hold {
        replies.bulk_or_null(decision.hold().map(|hold| hold.to_string()).as_deref());
    }
}

/// The fields parsed so far.
#[derive(Default)]
struct CheckFields<'a> {
    fields: RequestFields<'a>,
    peek: Option<bool>,
    hold: Option<Duration>,
    headers: Pairs<'a>,
    attributes: Pairs<'a>,
}

impl<'a> CheckFields<'a> {
    fn parse(&mut self, name: &'a str, value: &'a str) -> Result<(), CommandError> {
        match name {
            "ip" => {
                let address = value
                    .parse()
                    .map_err(|_| invalid(name, "is not an IP address"))?;
                set(name, &mut self.fields.ip, address)
            }
            "user" => set(name, &mut self.fields.user, value.into()),
            "api_key" => set(name, &mut self.fields.api_key, value.into()),
            "method" => set(name, &mut self.fields.method, value.into()),
            "path" => set(name, &mut self.fields.path, value.into()),
            "cost" => {
                let cost = whole_number(value)
                    .filter(|_| !value.is_empty())
                    .ok_or_else(|| invalid(name, "must be a whole number from 0"))?;
                set(name, &mut self.fields.cost, cost)
            }
            "peek" => {
                let peek = match value {
                    "true" | "1" => true,
                    "false" | "0" => false,
                    _ => return Err(invalid(name, "must be true or false")),
                };
                set(name, &mut self.peek, peek)
            }
            "hold" => {
                let span = parse_hold_span(name, value)
                    .map_err(|fault| CommandError::new(format!("ERR {fault}")))?;
                set(name, &mut self.hold, span)
            }
            _ => match name.split_once(':') {
                Some(("header", header)) => add(name, &mut self.headers, header, value),
                Some(("attr", attribute)) => add(name, &mut self.attributes, attribute, value),
                _ => Err(CommandError::new(format!(
                    "ERR unknown field `{name}`; known fields: ip, user, api_key, method, \
                     path, cost, peek, hold, header:NAME, attr:NAME"
                ))),
            },
        }
    }

    fn into_context(self) -> Result<RequestContext<'a>, CommandError> {
        let mut context = RequestContextBuilder::from(self.fields);
        let duplicate = |error| CommandError::new(format!("ERR {error}"));
        if !self.headers.is_empty() {
            context = context.headers(unique(self.headers, Names::Headers).map_err(duplicate)?);
        }
        if !self.attributes.is_empty() {
            let attributes = unique(self.attributes, Names::Attributes);
            context = context.attributes(attributes.map_err(duplicate)?);
        }
        if let Some(span) = self.hold {
            context = context.hold(span);
        }
        Ok(context.build())
    }
}

fn set<T>(name: &str, field: &mut Option<T>, value: T) -> Result<(), CommandError> {
    match field.replace(value) {
        None => Ok(()),
        Some(_) => Err(invalid(name, "appears twice")),
    }
}

fn add<'a>(
    field: &str,
    pairs: &mut Pairs<'a>,
    name: &'a str,
    value: &'a str,
) -> Result<(), CommandError> {
    if name.is_empty() {
        return Err(invalid(field, "needs a name"));
    }
    pairs.push((name.into(), value.into()));
    Ok(())
}

fn text<'a>(name: &str, bytes: &'a [u8]) -> Result<&'a str, CommandError> {
    str::from_utf8(bytes).map_err(|_| invalid(name, "is not UTF-8"))
}

#[cold]
fn invalid(name: &str, fault: &str) -> CommandError {
    CommandError::new(format!("ERR `{name}` {fault}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse<'a>(arguments: &[&'a [u8]]) -> Result<Check<'a>, String> {
        let arguments: Vec<_> = [&b"FG.CHECK"[..]]
            .iter()
            .chain(arguments)
            .copied()
            .collect();
        Check::parse(&arguments).map_err(|error| error.to_string())
    }

    #[test]
    fn every_field_is_parsed() {
        let arguments: Vec<&[u8]> = "api ip 10.0.0.1 user u1 api_key k method GET path /a cost 3 \
             peek true header:X-Plan free attr:a:b c"
            .split(' ')
            .map(str::as_bytes)
            .collect();
        let check = parse(&arguments).unwrap();
        assert_eq!(check.rule_set, "api");
        assert!(check.peek);
        let context = RequestContext::builder()
            .ip([10, 0, 0, 1])
            .user("u1")
            .api_key("k")
            .method("GET")
            .path("/a")
            .cost(3)
            .header("X-Plan", "free")
            .attribute("a:b", "c");
        assert_eq!(check.context, context.build());
        assert_eq!(parse(&[b"api"]).unwrap().context, RequestContext::default());
    }

    #[test]
    fn errors_name_the_field() {
        for (arguments, error) in [
            (
                &["s", "user"][..],
                "ERR wrong number of arguments for 'fg.check' command",
            ),
            (&["s", "ip", "1.2.3"], "ERR `ip` is not an IP address"),
            (
                &["s", "cost", "-1"],
                "ERR `cost` must be a whole number from 0",
            ),
            (
                &["s", "cost", ""],
                "ERR `cost` must be a whole number from 0",
            ),
            (&["s", "peek", "yes"], "ERR `peek` must be true or false"),
            (&["s", "user", "a", "user", "a"], "ERR `user` appears twice"),
            (&["s", "header:", "a"], "ERR `header:` needs a name"),
            (
                &["s", "header:A", "1", "header:a", "1"],
                "ERR header \"a\" appears twice",
            ),
            (
                &["s", "attr:A", "1", "attr:A", "1"],
                "ERR attribute \"A\" appears twice",
            ),
            (
                &["s", "User", "a"],
                "ERR unknown field `User`; known fields: ip, user, api_key, method, path, cost, \
                 peek, hold, header:NAME, attr:NAME",
            ),
        ] {
            let arguments: Vec<_> = arguments.iter().map(|text| text.as_bytes()).collect();
            assert_eq!(parse(&arguments).unwrap_err(), error);
        }
        let not_text = parse(&[b"s", b"user", b"\xff"]).unwrap_err();
        assert_eq!(not_text, "ERR `user` is not UTF-8");
        assert!(parse(&[b"s", b"attr:A", b"1", b"attr:a", b"1"]).is_ok());
    }
}
