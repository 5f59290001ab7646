//! `HELLO`, `AUTH` and `INFO`: what clients learn about the server, as from a Redis without a
//! password.

use quanta::Instant;
use std::fmt::Write as _;
use std::sync::OnceLock;

use super::client::{Client, parse_name};
use super::reply::{CommandError, Replies, Version};
use super::request::parse_integer;
use crate::telemetry;

/// The Redis version whose protocol this is. Clients choose their commands by it.
const REDIS_VERSION: &str = "7.2.0";

/// The only user, which needs no password.
const DEFAULT_USER: &[u8] = b"default";

static STARTED: OnceLock<Instant> = OnceLock::new();

/// Records the start of the service.
pub(super) fn record_start() {
    STARTED.get_or_init(telemetry::now);
}

/// Returns the given sections, or all if none is given.
pub(super) fn info(sections: &[&[u8]]) -> String {
    let is_all = |section: &&[u8]| {
        [&b"default"[..], b"all", b"everything"]
            .iter()
            .any(|all| section.eq_ignore_ascii_case(all))
    };
    let all = sections.is_empty() || sections.iter().any(is_all);
    let mut text = String::new();
    for (name, fields) in all_sections() {
        let mut wanted = sections.iter();
        if all || wanted.any(|section| section.eq_ignore_ascii_case(name.as_bytes())) {
            let line_before = if text.is_empty() { "" } else { "\r\n" };
            // Writing to memory does not fail.
            let _ = write!(text, "{line_before}# {name}\r\n{fields}");
        }
    }
    text
}

fn all_sections() -> [(&'static str, String); 5] {
    let up = STARTED.get().map_or(0, |started| {
        telemetry::now().duration_since(*started).as_secs()
    });
    let server = format!(
        "redis_version:{REDIS_VERSION}\r\n\
         server_name:fluxgate\r\n\
         fluxgate_version:{}\r\n\
         redis_mode:standalone\r\n\
         os:{}\r\n\
         arch_bits:{}\r\n\
         process_id:{}\r\n\
         uptime_in_seconds:{up}\r\n\
         uptime_in_days:{}\r\n",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::OS,
        usize::BITS,
        std::process::id(),
        up / (24 * 60 * 60),
    );
    let clients = format!("connected_clients:{}\r\n", Client::connected());
    [
        ("Server", server),
        ("Clients", clients),
        ("Persistence", "loading:0\r\n".into()),
        (
            "Replication",
            "role:master\r\nconnected_slaves:0\r\n".into(),
        ),
        ("Cluster", "cluster_enabled:0\r\n".into()),
    ]
}

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
