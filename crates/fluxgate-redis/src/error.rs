//! What a server's errors mean to a limiter.

use crate::reason;
use fluxgate_core::{Reason, StoreError};
use redis::{ErrorKind, RedisError};

/// Why a call of the script came to nothing.
///
/// All but [`CallError::Failed`] say that the server did not run it, so that it
/// may be sent again, elsewhere or in another way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CallError {
    /// The server does not know the script.
    NoScript,
    /// The slot has gone to another node for good.
    Moved(Address),
    /// The slot is on its way to another node, and the keys are there.
    Ask(Address),
    /// The slot is on its way, and some keys are here and some there.
    TryAgain,
    /// The server is a replica now.
    ReadOnly(StoreError),
    /// Anything else, also when nobody knows whether it ran.
    Failed(StoreError),
}

/// The host and port of a node.
pub(crate) type Address = (String, u16);

impl CallError {
    /// What it comes to when it is not sent again.
    pub(crate) fn into_store_error(self) -> StoreError {
        match self {
            Self::ReadOnly(error) | Self::Failed(error) => error,
            Self::NoScript => error(reason::REDIS_ERROR, "the server forgets its scripts"),
            Self::Moved((host, port)) | Self::Ask((host, port)) => error(
                reason::CLUSTER_DOWN,
                &format!("the slot is moving about, at last to {host}:{port}"),
            ),
            Self::TryAgain => error(
                reason::CLUSTER_DOWN,
                "the slot is being moved, and its keys are in two places",
            ),
        }
    }
}

impl From<StoreError> for CallError {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

/// An error with this label.
pub(crate) fn error(reason: Reason, message: &str) -> StoreError {
    StoreError {
        reason,
        message: message.into(),
    }
}

/// No answer in time.
pub(crate) fn timeout(what: &str) -> StoreError {
    error(
        Reason::TIMEOUT,
        &format!("{what} did not answer within the deadline"),
    )
}

/// What a command's error means.
pub(crate) fn call_error(cause: &RedisError) -> CallError {
    let (code, detail) = code_and_detail(cause);
    match code.as_str() {
        "NOSCRIPT" => return CallError::NoScript,
        "TRYAGAIN" => return CallError::TryAgain,
        "MOVED" | "ASK" => {
            if let Some(address) = redirect(&detail) {
                return match code.as_str() {
                    "MOVED" => CallError::Moved(address),
                    _ => CallError::Ask(address),
                };
            }
        }
        "READONLY" => return CallError::ReadOnly(store_error(cause)),
        _ => {}
    }
    CallError::Failed(store_error(cause))
}

/// The label and the story of a client's error.
pub(crate) fn store_error(cause: &RedisError) -> StoreError {
    let (code, detail) = code_and_detail(cause);
    let reason = match code.as_str() {
        "OOM" => reason::OOM,
        "MISCONF" => reason::MISCONF,
        "NOAUTH" | "WRONGPASS" => reason::NOAUTH,
        "NOPERM" => reason::NOPERM,
        "ERR" if is_about_rights(&detail) => reason::NOPERM,
        "LOADING" => reason::LOADING,
        "BUSY" => reason::BUSY,
        "READONLY" => reason::READONLY,
        "CLUSTERDOWN" | "MASTERDOWN" => reason::CLUSTER_DOWN,
        "WRONGTYPE" => reason::BAD_TYPES,
        _ => match cause.kind() {
            ErrorKind::AuthenticationFailed => reason::NOAUTH,
            ErrorKind::Parse | ErrorKind::UnexpectedReturnType => Reason::BAD_RESPONSE,
            _ if cause.is_timeout() => Reason::TIMEOUT,
            _ => reason::REDIS_ERROR,
        },
    };
    let message = if code.is_empty() {
        cause.to_string()
    } else {
        format!("{code} {detail}")
    };
    StoreError { reason, message }
}

/// What a user may not do is told in these ways from inside a script: by Redis
/// 7.0, and by those after it.
fn is_about_rights(detail: &str) -> bool {
    ["The user executing the script can't", "ACL failure"]
        .iter()
        .any(|sign| detail.contains(sign))
}

/// Whether it is the server that tells of the error: it is there, and the
/// connection is as good as before.
pub(crate) fn is_told(cause: &RedisError) -> bool {
    cause.clone().into_server_errors().is_some()
}

/// Whether the server did not answer, or not like a server: the connection is of
/// no more use, and the server may not be either.
pub(crate) fn is_silence(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::TIMEOUT | reason::REDIS_ERROR | Reason::BAD_RESPONSE
    )
}

/// What the server said; nothing where it said nothing.
fn code_and_detail(cause: &RedisError) -> (String, String) {
    let errors = cause.clone().into_server_errors();
    let told = errors.as_deref().and_then(<[_]>::first);
    match told {
        Some((_, told)) => {
            let detail = told.details().unwrap_or_default();
            (told.code().to_owned(), detail.to_owned())
        }
        None => {
            let detail = cause.detail().unwrap_or_default();
            let code = cause.code().unwrap_or_default();
            (code.to_owned(), detail.to_owned())
        }
    }
}

/// `3999 127.0.0.1:6381`, where the host may be an IPv6 address.
fn redirect(detail: &str) -> Option<Address> {
    let (_, address) = detail.split_once(' ')?;
    let (host, port) = address.trim().rsplit_once(':')?;
    Some((host.to_owned(), port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> RedisError {
        let mut parser = redis::Parser::new();
        let value = parser.parse_value(format!("-{text}\r\n").as_bytes());
        value.unwrap().extract_error().unwrap_err()
    }

    #[test]
    fn every_kind_of_trouble_has_its_label() {
        for (text, reason) in [
            ("OOM command not allowed", reason::OOM),
            ("MISCONF Redis is configured to save", reason::MISCONF),
            ("NOAUTH Authentication required.", reason::NOAUTH),
            ("WRONGPASS invalid username-password pair", reason::NOAUTH),
            ("NOPERM User x has no permissions", reason::NOPERM),
            ("ERR ACL failure in script: User x", reason::NOPERM),
            (
                "ERR The user executing the script can't run this command",
                reason::NOPERM,
            ),
            ("LOADING Redis is loading", reason::LOADING),
            ("BUSY Redis is busy running a script", reason::BUSY),
            ("READONLY You can't write", reason::READONLY),
            ("CLUSTERDOWN Hash slot not served", reason::CLUSTER_DOWN),
            ("WRONGTYPE Operation against a key", reason::BAD_TYPES),
            ("ERR something else", reason::REDIS_ERROR),
        ] {
            let error = store_error(&told(text));
            assert_eq!(error.reason, reason, "{text}");
            assert_eq!(error.message, text);
        }
    }

    #[test]
    fn redirections_are_read() {
        let to = |host: &str, port| (host.to_owned(), port);
        assert_eq!(
            call_error(&told("MOVED 3999 127.0.0.1:6381")),
            CallError::Moved(to("127.0.0.1", 6381))
        );
        assert_eq!(
            call_error(&told("ASK 12 ::1:7000")),
            CallError::Ask(to("::1", 7000))
        );
        assert_eq!(
            call_error(&told("NOSCRIPT No matching script.")),
            CallError::NoScript
        );
        assert_eq!(
            call_error(&told("TRYAGAIN Multiple keys")),
            CallError::TryAgain
        );
        // Not to be understood: an error like any other.
        let odd = call_error(&told("MOVED nowhere"));
        assert!(matches!(odd, CallError::Failed(_)), "{odd:?}");
    }
}
