//! What is learned about a request on its way, and reported when it has ended.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fluxgate_core::Decision;
use fluxgate_http::RequestHead;
use fluxgate_http::server::Origin;
use quanta::Instant;

use crate::admission::Refusal;
use crate::counts::ResponseCounts;
use crate::engine::{EndedRequest, RequestFacts, RequestObserver, RequestTrace};
use crate::forward::Attempts;
use crate::received_request::ReceivedRequest;
use crate::routes::Route;
use crate::upstream::Assignment;

/// The status that is counted and logged if the client has gone before there was a response.
const CLIENT_GONE: u16 = 499;

/// What is known of a request so far.
#[derive(Debug)]
pub(crate) struct RequestRecord {
    started: Instant,
    /// `None` until there is a response.
    pub(crate) status: Option<u16>,
    /// The bytes of the body that were received.
    pub(crate) bytes_in: u64,
    /// The bytes of the body that were sent to the client.
    pub(crate) bytes_out: u64,
    pub(crate) attempts: Attempts,
    /// What only an observer needs, if there is one.
    details: Option<Box<Details>>,
}

#[derive(Debug, Default)]
struct Details {
    upstream: Option<Box<str>>,
    decision: Option<Decision>,
    error: Option<String>,
    trace: Option<RequestTrace>,
}

impl RequestRecord {
    /// Starts the record of a request that has just been received.
    pub(crate) fn start(is_observed: bool) -> Self {
        Self {
            started: Instant::now(),
            status: None,
            bytes_in: 0,
            bytes_out: 0,
            attempts: Attempts::default(),
            details: is_observed.then(Box::default),
        }
    }

    /// Records the span of the request, if it is traced.
    pub(crate) fn traced(&mut self, trace: Option<&RequestTrace>) {
        if let Some(details) = self.details.as_mut().filter(|_| trace.is_some()) {
            details.trace = trace.cloned();
        }
    }

    /// Records what the last filter has decided.
    pub(crate) fn decided(&mut self, decision: Option<&Decision>) {
        if let Some(details) = &mut self.details {
            details.decision = decision.cloned();
        }
    }

    /// Records which upstream the request was sent to last.
    pub(crate) fn assigned(&mut self, assignment: Option<&Assignment>) {
        if let Some(details) = &mut self.details {
            details.upstream = assignment.map(|it| it.label().into());
        }
    }

    /// Records why there is no response of an upstream, or no complete one. The first error
    /// counts.
    pub(crate) fn failed(&mut self, error: impl FnOnce() -> String) {
        if let Some(details) = &mut self.details
            && details.error.is_none()
        {
            details.error = Some(error());
        }
    }

    /// Records that the gateway answers the request itself, after the last filter has decided this.
    pub(crate) fn refused(&mut self, refusal: &Refusal<'_>, decision: Option<&Decision>) {
        if decision.is_some() {
            self.decided(decision);
        }
        if let Some(error) = refusal.error() {
            self.failed(|| error.with_cause());
        }
    }

    /// Counts the request, and reports it to the observer, if there is one.
    pub(crate) fn finish(
        &self,
        counts: &ResponseCounts,
        route: Option<&Route>,
        observer: Option<(&dyn RequestObserver, RequestFacts<'_>)>,
    ) {
        let took = Instant::now().saturating_duration_since(self.started);
        let status = self.status.unwrap_or(CLIENT_GONE);
        counts.count(status, took);
        let Some((observer, facts)) = observer else {
            return;
        };
        let nothing = Details::default();
        let details = self.details.as_deref().unwrap_or(&nothing);
        let gone = "the client has disconnected";
        let error = details.error.as_deref();
        observer.request_ended(&EndedRequest {
            facts,
            trace: details.trace.as_ref(),
            route: route.map(|route| &*route.id),
            status,
            bytes_in: self.bytes_in,
            bytes_out: self.bytes_out,
            took,
            upstream: details.upstream.as_deref(),
            upstream_took: self.attempts.last,
            attempts: self.attempts.count,
            decision: details.decision.as_ref(),
            error: error.or(self.status.is_none().then_some(gone)),
        });
    }
}

/// Returns why a body has ended early.
pub(crate) fn early_end(is_cut_off: bool) -> &'static str {
    if is_cut_off {
        "the upstream did not send the whole response"
    } else {
        "the client did not read the whole response"
    }
}

/// Returns the facts of a request that an observer gets.
pub(crate) fn facts_of<'a, H: RequestHead>(
    request: &ReceivedRequest<'a, H>,
    protocol: &'static str,
    route: Option<&Route>,
    origin: &'a Origin<'_>,
) -> RequestFacts<'a> {
    let peer = request.client.peer.ip();
    let filter = route.and_then(|route| route.filters.first());
    RequestFacts {
        method: request.head.method(),
        path: request.path.raw(),
        host: request.host,
        protocol,
        scheme: request.client.scheme(),
        client_ip: filter.map_or(Some(peer), |filter| {
            filter.client_address(request.head, Some(peer))
        }),
        user_agent: request.head.first_line("user-agent"),
        request_id: origin.request_id(),
        traceparent: origin.traceparent,
    }
}

/// The facts of a request that outlive it.
#[derive(Debug)]
struct OwnedFacts {
    /// Method, path, host, request id and traceparent, one after the other.
    text: Box<str>,
    /// Where they end.
    ends: [usize; 5],
    has_traceparent: bool,
    protocol: &'static str,
    scheme: &'static str,
    client_ip: Option<IpAddr>,
    user_agent: Option<Box<[u8]>>,
}

impl OwnedFacts {
    fn new(facts: &RequestFacts<'_>) -> Self {
        let traceparent = facts.traceparent;
        let texts = [
            facts.method,
            facts.path,
            facts.host,
            facts.request_id,
            traceparent.unwrap_or_default(),
        ];
        let mut end = 0;
        let ends = texts.map(|text| {
            end += text.len();
            end
        });
        Self {
            text: texts.concat().into(),
            ends,
            has_traceparent: traceparent.is_some(),
            protocol: facts.protocol,
            scheme: facts.scheme,
            client_ip: facts.client_ip,
            user_agent: facts.user_agent.map(Into::into),
        }
    }

    fn borrow(&self) -> RequestFacts<'_> {
        let text = |index: usize| {
            let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
            &self.text[start..self.ends[index]]
        };
        RequestFacts {
            method: text(0),
            path: text(1),
            host: text(2),
            request_id: text(3),
            traceparent: self.has_traceparent.then(|| text(4)),
            protocol: self.protocol,
            scheme: self.scheme,
            client_ip: self.client_ip,
            user_agent: self.user_agent.as_deref(),
        }
    }
}

/// A record that is finished when it is dropped: at the end of the response, whatever the end is.
#[derive(Debug)]
pub(crate) struct OpenRecord {
    pub(crate) record: RequestRecord,
    /// The bytes of the request's body, which may still arrive while the response is sent.
    pub(crate) bytes_in: Arc<AtomicU64>,
    route: Option<Arc<Route>>,
    /// The counts of requests without a route.
    unrouted: Arc<ResponseCounts>,
    observer: Option<Arc<dyn RequestObserver>>,
    facts: Option<Box<OwnedFacts>>,
}

impl OpenRecord {
    /// Starts the record of a request that has just been received.
    pub(crate) fn start(
        unrouted: &Arc<ResponseCounts>,
        observer: Option<&Arc<dyn RequestObserver>>,
    ) -> Box<Self> {
        Box::new(Self {
            record: RequestRecord::start(observer.is_some()),
            bytes_in: Arc::default(),
            route: None,
            unrouted: Arc::clone(unrouted),
            observer: observer.map(Arc::clone),
            facts: None,
        })
    }

    /// Returns whether there is an observer, which needs the facts of the request.
    pub(crate) fn is_observed(&self) -> bool {
        self.observer.is_some()
    }

    /// Records the route of the request.
    pub(crate) fn routed(&mut self, route: Option<&Arc<Route>>) {
        self.route = route.map(Arc::clone);
    }

    /// Keeps the facts of the request.
    pub(crate) fn keep(&mut self, facts: &RequestFacts<'_>) {
        self.facts = Some(Box::new(OwnedFacts::new(facts)));
    }
}

impl Drop for OpenRecord {
    fn drop(&mut self) {
        let route = self.route.as_deref();
        let counts = route.map_or(&*self.unrouted, |route| &route.counts.responses);
        let facts = self.facts.as_deref().map(OwnedFacts::borrow);
        let observer = self.observer.as_deref().zip(facts);
        self.record.bytes_in = self.bytes_in.load(Ordering::Relaxed);
        self.record.finish(counts, route, observer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_kept_as_they_are() {
        for traceparent in [None, Some("00-1")] {
            let facts = RequestFacts {
                method: "GET",
                path: "/a/é",
                host: "",
                protocol: "HTTP/2",
                scheme: "https",
                client_ip: Some([127, 0, 0, 1].into()),
                user_agent: Some(b"\xff"),
                request_id: "id",
                traceparent,
            };
            assert_eq!(OwnedFacts::new(&facts).borrow(), facts);
        }
    }
}
