//! Why a request is not forwarded, or not answered by an upstream.

use std::io;

use http::StatusCode;

use crate::http::Problem;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Trouble {
    /// Two parsers could read it in two ways.
    #[error("the request is ambiguous: {0}")]
    Ambiguous(&'static str),
    /// The head cannot be read.
    #[error("the request cannot be read")]
    Unreadable,
    /// The head is larger than is allowed.
    #[error("the head of the request is too large")]
    HeadTooLarge,
    /// The target is longer than anything that is known.
    #[error("the target of the request is too long")]
    TargetTooLong,
    /// `CONNECT`.
    #[error("CONNECT is not served: this is no forward proxy")]
    Connect,
    /// Something else than `100-continue`.
    #[error("Expect says what nobody here knows")]
    Expectation,
    /// No route matches.
    #[error("no route matches")]
    NoRoute,
    /// The rules are not there yet.
    #[error("the rules are not loaded yet")]
    NotReady,
    /// There are as many connections to upstreams as there may be.
    #[error("too many requests are under way")]
    Busy,
    /// The body is larger than is allowed.
    #[error("the body is larger than {0} bytes")]
    TooLarge(u64),
    /// The client stopped sending in the middle.
    #[error("the body stopped coming")]
    BodyTimeout,
    /// The client broke off, or its body is malformed.
    #[error("the body broke off")]
    BodyBroken,
    /// An upstream cannot be reached.
    #[error("the upstream cannot be reached")]
    Unreachable(#[source] io::Error),
    /// It cannot be reached in time.
    #[error("the upstream cannot be reached in time")]
    ConnectTimeout,
    /// It was reached, and gave no answer or none that can be read.
    #[error("the upstream gave no good answer")]
    BadAnswer(#[source] hyper::Error),
    /// It was reached, and the connection ended before an answer.
    #[error("the upstream gave no answer")]
    Silence(#[source] io::Error),
    /// Its answer cannot be read, or in more ways than one.
    #[error("the upstream gave no good answer: {0}")]
    Malformed(&'static str),
    /// It gave an answer that it was not asked for.
    #[error("the upstream changes protocols unasked")]
    Unasked,
    /// It does not begin to answer.
    #[error("the upstream does not answer in time")]
    AnswerTimeout,
}

impl Trouble {
    /// How it is told.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Ambiguous(_) | Self::Unreadable | Self::BodyBroken => StatusCode::BAD_REQUEST,
            Self::HeadTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::TargetTooLong => StatusCode::URI_TOO_LONG,
            Self::Connect => StatusCode::METHOD_NOT_ALLOWED,
            Self::Expectation => StatusCode::EXPECTATION_FAILED,
            Self::NoRoute => StatusCode::NOT_FOUND,
            Self::NotReady | Self::Busy => StatusCode::SERVICE_UNAVAILABLE,
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::BodyTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::Unreachable(_)
            | Self::BadAnswer(_)
            | Self::Silence(_)
            | Self::Malformed(_)
            | Self::Unasked => StatusCode::BAD_GATEWAY,
            Self::ConnectTimeout | Self::AnswerTimeout => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    /// The answer that tells it. Causes are for the log only.
    pub(crate) fn problem(&self) -> Problem {
        let detail = match self {
            Self::BadAnswer(_) | Self::Silence(_) | Self::Malformed(_) | Self::Unasked => {
                "the upstream gave no good answer".into()
            }
            other => other.to_string(),
        };
        Problem::new(self.status(), detail)
    }

    /// What connecting ended with.
    pub(super) fn connecting(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::TimedOut => Self::ConnectTimeout,
            _ => Self::Unreachable(error),
        }
    }
}
