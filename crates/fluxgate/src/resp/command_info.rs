//! `COMMAND`: describes the commands, for the hints of clients.

use super::command::{ALL, Argument, ArgumentKind, CommandSpec};
use super::reply::{CommandError, Replies};

/// `COMMAND [COUNT | LIST | INFO … | DOCS …]`.
pub(super) fn run(more: &[&[u8]], replies: &mut Replies<'_>) -> Result<(), CommandError> {
    let Some((subcommand, names)) = more.split_first() else {
        replies.array(ALL.len());
        for spec in ALL {
            write_info(spec, replies);
        }
        return Ok(());
    };
    match &*subcommand.to_ascii_lowercase() {
        b"count" if names.is_empty() => replies.integer(ALL.len()),
        b"list" if names.is_empty() => {
            replies.array(ALL.len());
            for spec in ALL {
                replies.bulk(spec.name);
            }
        }
        b"info" if names.is_empty() => return run(&[], replies),
        b"info" => {
            replies.array(names.len());
            for name in names {
                match CommandSpec::find(name) {
                    Some(spec) => write_info(spec, replies),
                    None => replies.null_array(),
                }
            }
        }
        b"docs" => {
            let is_requested = |spec: &&CommandSpec| {
                let mut names = names.iter();
                let matches = |name: &&[u8]| name.eq_ignore_ascii_case(spec.name.as_bytes());
                names.len() == 0 || names.any(matches)
            };
            let specs: Vec<_> = ALL.iter().filter(is_requested).collect();
            replies.map(specs.len());
            for spec in specs {
                replies.bulk(spec.name);
                write_docs(spec, replies);
            }
        }
        b"count" | b"list" => {
            let name = String::from_utf8_lossy(subcommand).to_ascii_lowercase();
            return Err(CommandError::arguments(&format!("command|{name}")));
        }
        _ => {
            let name = String::from_utf8_lossy(subcommand);
            return Err(CommandError::new(format!(
                "ERR unknown subcommand '{name:.128}'. Supported: COUNT, LIST, INFO, DOCS."
            )));
        }
    }
    Ok(())
}

/// Writes the ten fields that Redis 7 has for a command.
fn write_info(spec: &CommandSpec, replies: &mut Replies<'_>) {
    replies.array(10);
    replies.bulk(spec.name);
    replies.integer(spec.arity());
    replies.set(spec.flags.len());
    for flag in spec.flags {
        replies.simple(flag);
    }
    let key = spec.key.unwrap_or(0);
    // The first key, the last, and the step between them.
    replies.integer(key);
    replies.integer(key);
    replies.integer(u8::from(spec.key.is_some()));
    // ACL categories, tips, key specifications and subcommands.
    replies.set(1);
    replies.simple(match spec.group {
        "connection" => "@connection",
        _ => "@fast",
    });
    replies.array(0);
    replies.array(0);
    replies.array(0);
}

fn write_docs(spec: &CommandSpec, replies: &mut Replies<'_>) {
    replies.map(if spec.arguments.is_empty() { 3 } else { 4 });
    for (name, value) in [
        ("summary", spec.summary),
        ("since", env!("CARGO_PKG_VERSION")),
        ("group", spec.group),
    ] {
        replies.bulk(name);
        replies.bulk(value);
    }
    if !spec.arguments.is_empty() {
        replies.bulk("arguments");
        write_arguments(spec.arguments, replies);
    }
}

fn write_arguments(arguments: &[Argument], replies: &mut Replies<'_>) {
    replies.array(arguments.len());
    for argument in arguments {
        let nested = match &argument.kind {
            ArgumentKind::Block(nested) => Some(*nested),
            ArgumentKind::Key | ArgumentKind::Text | ArgumentKind::Integer => None,
        };
        let has_flags = !argument.flags.is_empty();
        replies.map(2 + usize::from(nested.is_some()) + usize::from(has_flags));
        replies.bulk("name");
        replies.bulk(argument.name);
        replies.bulk("type");
        replies.bulk(argument.kind.name());
        if has_flags {
            replies.bulk("flags");
            replies.set(argument.flags.len());
            for flag in argument.flags {
                replies.simple(flag);
            }
        }
        if let Some(nested) = nested {
            replies.bulk("arguments");
            write_arguments(nested, replies);
        }
    }
}
