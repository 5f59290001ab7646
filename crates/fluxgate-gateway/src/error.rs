//! Why a request is not forwarded, or gets no response from an upstream.

use std::io;

use fluxgate_http::Problem;
use fluxgate_llm::RequestError;
use http::StatusCode;

use crate::observer::EjectionCause;

/// Why the gateway answers with an error of its own.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GatewayError {
    /// Two servers could read the request in different ways.
    #[error("the request is ambiguous: {0}")]
    Ambiguous(&'static str),
    /// The head cannot be parsed.
    #[error("the request cannot be parsed")]
    Unreadable,
    /// The head exceeds its limit.
    #[error("the head of the request is too large")]
    HeadTooLarge,
    /// The target exceeds the limit of the HTTP library.
    #[error("the target of the request is too long")]
    TargetTooLong,
    /// The method is `CONNECT`.
    #[error("CONNECT is not supported: this is not a forward proxy")]
    Connect,
    /// `Expect` is not `100-continue`.
    #[error("the only supported expectation is 100-continue")]
    Expectation,
    /// The token is invalid, and a filter refuses such requests.
    #[error("the token is invalid")]
    InvalidToken,
    /// A page of another site may not use the route.
    #[error("pages of this origin may not use this route")]
    ForeignOrigin,
    /// No route matches.
    #[error("no route matches")]
    NoRoute,
    /// The rules are not loaded yet.
    #[error("the rules are not loaded yet")]
    NotReady,
    /// All connections to upstreams are in use.
    #[error("too many requests are in flight")]
    Busy,
    /// The body exceeds its limit.
    #[error("the body is larger than {0} bytes")]
    BodyTooLarge(u64),
    /// The tokens of a call to a language model cannot be counted.
    #[error("{0}")]
    UncountableCall(RequestError),
    /// The messages of the Model Context Protocol in the body cannot be counted.
    #[error("{0}")]
    UncountableMessages(String),
    /// The headers of a call of that protocol contradict its body.
    #[error("the call is ambiguous: {0}")]
    ContradictingCall(&'static str),
    /// The body of a call is encoded.
    #[error("the body of a call must have no content encoding")]
    EncodedCall,
    /// The body of a call is not JSON in UTF-8, by its content type.
    #[error(
        "the body of a call must be JSON in UTF-8, with one Content-Type such as application/json"
    )]
    NotJsonCall,
    /// The route refuses requests that are no known calls.
    #[error("this is no known call to a language model")]
    UnknownCall,
    /// The bodies of other calls take all memory for them.
    #[error("too many bodies of calls are held; try again later")]
    BufferFull,
    /// The client stopped sending the body.
    #[error("the body was not received in time")]
    BodyTimeout,
    /// The client closed the connection within the body, or the body is malformed.
    #[error("the body is incomplete or malformed")]
    BodyAborted,
    /// The connection to the upstream was refused.
    #[error("the upstream cannot be reached")]
    Unreachable(#[source] io::Error),
    /// The upstream did not accept the connection in time.
    #[error("the upstream cannot be reached in time")]
    ConnectTimeout,
    /// The upstream closed the connection before it responded.
    #[error("the upstream sent no response")]
    NoResponse(#[source] io::Error),
    /// The response is malformed or ambiguous.
    #[error("the upstream sent no valid response: {0}")]
    BadResponse(&'static str),
    /// The upstream refused the request without processing it.
    #[error("the upstream refused the request")]
    Refused(#[source] io::Error),
    /// The upstream did not respond in time.
    #[error("the upstream did not respond in time")]
    ResponseTimeout,
    /// A gRPC request over HTTP/2 has an upstream that speaks HTTP/1.1.
    #[error("gRPC needs HTTP/2, which the upstream does not speak")]
    NeedsHttp2,
    /// A request to switch protocols has an upstream that speaks HTTP/2.
    #[error("the upstream speaks HTTP/2, which cannot switch to another protocol")]
    NeedsHttp1,
}

impl GatewayError {
    /// Returns the status of the response.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Ambiguous(_)
            | Self::Unreadable
            | Self::BodyAborted
            | Self::UncountableCall(_)
            | Self::UncountableMessages(_)
            | Self::ContradictingCall(_) => StatusCode::BAD_REQUEST,
            Self::EncodedCall | Self::NotJsonCall => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::HeadTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::TargetTooLong => StatusCode::URI_TOO_LONG,
            Self::Connect => StatusCode::METHOD_NOT_ALLOWED,
            Self::Expectation => StatusCode::EXPECTATION_FAILED,
            Self::InvalidToken => StatusCode::UNAUTHORIZED,
            Self::ForeignOrigin => StatusCode::FORBIDDEN,
            Self::NoRoute | Self::UnknownCall => StatusCode::NOT_FOUND,
            Self::NotReady | Self::Busy | Self::BufferFull => StatusCode::SERVICE_UNAVAILABLE,
            Self::BodyTooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::BodyTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::Unreachable(_)
            | Self::NoResponse(_)
            | Self::BadResponse(_)
            | Self::Refused(_) => StatusCode::BAD_GATEWAY,
            Self::NeedsHttp2 | Self::NeedsHttp1 => StatusCode::NOT_IMPLEMENTED,
            Self::ConnectTimeout | Self::ResponseTimeout => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    /// Returns whether the request was read to its end before it was refused.
    pub(crate) fn is_about_read_body(&self) -> bool {
        matches!(
            self,
            Self::UncountableCall(_) | Self::UncountableMessages(_) | Self::ContradictingCall(_)
        )
    }

    /// Returns after how many seconds the client may try again, if that is known to help.
    pub(crate) fn retry_after(&self) -> Option<u64> {
        // Bodies are sent on as they are complete, so memory is free again soon.
        matches!(self, Self::BufferFull).then_some(1)
    }

    /// Returns the problem that the client gets. Causes are only logged.
    pub(crate) fn problem(&self) -> Problem {
        let detail = match self {
            Self::NoResponse(_) | Self::BadResponse(_) => {
                "the upstream sent no valid response".into()
            }
            other => other.to_string(),
        };
        Problem::new(self.status(), detail)
    }

    /// Returns what takes an upstream out that fails with this error.
    pub(crate) fn ejection_cause(&self) -> EjectionCause {
        match self {
            Self::Unreachable(_) => EjectionCause::Connect,
            Self::ConnectTimeout | Self::ResponseTimeout => EjectionCause::Timeout,
            Self::NoResponse(_) | Self::Refused(_) => EjectionCause::Reset,
            _ => EjectionCause::Response,
        }
    }

    /// Returns the error with its cause, for logs.
    pub(crate) fn with_cause(&self) -> String {
        match std::error::Error::source(self) {
            Some(cause) => format!("{self}: {cause}"),
            None => self.to_string(),
        }
    }

    /// Returns the error of a connection attempt.
    pub(crate) fn connecting(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::TimedOut => Self::ConnectTimeout,
            _ => Self::Unreachable(error),
        }
    }
}
