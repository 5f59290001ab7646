//! The ground floor: what the listeners share.

mod buffers;
mod closing;
mod descriptors;
mod header_values;
mod library_error;
mod origin;
mod prefixed_stream;
pub(crate) mod request_id;

use ::http::HeaderValue;
pub(crate) use fluxgate_tower::Problem;

pub(crate) use buffers::{Buffers, INPUT};
pub(crate) use closing::{LINGER, close_gracefully, send, until_closing};
pub(crate) use descriptors::{DescriptorPermit, DescriptorShare, raise_descriptor_limit};
pub(crate) use header_values::{content_length, wall_clock, write_date};
pub(crate) use library_error::{ReplacementResponse, closing_response, library_error};
pub(crate) use origin::{Listener, OUTCOME, Origin, TRACEPARENT};
pub(crate) use prefixed_stream::PrefixedStream;
pub(crate) use request_id::REQUEST_ID;

/// The media type of a problem document.
pub(crate) const PROBLEM_JSON: HeaderValue = HeaderValue::from_static(fluxgate_tower::PROBLEM_JSON);
