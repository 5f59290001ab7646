//! How an algorithm and a window are named on the wire and in states.

use fluxgate_core::{Algorithm, Limit};

/// The byte that states of buckets begin with.
pub(super) const BUCKET: u8 = 241;

/// The byte that names an algorithm in a check; counts begin with it, too.
pub(super) fn tag(limit: &Limit) -> u8 {
    match limit.algorithm() {
        Algorithm::LeakyBucket if limit.rate().shape() => 242,
        Algorithm::TokenBucket | Algorithm::LeakyBucket => BUCKET,
        Algorithm::FixedWindow => 243,
        Algorithm::SlidingWindow => 244,
        Algorithm::SlidingLog => 245,
    }
}

/// In whole milliseconds, W, or of a bucket `max_wait`.
pub(super) fn window_ms(limit: &Limit) -> u64 {
    let span = match limit.algorithm().is_bucket() {
        true => limit.rate().max_wait().unwrap_or_default(),
        false => limit.window(),
    };
    span.get() / 1000
}
