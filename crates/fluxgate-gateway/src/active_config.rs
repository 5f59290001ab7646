//! The active configuration. A reload replaces it as a whole; what has begun ends on the one it
//! began with.

use hyper::server::conn::{http1, http2};
use hyper_util::rt::TokioTimer;

use crate::admission::AdmissionPolicy;
use crate::config::{Limits, Timeouts};
use crate::forward::Forwarder;
use crate::timeouts::StreamExecutor;

/// The active configuration. Requests take their routes from the one that they find at their
/// start, and connections their timeouts and limits.
#[derive(Debug)]
pub(crate) struct ActiveConfig<E> {
    pub(crate) policy: AdmissionPolicy<E>,
    pub(crate) forwarder: Forwarder,
    pub(crate) timeouts: Timeouts,
    pub(crate) limits: Limits,
    pub(crate) builders: HttpBuilders,
}

/// The smallest buffer that hyper supports.
const MIN_BUFFER: usize = 8 * 1024;
/// The largest head if there is no limit.
const MAX_HEAD: u64 = 1 << 30;

/// How hyper serves connections.
#[derive(Clone, Debug)]
pub(crate) struct HttpBuilders {
    pub(crate) http1: http1::Builder,
    pub(crate) http2: http2::Builder<StreamExecutor>,
}

impl HttpBuilders {
    pub(crate) fn new(limits: &Limits, timeouts: &Timeouts) -> Self {
        let max_head = limits.header_bytes.map_or(MAX_HEAD, u64::from);
        let max_head = usize::try_from(max_head).unwrap_or(usize::MAX);
        let mut http1 = http1::Builder::new();
        // The connection has timeouts of its own.
        http1
            .timer(TokioTimer::new())
            .header_read_timeout(None)
            .max_header_size(max_head)
            .max_buf_size(max_head.max(MIN_BUFFER));
        let idle = timeouts.idle;
        let mut http2 = http2::Builder::new(StreamExecutor { idle });
        http2
            .timer(TokioTimer::new())
            .max_header_list_size(u32::try_from(max_head).unwrap_or(u32::MAX))
            .max_concurrent_streams(limits.streams)
            .keep_alive_interval(Some(idle))
            .keep_alive_timeout(timeouts.headers);
        Self { http1, http2 }
    }
}
