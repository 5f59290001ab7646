//! What travels to the script and back, as plain bytes.
//!
//! A [`Request`] is one decision (or refund, or undo) encoded; several of them
//! make one call, see [`Call`], which takes its reply apart into one [`Answer`]
//! each, from which the core works out the verdicts.

mod answer;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod any_bytes;
mod call;
mod frame;
mod reply;
mod request;

pub(crate) use answer::Answer;
pub(crate) use call::Call;
use reply::parse_reply;
pub(crate) use request::{PlaceWanted, Request};

use fluxgate_core::{Reason, StoreError};

fn bad_response(message: &str) -> StoreError {
    StoreError {
        reason: Reason::BAD_RESPONSE,
        message: message.into(),
    }
}
