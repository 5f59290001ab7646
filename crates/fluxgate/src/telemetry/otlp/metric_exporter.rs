//! Sends the metrics to a collector at intervals.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::collector::Collector;
use crate::telemetry::metrics::Metrics;

/// Sends the metrics at intervals.
#[derive(Debug)]
pub(super) struct MetricExporter {
    pub(super) collector: Collector,
    pub(super) interval: Duration,
    pub(super) metrics: Arc<Metrics>,
}

impl MetricExporter {
    /// Sends what `collect` returns at each interval, and once more at the end.
    pub(super) async fn run(
        mut self,
        collect: impl Fn() -> String + Send,
        ended: CancellationToken,
    ) {
        loop {
            let pause = tokio::time::sleep(self.interval);
            let is_last = ended.run_until_cancelled(pause).await.is_none();
            if !self.collector.send(collect()).await {
                self.metrics.exports_failed.fetch_add(1, Ordering::Relaxed);
            }
            if is_last {
                return;
            }
        }
    }
}
