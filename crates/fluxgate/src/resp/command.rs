//! The commands there are.

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// Decides by a limit that comes with the call.
    Throttle,
    /// Decides by the rules.
    Check,
    Ping,
    Echo,
    Hello,
    Auth,
    Client,
    Select,
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

/// The description of a command.
#[derive(Debug)]
pub(super) struct Description {
    pub(super) command: Command,
    /// In lower case.
    pub(super) name: &'static str,
    pub(super) summary: &'static str,
    pub(super) group: &'static str,
    pub(super) flags: &'static [&'static str],
    /// Where the key stands, if there is one.
    pub(super) key: Option<usize>,
    pub(super) arguments: &'static [Argument],
}

/// An argument of a command.
#[derive(Debug)]
pub(super) struct Argument {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// `optional`, `multiple` or both, as Redis calls them.
    pub(super) flags: &'static [&'static str],
}

/// What an argument is.
#[derive(Debug)]
pub(super) enum Kind {
    Key,
    Text,
    Integer,
    /// Arguments that come together.
    Block(&'static [Argument]),
}

impl Kind {
    /// As Redis calls it.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Text => "string",
            Self::Integer => "integer",
            Self::Block(_) => "block",
        }
    }
}

impl Description {
    /// The command of this name, in whatever case.
    #[inline]
    pub(super) fn find(name: &[u8]) -> Option<&'static Self> {
        ALL.iter()
            .find(|known| known.name.as_bytes().eq_ignore_ascii_case(name))
    }

    /// Returns the arity as Redis counts it: the name included, and negative if there may
    /// be more arguments.
    pub(super) fn arity(&self) -> i64 {
        let least = 1 + self.least();
        match self.arguments.iter().all(Argument::is_one) {
            true => least,
            false => -least,
        }
    }

    /// Whether a request with so many arguments can be meant, the name included.
    pub(super) fn accepts(&self, count: usize) -> bool {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        match self.arity() {
            arity @ 0.. => count == arity,
            arity => count >= -arity,
        }
    }

    fn least(&self) -> i64 {
        let needed = self.arguments.iter().filter(|one| !one.is("optional"));
        // There are a handful.
        needed.count() as i64
    }
}

impl Argument {
    fn is(&self, flag: &str) -> bool {
        self.flags.contains(&flag)
    }

    fn is_one(&self) -> bool {
        self.flags.is_empty()
    }

    const fn needed(name: &'static str, kind: Kind) -> Self {
        Self {
            name,
            kind,
            flags: &[],
        }
    }

    const fn optional(name: &'static str, kind: Kind) -> Self {
        Self {
            name,
            kind,
            flags: &["optional"],
        }
    }

    const fn several(name: &'static str, kind: Kind) -> Self {
        Self {
            name,
            kind,
            flags: &["optional", "multiple"],
        }
    }
}

const CONNECTION: &[&str] = &["noscript", "loading", "stale", "fast", "no_auth"];
const SERVER: &[&str] = &["loading", "stale"];

/// Every command, the decisions first.
pub(super) const ALL: &[Description] = &[
    Description {
        command: Command::Throttle,
        name: "cl.throttle",
        summary: "Charges a key by the limit that comes with the call.",
        group: "generic",
        flags: &["write", "fast"],
        key: Some(1),
        arguments: &[
            Argument::needed("key", Kind::Key),
            Argument::needed("max_burst", Kind::Integer),
            Argument::needed("count", Kind::Integer),
            Argument::needed("period", Kind::Integer),
            Argument::optional("quantity", Kind::Integer),
        ],
    },
    Description {
        command: Command::Check,
        name: "fg.check",
        summary: "Decides a request by the rules of a rule set.",
        group: "generic",
        flags: &["write", "fast"],
        key: None,
        arguments: &[
            Argument::needed("rule_set", Kind::Text),
            Argument::several(
                "field-value",
                Kind::Block(&[
                    Argument::needed("field", Kind::Text),
                    Argument::needed("value", Kind::Text),
                ]),
            ),
        ],
    },
    Description {
        command: Command::Ping,
        name: "ping",
        summary: "Answers, to show that it is there.",
        group: "connection",
        flags: &["fast"],
        key: None,
        arguments: &[Argument::optional("message", Kind::Text)],
    },
    Description {
        command: Command::Echo,
        name: "echo",
        summary: "Answers what it was sent.",
        group: "connection",
        flags: &["fast"],
        key: None,
        arguments: &[Argument::needed("message", Kind::Text)],
    },
    Description {
        command: Command::Hello,
        name: "hello",
        summary: "Chooses the version of the protocol and tells of the server.",
        group: "connection",
        flags: CONNECTION,
        key: None,
        arguments: &[
            Argument::optional("protover", Kind::Integer),
            Argument::several("option", Kind::Text),
        ],
    },
    Description {
        command: Command::Auth,
        name: "auth",
        summary: "There is no password.",
        group: "connection",
        flags: CONNECTION,
        key: None,
        arguments: &[
            Argument::optional("username", Kind::Text),
            Argument::needed("password", Kind::Text),
        ],
    },
    Description {
        command: Command::Client,
        name: "client",
        summary: "Names the connection and tells of it.",
        group: "connection",
        flags: CONNECTION,
        key: None,
        arguments: &[
            Argument::needed("subcommand", Kind::Text),
            Argument::several("argument", Kind::Text),
        ],
    },
    Description {
        command: Command::Select,
        name: "select",
        summary: "There is one database, 0.",
        group: "connection",
        flags: CONNECTION,
        key: None,
        arguments: &[Argument::needed("index", Kind::Integer)],
    },
    Description {
        command: Command::Describe,
        name: "command",
        summary: "Tells of the commands.",
        group: "server",
        flags: SERVER,
        key: None,
        arguments: &[
            Argument::optional("subcommand", Kind::Text),
            Argument::several("command-name", Kind::Text),
        ],
    },
    Description {
        command: Command::Info,
        name: "info",
        summary: "Tells of the server.",
        group: "server",
        flags: SERVER,
        key: None,
        arguments: &[Argument::several("section", Kind::Text)],
    },
    Description {
        command: Command::Reset,
        name: "reset",
        summary: "Makes the connection as it was when it began.",
        group: "connection",
        flags: CONNECTION,
        key: None,
        arguments: &[],
    },
    Description {
        command: Command::Multi,
        name: "multi",
        summary: "Lets the commands that follow wait for EXEC.",
        group: "transactions",
        flags: CONNECTION,
        key: None,
        arguments: &[],
    },
    Description {
        command: Command::Exec,
        name: "exec",
        summary: "Runs the commands since MULTI, in order.",
        group: "transactions",
        flags: CONNECTION,
        key: None,
        arguments: &[],
    },
    Description {
        command: Command::Discard,
        name: "discard",
        summary: "Drops the commands since MULTI.",
        group: "transactions",
        flags: CONNECTION,
        key: None,
        arguments: &[],
    },
    Description {
        command: Command::Watch,
        name: "watch",
        summary: "Is refused: keys cannot be watched.",
        group: "transactions",
        flags: CONNECTION,
        key: Some(1),
        arguments: &[
            Argument::needed("key", Kind::Key),
            Argument::several("key", Kind::Key),
        ],
    },
    Description {
        command: Command::Unwatch,
        name: "unwatch",
        summary: "Answers OK: nothing is watched.",
        group: "transactions",
        flags: CONNECTION,
        key: None,
        arguments: &[],
    },
    Description {
        command: Command::Quit,
        name: "quit",
        summary: "Ends the connection.",
        group: "connection",
        flags: CONNECTION,
        key: None,
        // Whatever stands after it, as Redis does.
        arguments: &[Argument::several("ignored", Kind::Text)],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_in_any_case() {
        let find = |name: &[u8]| Description::find(name).map(|known| known.command);
        assert_eq!(find(b"CL.Throttle"), Some(Command::Throttle));
        assert_eq!(find(b"ping"), Some(Command::Ping));
        assert_eq!(find(b"GET"), None);
    }

    #[test]
    fn the_number_of_arguments_is_told_as_redis_tells_it() {
        for (name, arity) in [
            ("cl.throttle", -5),
            ("fg.check", -2),
            ("ping", -1),
            ("echo", 2),
            ("auth", -2),
            ("quit", -1),
        ] {
            let known = Description::find(name.as_bytes()).unwrap();
            assert_eq!(known.arity(), arity, "{name}");
        }
    }
}
