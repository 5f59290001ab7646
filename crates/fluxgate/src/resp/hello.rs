//! `HELLO` and `AUTH`, as in a Redis without a password.

use super::client::{Client, parse_name};
use super::info::REDIS_VERSION;
use super::reply::{CommandError, Replies, Version};
use super::request::parse_integer;

/// The only user, which needs no password.
const DEFAULT_USER: &[u8] = b"default";

/// `AUTH [username] password`.
pub(super) fn auth(arguments: &[&[u8]]) -> Result<(), CommandError> {
    match arguments {
        [_password] => Err(CommandError::new(
            "ERR AUTH <password> called without any password configured for the default user. \
             Are you sure your configuration is correct?",
        )),
        [username, _password] => login(username),
        _ => Err(CommandError::new("ERR syntax error")),
    }
}

fn login(username: &[u8]) -> Result<(), CommandError> {
    if username == DEFAULT_USER {
        Ok(())
    } else {
        Err(CommandError::new(
            "WRONGPASS invalid username-password pair or user is disabled.",
        ))
    }
}

/// `HELLO [2|3 [AUTH username password] [SETNAME name]]`.
pub(super) fn hello(
    client: &mut Client,
    options: &[&[u8]],
    replies: &mut Replies<'_>,
) -> Result<(), CommandError> {
    let mut version = client.version;
    let mut name = None;
    if let Some((wanted, mut options)) = options.split_first() {
        version = match parse_integer(wanted) {
            Some(2) => Version::Two,
            Some(3) => Version::Three,
            Some(_) => return Err(CommandError::new("NOPROTO unsupported protocol version")),
            None => {
                return Err(CommandError::new(
                    "ERR Protocol version is not an integer or out of range",
                ));
            }
        };
        while let Some((option, rest)) = options.split_first() {
            options = match rest {
                [username, _password, rest @ ..] if option.eq_ignore_ascii_case(b"auth") => {
                    login(username)?;
                    rest
                }
                [new, rest @ ..] if option.eq_ignore_ascii_case(b"setname") => {
                    name = Some(parse_name(new)?);
                    rest
                }
                _ => {
                    let option = String::from_utf8_lossy(option);
                    let error = format!("ERR Syntax error in HELLO option '{option}'");
                    return Err(CommandError::new(error));
                }
            };
        }
    }
    if let Some(name) = name {
        client.name = name;
    }
    client.version = version;
    replies.switch_to(version);
    replies.map(7);
    for (field, value) in [("server", "fluxgate"), ("version", REDIS_VERSION)] {
        replies.bulk(field);
        replies.bulk(value);
    }
    replies.bulk("proto");
    replies.integer(version.number());
    replies.bulk("id");
    replies.integer(client.id);
    for (field, value) in [("mode", "standalone"), ("role", "master")] {
        replies.bulk(field);
        replies.bulk(value);
    }
    replies.bulk("modules");
    replies.array(0);
    Ok(())
}
