//! `COMMAND`: describes the commands, so that clients can give hints.

use super::command::{ALL, Argument, Description, Kind};
use super::reply::{CommandError, Replies};

/// `COMMAND [COUNT | LIST | INFO … | DOCS …]`.
pub(super) fn run(more: &[&[u8]], replies: &mut Replies<'_>) -> Result<(), CommandError> {
    let Some((subcommand, names)) = more.split_first() else {
        replies.array(ALL.len());
        for known in ALL {
            write_info(known, replies);
        }
        return Ok(());
    };
    match &*subcommand.to_ascii_lowercase() {
        b"count" if names.is_empty() => replies.integer(ALL.len()),
        b"list" if names.is_empty() => {
            replies.array(ALL.len());
            for known in ALL {
                replies.bulk(known.name);
            }
        }
        b"info" if names.is_empty() => return run(&[], replies),
        b"info" => {
            replies.array(names.len());
            for name in names {
                match Description::find(name) {
                    Some(known) => write_info(known, replies),
                    None => replies.null_array(),
                }
            }
        }
        b"docs" => {
            let asked = |known: &&Description| {
                let mut names = names.iter();
                let is_it = |name: &&[u8]| name.eq_ignore_ascii_case(known.name.as_bytes());
                names.len() == 0 || names.any(is_it)
            };
            let known: Vec<_> = ALL.iter().filter(asked).collect();
            replies.map(known.len());
            for known in known {
                replies.bulk(known.name);
                write_docs(known, replies);
            }
        }
        b"count" | b"list" => {
            let name = String::from_utf8_lossy(subcommand).to_ascii_lowercase();
            return Err(CommandError::arguments(&format!("command|{name}")));
        }
        _ => {
            let name = String::from_utf8_lossy(subcommand);
            return Err(CommandError::new(format!(
                "ERR unknown subcommand '{name:.128}'. There are COUNT, LIST, INFO and DOCS."
            )));
        }
    }
    Ok(())
}

/// Writes the ten parts in which Redis 7 describes a command.
fn write_info(known: &Description, replies: &mut Replies<'_>) {
    replies.array(10);
    replies.bulk(known.name);
    replies.integer(known.arity());
    replies.set(known.flags.len());
    for flag in known.flags {
        replies.simple(flag);
    }
    let key = known.key.unwrap_or(0);
    // The first key, the last, and the step between them.
    replies.integer(key);
    replies.integer(key);
    replies.integer(u8::from(known.key.is_some()));
    // Categories, tips, where keys stand in detail, and subcommands.
    replies.set(1);
    replies.simple(match known.group {
        "connection" => "@connection",
        _ => "@fast",
    });
    replies.array(0);
    replies.array(0);
    replies.array(0);
}

fn write_docs(known: &Description, replies: &mut Replies<'_>) {
    replies.map(if known.arguments.is_empty() { 3 } else { 4 });
    for (name, value) in [
        ("summary", known.summary),
        ("since", env!("CARGO_PKG_VERSION")),
        ("group", known.group),
    ] {
        replies.bulk(name);
        replies.bulk(value);
    }
    if !known.arguments.is_empty() {
        replies.bulk("arguments");
        write_arguments(known.arguments, replies);
    }
}

fn write_arguments(arguments: &[Argument], replies: &mut Replies<'_>) {
    replies.array(arguments.len());
    for argument in arguments {
        let within = match &argument.kind {
            Kind::Block(within) => Some(*within),
            Kind::Key | Kind::Text | Kind::Integer => None,
        };
        let parts = [within.is_some(), !argument.flags.is_empty()];
        replies.map(2 + parts.into_iter().filter(|there| *there).count());
        replies.bulk("name");
        replies.bulk(argument.name);
        replies.bulk("type");
        replies.bulk(argument.kind.name());
        if !argument.flags.is_empty() {
            replies.bulk("flags");
            replies.set(argument.flags.len());
            for flag in argument.flags {
                replies.simple(flag);
            }
        }
        if let Some(within) = within {
            replies.bulk("arguments");
            write_arguments(within, replies);
        }
    }
}
