//! The access log: one JSON line for each request to the gateway.
//!
//! A thread that serves requests appends lines to a buffer of its own, and another thread writes the
//! buffers. So no request waits for a disk: lines that do not fit into the buffer are lost, and
//! counted. The thread is not that of the service's own log, which must be written even if the disk
//! of this one is full.

mod buffer;
mod line;
mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fluxgate_core::Percent;
use fluxgate_gateway::{EndedRequest, RequestObserver};

use super::clock;
use crate::config::AccessLogFile;
use crate::identities::Identities;
use buffer::Buffers;
pub(crate) use writer::AccessLogError;
pub(super) use writer::AccessLogWriter;
use writer::Output;

/// Writes the access log.
#[derive(Debug)]
pub(crate) struct AccessLog {
    identities: Arc<Identities>,
    sample: Percent,
    buffers: Arc<Buffers>,
    /// Lines that were lost.
    lost: Arc<AtomicU64>,
}

impl AccessLog {
    /// Opens the log. Dropping the writer writes the lines that are left.
    pub(super) fn open(
        file: &AccessLogFile,
        sample: Percent,
        identities: Arc<Identities>,
        lost: Arc<AtomicU64>,
    ) -> Result<(Self, AccessLogWriter), AccessLogError> {
        let output = Output::open(file)?;
        let buffers = Arc::new(Buffers::new());
        let writer = AccessLogWriter::start(output, &buffers, &lost)?;
        let log = Self {
            identities,
            sample,
            buffers,
            lost,
        };
        Ok((log, writer))
    }
}

impl RequestObserver for AccessLog {
    fn request_ended(&self, request: &EndedRequest<'_>) {
        let now = clock::unix_time();
        let is_lost = self.buffers.with_local(|buffer| {
            if !buffer.is_in_sample(self.sample) {
                return false;
            }
            let address = request.facts.client_ip;
            let address = address.map(|ip| buffer.address_in_logs(ip, &self.identities));
            !buffer.append(|text| line::write(request, address.as_deref(), now, text))
        });
        if is_lost {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}
