//! Kuadrant's `RateLimitService`: checks before a request, reports and reservations of costs that
//! are known after it.

mod messages;
mod service;

pub(super) use messages::KUADRANT_SERVICE;
#[cfg(any(test, feature = "fuzzing"))]
pub(super) use messages::{CommitRequest, ReserveRequest};
pub(super) use service::KuadrantService;
