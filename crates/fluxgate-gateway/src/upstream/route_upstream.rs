//! What a route knows of one of its upstreams: how it did, and whether it is out.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use quanta::Instant;

use super::health::Health;
use crate::counts::{ResponseCounts, ResponseTotals, Samples};
use crate::observer::{EjectionCause, UpstreamChange, UpstreamObserver};

/// How long the counts of [`UpstreamStatus`] look back.
const STATUS_WINDOW: Duration = Duration::from_secs(60);

/// The load and the passive health of a server, shared by all routes that name it.
#[derive(Debug, Default)]
pub(crate) struct ServerState {
    /// No other server has it.
    pub(super) number: usize,
    /// Whether no route names it any more.
    is_removed: AtomicBool,
    /// Whether it chose HTTP/1.1 when it last could.
    pub(super) chose_http1: AtomicBool,
    /// Requests without a complete response.
    pub(super) outstanding: AtomicUsize,
    pub(super) health: Health,
    /// Since it was ejected: by which route's request, and why.
    ejection: Mutex<Option<Ejection>>,
}

impl ServerState {
    pub(super) fn new(number: usize) -> Self {
        Self {
            number,
            ..Self::default()
        }
    }

    /// Records that no route names it any more, so that no connection to it is kept.
    pub(super) fn remove(&self) {
        self.is_removed.store(true, Ordering::Relaxed);
    }

    /// Returns whether no route names it any more.
    pub(super) fn is_removed(&self) -> bool {
        self.is_removed.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
struct Ejection {
    route: Box<str>,
    reason: Box<str>,
    /// Whether it was reported. It is not if the upstream was out already.
    is_reported: bool,
}

/// The counters and the active health of an upstream of one route.
#[derive(Debug)]
pub(crate) struct RouteUpstream {
    route: Box<str>,
    /// The host and port.
    label: Box<str>,
    responses: ResponseCounts,
    /// Attempts without a valid response.
    failures: AtomicU64,
    ejections: [AtomicU64; EjectionCause::ALL.len()],
    /// Responses and failures at past points in time.
    samples: Samples<2>,
    /// Whether the active check fails.
    is_failing: AtomicBool,
    /// Why it fails.
    failing: Mutex<Option<Box<str>>>,
    observer: Arc<dyn UpstreamObserver>,
}

/// How an upstream of a route is doing.
#[derive(Clone, Debug)]
pub struct UpstreamStatus {
    /// The target, as the configuration names it.
    pub url: String,
    /// The host and port.
    pub label: String,
    /// Why it is out, if it is.
    pub out: Option<String>,
    /// The responses since the start.
    pub responses: ResponseTotals,
    /// How often it went out since the start, by cause.
    pub ejections: [u64; EjectionCause::ALL.len()],
    /// The requests that it was sent within the last minute.
    pub recent_requests: u64,
    /// Those without a valid response.
    pub recent_failures: u64,
}

impl RouteUpstream {
    pub(super) fn new(route: &str, label: &str, observer: Arc<dyn UpstreamObserver>) -> Self {
        Self {
            route: route.into(),
            label: label.into(),
            responses: ResponseCounts::new(),
            failures: AtomicU64::new(0),
            ejections: Default::default(),
            samples: Samples::new(),
            is_failing: AtomicBool::new(false),
            failing: Mutex::new(None),
            observer,
        }
    }

    /// Returns the host and port.
    pub(crate) fn label(&self) -> &str {
        &self.label
    }

    /// Returns whether the active check fails.
    pub(crate) fn is_failing(&self) -> bool {
        self.is_failing.load(Ordering::Relaxed)
    }

    /// Counts a response, or the status that the gateway makes of a failure.
    pub(crate) fn count_response(&self, status: u16, took: Duration) {
        self.responses.count(status, took);
    }

    /// Records a response: the server answers.
    pub(super) fn succeeded(&self, server: &ServerState) {
        if server.health.succeeded() {
            self.readmit(server);
        }
    }

    /// Records that an attempt failed, and ejects the server unless it is out already.
    pub(super) fn failed(
        &self,
        server: &ServerState,
        (now, was_probe): (u64, bool),
        cause: EjectionCause,
        why: impl FnOnce() -> String,
    ) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        if !server.health.failed(now, was_probe) {
            return;
        }
        let reason = why();
        let is_reported = !self.is_failing();
        if is_reported {
            self.report_out(cause, &reason);
        }
        *lock(&server.ejection) = Some(Ejection {
            route: self.route.clone(),
            reason: reason.into(),
            is_reported,
        });
    }

    #[cold]
    fn readmit(&self, server: &ServerState) {
        let ejection = lock(&server.ejection).take();
        // If its check fails, it is still out, and the check reports when it is back.
        if let Some(ejection) = ejection.filter(|it| it.is_reported && !self.is_failing()) {
            self.report_back(&ejection.route);
        }
    }

    /// Records that the active check fails.
    pub(super) fn check_failed(&self, server: &ServerState, why: String) {
        let was_out = self.is_failing.swap(true, Ordering::Relaxed) || server.health.is_ejected();
        if !was_out {
            self.report_out(EjectionCause::Check, &why);
        }
        *lock(&self.failing) = Some(why.into());
    }

    /// Records that the active check succeeds. Requests need not find out again.
    pub(super) fn check_succeeded(&self, server: &ServerState) {
        let was_failing = self.is_failing.swap(false, Ordering::Relaxed);
        *lock(&self.failing) = None;
        let was_ejected = server.health.succeeded();
        lock(&server.ejection).take();
        if was_failing || was_ejected {
            self.report_back(&self.route);
        }
    }

    /// Records that there is no active check any more.
    pub(super) fn check_removed(&self, server: &ServerState) {
        let was_failing = self.is_failing.swap(false, Ordering::Relaxed);
        *lock(&self.failing) = None;
        if was_failing && !server.health.is_ejected() {
            self.report_back(&self.route);
        }
    }

    fn report_out(&self, cause: EjectionCause, reason: &str) {
        self.ejections[cause as usize].fetch_add(1, Ordering::Relaxed);
        let (route, upstream) = (&*self.route, &*self.label);
        tracing::warn!(route, upstream, reason, "an upstream is out");
        self.observer.upstream_changed(&UpstreamChange {
            route,
            upstream,
            reason: Some(reason),
        });
    }

    fn report_back(&self, route: &str) {
        let upstream = &*self.label;
        tracing::info!(route, upstream, "an upstream is back");
        self.observer.upstream_changed(&UpstreamChange {
            route,
            upstream,
            reason: None,
        });
    }

    fn counters(&self) -> [u64; 2] {
        [
            self.responses.total(),
            self.failures.load(Ordering::Relaxed),
        ]
    }

    /// Keeps the counters of this moment, for those of the last minute.
    pub(super) fn sample(&self, now: Instant) {
        self.samples.push(now, self.counters());
    }

    pub(super) fn status(&self, server: &ServerState, url: String, now: Instant) -> UpstreamStatus {
        let ejection = || {
            let ejection = lock(&server.ejection);
            ejection.as_ref().map(|it| it.reason.to_string())
        };
        let out = if self.is_failing() {
            lock(&self.failing).as_deref().map(str::to_owned)
        } else if server.health.is_ejected() {
            ejection().or_else(|| Some("requests failed".to_owned()))
        } else {
            None
        };
        let [recent_requests, recent_failures] =
            self.samples.growth(now, STATUS_WINDOW, self.counters());
        UpstreamStatus {
            url,
            label: self.label.to_string(),
            out,
            responses: self.responses.totals(),
            ejections: std::array::from_fn(|cause| self.ejections[cause].load(Ordering::Relaxed)),
            recent_requests,
            recent_failures,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records the reports in order: the route, and the reason if the upstream is out.
    #[derive(Debug, Default)]
    struct Reports(Mutex<Vec<(String, Option<String>)>>);

    impl UpstreamObserver for Reports {
        fn upstream_changed(&self, change: &UpstreamChange<'_>) {
            assert_eq!(change.upstream, "h:1");
            let report = (change.route.to_owned(), change.reason.map(str::to_owned));
            lock(&self.0).push(report);
        }
    }

    impl Reports {
        fn take(&self) -> Vec<(String, Option<String>)> {
            std::mem::take(&mut *lock(&self.0))
        }
    }

    fn out(route: &str, reason: &str) -> (String, Option<String>) {
        (route.to_owned(), Some(reason.to_owned()))
    }

    fn back(route: &str) -> (String, Option<String>) {
        (route.to_owned(), None)
    }

    #[test]
    fn one_outage_is_reported_once_with_its_reason() {
        let (server, reports) = (ServerState::default(), Arc::new(Reports::default()));
        let of = |route| {
            let observer: Arc<dyn UpstreamObserver> = Arc::<Reports>::clone(&reports);
            RouteUpstream::new(route, "h:1", observer)
        };
        let (a, b) = (of("a"), of("b"));
        let fail = |route: &RouteUpstream, now, reason: &str| {
            let cause = EjectionCause::Connect;
            route.failed(&server, (now, false), cause, || reason.to_owned());
        };
        let reason = |route: &RouteUpstream| {
            let status = route.status(&server, String::new(), Instant::now());
            status.out
        };
        fail(&a, 0, "refused");
        fail(&b, 1, "again");
        fail(&b, 5000, "after the first ejection");
        assert_eq!(reports.take(), [out("a", "refused")]);
        assert_eq!(reason(&b).as_deref(), Some("refused"));
        // The route that noticed it is named.
        b.succeeded(&server);
        b.succeeded(&server);
        assert_eq!(reports.take(), [back("a")]);
        assert_eq!(reason(&a), None);

        fail(&a, 10_000, "refused");
        a.check_failed(&server, "status 503".into());
        a.succeeded(&server);
        a.check_failed(&server, "status 502".into());
        assert_eq!(reports.take(), [out("a", "refused")]);
        assert_eq!(reason(&a).as_deref(), Some("status 502"));
        assert_eq!(reason(&b), None);
        a.check_succeeded(&server);
        a.check_succeeded(&server);
        assert_eq!(reports.take(), [back("a")]);

        a.check_failed(&server, "status 503".into());
        fail(&a, 20_000, "refused");
        a.check_succeeded(&server);
        assert_eq!(reports.take(), [out("a", "status 503"), back("a")]);
        let status = a.status(&server, "u".into(), Instant::now());
        assert_eq!((status.out, status.recent_failures), (None, 3));
        assert_eq!(status.ejections, [2, 0, 0, 0, 1]);
    }
}
