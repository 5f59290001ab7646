//! Tokens of calls to language models: those that a request may use, and those that its answer
//! used.
//!
//! The crate reads requests and answers. It has no network and no limits. A gateway
//!
//! 1. finds the [`Api`] by the path and reads the [`Request`]. A request that cannot be read
//!    cannot be counted: answer it with 400 and the [`RequestError`], which names the member;
//! 2. reserves [`Request::total_tokens`], or [clamps](Request::clamp) the completion to what is
//!    left, and sends the body that [`Request::rewrite`] returns;
//! 3. passes a successful answer through a [`Meter`] and settles the reservation with its
//!    [`tokens`](Meter::tokens).
//!
//! A compressed answer cannot be read, so a gateway sends `Accept-Encoding: identity`.
//!
//! ```
//! use fluxgate_llm::{AnswerFormat, Api, Meter, MeterOutput, Request, Reserve};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let api = Api::of_path("/v1/chat/completions").ok_or("another path")?;
//! let body = br#"{"model":"m","stream":true,"max_tokens":50,
//!     "messages":[{"role":"user","content":"Hello!"}]}"#;
//! let request = Request::read(api, body, Reserve::default())?;
//! assert_eq!((request.prompt_tokens(), request.completion_tokens()), (11, 50));
//! let sent = request.rewrite(body).ok_or("nothing to change")?;
//! assert!(sent.ends_with(br#","stream_options":{"include_usage":true}}"#));
//!
//! let mut meter = Meter::new(request, AnswerFormat::Events);
//! let hi = b"data: {\"choices\":[{\"delta\":{\"content\":\"Hi!\"}}]}\n\n";
//! assert_eq!(meter.feed(hi), MeterOutput::Unchanged);
//! let usage = b"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2}}\n\n";
//! assert_eq!(meter.feed(usage), MeterOutput::Instead(Vec::new()));
//! assert_eq!(meter.feed(b"data: [DONE]\n\n"), MeterOutput::Unchanged);
//! assert!(meter.finish().is_empty());
//! assert_eq!(meter.tokens().total_tokens, 11);
//! # Ok(())
//! # }
//! ```
#![deny(missing_docs)]

mod answer;
mod api;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod members;
mod meter;
mod prompt;
mod reader;
mod request;
mod reserve;
mod stream;
mod text;
mod usage;
mod usage_tally;

pub use api::Api;
pub use error::RequestError;
pub use meter::{AnswerFormat, Meter, MeterOutput};
pub use prompt::{AUDIO_BYTES_PER_TOKEN, IMAGE_TOKENS, MESSAGE_TOKENS};
pub use request::Request;
pub use reserve::{Reserve, TokenUsage};

/// The reader of JSON, for calls of other protocols.
pub mod json {
    pub use crate::reader::{JsonFault, Kind, MAX_DEPTH, Reader};
    pub use crate::text::{JsonStr, reads_as};
}
