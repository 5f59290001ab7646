//! Tokens of calls to language models: what a request may use, and what its answer used.
//!
//! There is no network and no limit here, only what both sides of a call say. A gateway
//!
//! 1. finds the [`Api`] by the path and reads the [`Request`]. One that cannot be read cannot
//!    be counted: answer it with 400 and the [`RequestError`], which names the member;
//! 2. reserves [`Request::total_tokens`], or [clamps](Request::clamp) the completion to what is
//!    left, and sends what [`Request::rewrite`] returns;
//! 3. passes a successful answer through a [`Meter`] and settles the reservation with its
//!    [`tokens`](Meter::tokens).
//!
//! Compressed answers cannot be read, so a gateway sends `Accept-Encoding: identity`.
//!
//! ```
//! use fluxgate_llm::{AnswerFormat, Api, Meter, Passed, Request, Reserve};
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
//! assert_eq!(meter.feed(hi), Passed::Unchanged);
//! let usage = b"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2}}\n\n";
//! assert_eq!(meter.feed(usage), Passed::Instead(Vec::new()));
//! assert_eq!(meter.feed(b"data: [DONE]\n\n"), Passed::Unchanged);
//! assert!(meter.finish().is_empty());
//! assert_eq!(meter.tokens().total_tokens, 11);
//! # Ok(())
//! # }
//! ```
#![deny(missing_docs)]

mod answer;
mod api;
mod body;
mod error;
mod events;
mod facts;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod members;
mod meter;
mod observed;
mod prompt;
mod reader;
mod request;
mod reserve;
mod rewrite;
mod seen;
mod stream;
mod text;
mod usage;
mod usage_finder;
mod values;

pub use api::Api;
pub use error::RequestError;
pub use meter::{AnswerFormat, Meter, Passed};
pub use observed::TokenUsage;
pub use prompt::{AUDIO_BYTES_PER_TOKEN, IMAGE_TOKENS, MESSAGE_TOKENS};
pub use request::Request;
pub use reserve::Reserve;
