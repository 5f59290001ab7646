//! The gateway: what all connections share.

use std::sync::Arc;

use fluxgate_http::TrustError;
use fluxgate_http::server::DescriptorShare;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::TokioTimer;

use crate::admission::AdmissionPolicy;
use crate::config::{Config, Limits, Timeouts};
use crate::engine::Engine;
use crate::forward::Forwarder;
use crate::timeouts::StreamExecutor;
use crate::upstream::{ConnectionLimit, TlsClients, pool};

/// Forwards requests. There is one for all cores.
#[derive(Debug)]
pub struct Gateway<E> {
    pub(crate) engine: Arc<E>,
    pub(crate) policy: AdmissionPolicy<E>,
    pub(crate) timeouts: Timeouts,
    pub(crate) limits: Limits,
    pub(crate) builders: HttpBuilders,
    pub(crate) forwarder: Forwarder,
}

impl<E: Engine> Gateway<E> {
    /// Creates a gateway. `descriptors` are for connections to upstreams.
    ///
    /// # Errors
    /// If an upstream is reached over TLS and no certificate authorities can be read.
    pub fn new(
        config: Config,
        engine: Arc<E>,
        descriptors: DescriptorShare,
    ) -> Result<Self, TrustError> {
        let Config {
            routes,
            timeouts,
            limits,
            llm_buffer,
        } = config;
        let tls = TlsClients::new(routes.iter().flat_map(|route| &route.upstreams))?;
        Ok(Self {
            policy: AdmissionPolicy::new(routes, &limits, llm_buffer, Arc::clone(&engine)),
            engine,
            timeouts,
            limits,
            builders: HttpBuilders::new(&limits, &timeouts),
            forwarder: Forwarder {
                timeouts,
                connections: Arc::new(ConnectionLimit::new(&limits, descriptors)),
                tls,
            },
        })
    }

    /// Closes idle connections of this core to upstreams. Never returns.
    pub async fn close_idle_upstreams(&self) {
        pool::close_idle(&self.forwarder.connections, self.timeouts.idle).await;
    }
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
