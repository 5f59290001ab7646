//! Why a request cannot be counted.

use thiserror::Error;

use crate::reader::{JsonFault, MAX_DEPTH};

/// Why a request cannot be counted. The message suits the client that sent it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The body is not UTF-8.
    #[error("the body is not UTF-8: byte {at} begins no character")]
    NotUtf8 {
        /// How many bytes precede the fault.
        at: usize,
    },
    /// The body is not JSON.
    #[error("the body is not JSON: expected {expected} at byte {at}")]
    NotJson {
        /// How many bytes precede the fault.
        at: usize,
        /// The expected syntax.
        expected: &'static str,
    },
    /// The body is nested too deep.
    #[error("the body is nested deeper than {MAX_DEPTH} levels at byte {at}")]
    TooDeep {
        /// How many bytes precede the fault.
        at: usize,
    },
    /// The body or its member `stream_options` has too many members.
    #[error("the body or its member `stream_options` has more than {most} members")]
    TooManyMembers {
        /// How many there may be.
        most: u32,
    },
    /// The body is JSON, but not an object.
    #[error("the body must be a JSON object")]
    NotAnObject,
    /// A member occurs twice, and servers differ in which one they take.
    #[error("the member `{member}` occurs twice; send it once")]
    Duplicate {
        /// The member.
        member: &'static str,
    },
    /// A member differs from a known one in case only, which some servers ignore.
    #[error("the member {found:?} must be written `{member}`")]
    Spelling {
        /// The member as it was sent.
        found: String,
        /// The known member.
        member: &'static str,
    },
    /// A member has a value that cannot be counted.
    #[error("the member `{member}` must be {expected}, not {found}")]
    Value {
        /// The member.
        member: &'static str,
        /// The values it may have.
        expected: &'static str,
        /// The value that was sent, or its kind.
        found: String,
    },
}

impl From<JsonFault> for RequestError {
    fn from(fault: JsonFault) -> Self {
        match fault {
            JsonFault::Syntax { at, expected } => Self::NotJson { at, expected },
            JsonFault::TooDeep { at } => Self::TooDeep { at },
        }
    }
}
