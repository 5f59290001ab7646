//! The table of commands.

use ArgumentKind::{Block, Integer, Key, Text};

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// Decides by a limit that comes with the command.
    Throttle,
    /// Decides by the rules.
    Check,
    /// Settles a hold.
    Settle,
    /// Extends a hold.
    Renew,
    /// Releases a hold.
    Release,
    Ping,
    Echo,
    Hello,
    Auth,
    Client,
    Select,
    /// `COMMAND`.
    Describe,
    Info,
    Reset,
    Multi,
    Exec,
    Discard,
    Watch,
    Unwatch,
    Quit,
}

/// The specification of a command, as `COMMAND` reports it.
#[derive(Debug)]
pub(super) struct CommandSpec {
    pub(super) command: Command,
    /// In lower case.
    pub(super) name: &'static str,
    pub(super) summary: &'static str,
    pub(super) group: &'static str,
    pub(super) flags: &'static [&'static str],
    /// The position of the key, if there is one.
    pub(super) key: Option<usize>,
    pub(super) arguments: &'static [Argument],
}

/// An argument of a command.
#[derive(Debug)]
pub(super) struct Argument {
    pub(super) name: &'static str,
    pub(super) kind: ArgumentKind,
    /// Redis' flags `optional` and `multiple`.
    pub(super) flags: &'static [&'static str],
}

/// The type of an argument.
#[derive(Debug)]
pub(super) enum ArgumentKind {
    Key,
    Text,
    Integer,
    /// Arguments that come together.
    Block(&'static [Argument]),
}

impl ArgumentKind {
    /// Returns Redis' name of the type.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Text => "string",
            Self::Integer => "integer",
            Self::Block(_) => "block",
        }
    }
}

impl CommandSpec {
    /// Finds a command by its name, ignoring case.
    #[inline]
    pub(super) fn find(name: &[u8]) -> Option<&'static Self> {
        ALL.iter()
            .find(|spec| spec.name.as_bytes().eq_ignore_ascii_case(name))
    }

    /// Returns the arity as Redis defines it: it includes the name, and is negative if there
    /// may be more arguments.
    pub(super) fn arity(&self) -> i64 {
        let is_optional = |argument: &&Argument| argument.flags.contains(&"optional");
        let optional = self.arguments.iter().filter(is_optional).count();
        // There are only a few arguments.
        let required = 1 + (self.arguments.len() - optional) as i64;
        if optional == 0 { required } else { -required }
    }

    /// Returns whether a request may have `count` arguments, including the name.
    pub(super) fn accepts(&self, count: usize) -> bool {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        match self.arity() {
            arity @ 0.. => count == arity,
            arity => count >= -arity,
        }
    }
}

const fn required(name: &'static str, kind: ArgumentKind) -> Argument {
    let flags = &[];
    Argument { name, kind, flags }
}

const fn optional(name: &'static str, kind: ArgumentKind) -> Argument {
    let flags = &["optional"];
    Argument { name, kind, flags }
}

const fn any_number(name: &'static str, kind: ArgumentKind) -> Argument {
    let flags = &["optional", "multiple"];
    Argument { name, kind, flags }
}

/// The fields that decisions have in common.
const DECISION: CommandSpec = CommandSpec {
    command: Command::Check,
    name: "",
    summary: "",
    group: "generic",
    flags: &["write", "fast"],
    key: None,
    arguments: &[],
};
const CONNECTION: CommandSpec = CommandSpec {
    group: "connection",
    flags: &["noscript", "loading", "stale", "fast", "no_auth"],
    ..DECISION
};
const SERVER: CommandSpec = CommandSpec {
    group: "server",
    flags: &["loading", "stale"],
    ..DECISION
};
const TRANSACTION: CommandSpec = CommandSpec {
    group: "transactions",
    ..CONNECTION
};

/// All commands, decisions first.
pub(super) const ALL: &[CommandSpec] = &[
    CommandSpec {
        command: Command::Throttle,
        name: "cl.throttle",
        summary: "Charges a key by the limit that comes with the command.",
        key: Some(1),
        arguments: &[
            required("key", Key),
            required("max_burst", Integer),
            required("count", Integer),
            required("period", Integer),
            optional("quantity", Integer),
        ],
        ..DECISION
    },
    CommandSpec {
        command: Command::Check,
        name: "fg.check",
        summary: "Decides a request by the rules of a rule set.",
        arguments: &[
            required("rule_set", Text),
            any_number(
                "field-value",
                Block(&[required("field", Text), required("value", Text)]),
            ),
        ],
        ..DECISION
    },
    CommandSpec {
        command: Command::Settle,
        name: "fg.settle",
        summary: "Settles a hold with the real cost.",
        arguments: &[required("hold", Text), optional("cost", Integer)],
        ..DECISION
    },
    CommandSpec {
        command: Command::Renew,
        name: "fg.renew",
        summary: "Extends a hold to a duration from now.",
        arguments: &[required("hold", Text), required("hold_for", Text)],
        ..DECISION
    },
    CommandSpec {
        command: Command::Release,
        name: "fg.release",
        summary: "Releases a hold: its slots are free, and its units return.",
        arguments: &[required("hold", Text)],
        ..DECISION
    },
    CommandSpec {
        command: Command::Ping,
        name: "ping",
        summary: "Returns PONG, or the message.",
        flags: &["fast"],
        arguments: &[optional("message", Text)],
        ..CONNECTION
    },
    CommandSpec {
        command: Command::Echo,
        name: "echo",
        summary: "Returns the message.",
        flags: &["fast"],
        arguments: &[required("message", Text)],
        ..CONNECTION
    },
    CommandSpec {
        command: Command::Hello,
        name: "hello",
        summary: "Selects the protocol version and describes the server.",
        arguments: &[optional("protover", Integer), any_number("option", Text)],
        ..CONNECTION
    },
    CommandSpec {
        command: Command::Auth,
        name: "auth",
        summary: "Accepts any password for the user `default`.",
        arguments: &[optional("username", Text), required("password", Text)],
        ..CONNECTION
    },
    CommandSpec {
        command: Command::Client,
        name: "client",
        summary: "Names or describes this connection.",
        arguments: &[required("subcommand", Text), any_number("argument", Text)],
        ..CONNECTION
    },
    CommandSpec {
        command: Command::Select,
        name: "select",
        summary: "Selects database 0, the only one.",
        arguments: &[required("index", Integer)],
        ..CONNECTION
    },
    CommandSpec {
        command: Command::Describe,
        name: "command",
        summary: "Describes the commands.",
        arguments: &[
            optional("subcommand", Text),
            any_number("command-name", Text),
        ],
        ..SERVER
    },
    CommandSpec {
        command: Command::Info,
        name: "info",
        summary: "Describes the server.",
        arguments: &[any_number("section", Text)],
        ..SERVER
    },
    CommandSpec {
        command: Command::Reset,
        name: "reset",
        summary: "Resets the state of the connection.",
        ..CONNECTION
    },
    CommandSpec {
        command: Command::Multi,
        name: "multi",
        summary: "Queues the following commands until EXEC.",
        ..TRANSACTION
    },
    CommandSpec {
        command: Command::Exec,
        name: "exec",
        summary: "Runs the commands since MULTI in order.",
        ..TRANSACTION
    },
    CommandSpec {
        command: Command::Discard,
        name: "discard",
        summary: "Discards the commands since MULTI.",
        ..TRANSACTION
    },
    CommandSpec {
        command: Command::Watch,
        name: "watch",
        summary: "Not supported; returns an error.",
        key: Some(1),
        arguments: &[required("key", Key), any_number("key", Key)],
        ..TRANSACTION
    },
    CommandSpec {
        command: Command::Unwatch,
        name: "unwatch",
        summary: "Replies OK, because no key is watched.",
        ..TRANSACTION
    },
    CommandSpec {
        command: Command::Quit,
        name: "quit",
        summary: "Closes the connection.",
        // Like Redis, ignores arguments.
        arguments: &[any_number("ignored", Text)],
        ..CONNECTION
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_in_any_case() {
        let find = |name: &[u8]| CommandSpec::find(name).map(|spec| spec.command);
        assert_eq!(find(b"CL.Throttle"), Some(Command::Throttle));
        assert_eq!(find(b"ping"), Some(Command::Ping));
        assert_eq!(find(b"GET"), None);
    }

    #[test]
    fn the_arity_is_that_of_redis() {
        for (name, arity) in [
            ("cl.throttle", -5),
            ("fg.check", -2),
            ("fg.settle", -2),
            ("fg.renew", 3),
            ("fg.release", 2),
            ("ping", -1),
            ("echo", 2),
            ("auth", -2),
            ("quit", -1),
        ] {
            let spec = CommandSpec::find(name.as_bytes()).unwrap();
            assert_eq!(spec.arity(), arity, "{name}");
        }
    }
}
