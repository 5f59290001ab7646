//! Maps errors of the client library to errors of a store.

use crate::reason;
use fluxgate_core::StoreError;
use fluxgate_core::store::Reason;
use redis::{ErrorKind, RedisError};

/// Why a call of the script failed.
///
/// All variants but [`CallError::Failed`] mean that the server did not run the script, so the
/// call may be sent again, to this server or to another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CallError {
    /// The server does not know the script.
    NoScript,
    /// The hash slot has moved to another node.
    Moved(Address),
    /// The hash slot is moving to another node, which has the keys already.
    Ask(Address),
    /// The hash slot is moving, and the keys are on two nodes.
    TryAgain,
    /// The server is a replica now.
    ReadOnly(StoreError),
    /// Any other failure. The script may have run.
    Failed(StoreError),
}

const MISSING_SCRIPT: &str = "the server does not keep the script that it was given";

/// The host and port of a node.
pub(crate) type Address = (String, u16);

/// The error to report if the call is not sent again.
impl From<CallError> for StoreError {
    fn from(cause: CallError) -> Self {
        match cause {
            CallError::ReadOnly(error) | CallError::Failed(error) => error,
            CallError::NoScript => error(reason::REDIS_ERROR, MISSING_SCRIPT),
            CallError::Moved((host, port)) | CallError::Ask((host, port)) => error(
                reason::CLUSTER_DOWN,
                &format!("the slot keeps moving, last to {host}:{port}"),
            ),
            CallError::TryAgain => error(
                reason::CLUSTER_DOWN,
                "the slot is moving and its keys are on two nodes",
            ),
        }
    }
}

impl From<StoreError> for CallError {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

/// Returns an error with this reason.
pub(crate) fn error(reason: Reason, message: &str) -> StoreError {
    StoreError {
        reason,
        message: message.into(),
    }
}

/// Returns the error for a reply of the wrong type.
pub(crate) fn unexpected(what: &str) -> StoreError {
    bad_response(&format!("{what} gave an unexpected reply"))
}

/// Returns the error for a malformed reply.
pub(crate) fn bad_response(message: &str) -> StoreError {
    error(Reason::BAD_RESPONSE, message)
}

/// Returns the error for a reply that did not come in time.
pub(crate) fn no_answer(what: &str) -> StoreError {
    error(
        Reason::TIMEOUT,
        &format!("{what} did not answer within the deadline"),
    )
}

/// Classifies the error of a command.
pub(crate) fn call_error(cause: &RedisError) -> CallError {
    let (code, detail) = code_and_detail(cause);
    match code.as_str() {
        "NOSCRIPT" => return CallError::NoScript,
        "TRYAGAIN" => return CallError::TryAgain,
        "MOVED" | "ASK" => {
            if let Some(address) = redirect(&detail) {
                return if code == "MOVED" {
                    CallError::Moved(address)
                } else {
                    CallError::Ask(address)
                };
            }
        }
        "READONLY" => return CallError::ReadOnly(store_error(cause)),
        _ => {}
    }
    CallError::Failed(store_error(cause))
}

/// Returns an error of the client library as one of a store.
pub(crate) fn store_error(cause: &RedisError) -> StoreError {
    let (code, detail) = code_and_detail(cause);
    let reason = match code.as_str() {
        "OOM" => reason::OOM,
        "MISCONF" => reason::MISCONF,
        "NOAUTH" | "WRONGPASS" => reason::NOAUTH,
        "NOPERM" => reason::NOPERM,
        "ERR" if is_permission_error(&detail) => reason::NOPERM,
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

/// Returns whether a script failed because the user lacks a permission. Redis 7.0 and later
/// versions report it differently.
fn is_permission_error(detail: &str) -> bool {
    ["The user executing the script can't", "ACL failure"]
        .iter()
        .any(|text| detail.contains(text))
}

/// Returns whether the server itself reported the error, so that the connection still works.
pub(crate) fn is_server_error(cause: &RedisError) -> bool {
    cause.clone().into_server_errors().is_some()
}

/// Returns whether a call failed because the server lacks the script.
pub(crate) fn is_missing_script(error: &StoreError) -> bool {
    error.message == MISSING_SCRIPT
}

/// Returns whether the server did not answer as a Redis server does.
pub(crate) fn is_no_answer(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::TIMEOUT | reason::REDIS_ERROR | Reason::BAD_RESPONSE
    )
}

/// Returns the server's error code and message; empty if the server sent none.
fn code_and_detail(cause: &RedisError) -> (String, String) {
    let errors = cause.clone().into_server_errors();
    match errors.as_deref().and_then(<[_]>::first) {
        Some((_, error)) => {
            let detail = error.details().unwrap_or_default();
            (error.code().to_owned(), detail.to_owned())
        }
        None => {
            let detail = cause.detail().unwrap_or_default();
            let code = cause.code().unwrap_or_default();
            (code.to_owned(), detail.to_owned())
        }
    }
}

/// Parses `3999 127.0.0.1:6381`, where the host may be an IPv6 address.
fn redirect(detail: &str) -> Option<Address> {
    let (_, address) = detail.split_once(' ')?;
    let (host, port) = address.trim().rsplit_once(':')?;
    Some((host.to_owned(), port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(text: &str) -> RedisError {
        let mut parser = redis::Parser::new();
        let value = parser.parse_value(format!("-{text}\r\n").as_bytes());
        value.unwrap().extract_error().unwrap_err()
    }

    #[test]
    fn each_server_error_has_its_label() {
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
            let error = store_error(&reported(text));
            assert_eq!(error.reason, reason, "{text}");
            assert_eq!(error.message, text);
        }
    }

    #[test]
    fn redirections_are_parsed() {
        let to = |host: &str, port| (host.to_owned(), port);
        assert_eq!(
            call_error(&reported("MOVED 3999 127.0.0.1:6381")),
            CallError::Moved(to("127.0.0.1", 6381))
        );
        assert_eq!(
            call_error(&reported("ASK 12 ::1:7000")),
            CallError::Ask(to("::1", 7000))
        );
        assert_eq!(
            call_error(&reported("NOSCRIPT No matching script.")),
            CallError::NoScript
        );
        assert_eq!(
            call_error(&reported("TRYAGAIN Multiple keys")),
            CallError::TryAgain
        );
        // Without an address it is an error like any other.
        let odd = call_error(&reported("MOVED nowhere"));
        assert!(matches!(odd, CallError::Failed(_)), "{odd:?}");
    }
}
