//! `CheckRateLimit`, `Report`, `Reserve` and `Commit`.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use fluxgate_core::{Decision, HoldId, Outcome, RequestContext, RequestContextBuilder, Settlement};
use fluxgate_http::HeaderFamilies;
use fluxgate_http::server::{Listener, Origin};
use prost::Message;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::{Request, Status};
use tower_service::Service;

use super::messages::{
    CommitRequest, CommitResponse, KUADRANT_SERVICE, ReserveRequest, ReserveResponse,
};
use crate::engine::{Engine, EngineError};
use crate::grpc::messages::{Code, RateLimitDescriptor, RateLimitRequest, RateLimitResponse};
use crate::grpc::request::{contexts, contexts_of};
use crate::grpc::response::{DescriptorDecision, response};
use crate::grpc::unary::{self, BoxedFuture, UnaryMethod};

/// How long a reservation lives whose call does not say, and how long it may.
const DEFAULT_TTL: Duration = Duration::from_secs(60);
const TTL: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(24 * 60 * 60)];

/// `kuadrant.service.ratelimit.v1.RateLimitService`
#[derive(Clone, Debug)]
pub(in crate::grpc) struct KuadrantService {
    engine: Arc<Engine>,
    headers: HeaderFamilies,
}

impl NamedService for KuadrantService {
    const NAME: &'static str = KUADRANT_SERVICE;
}

impl Service<http::Request<Body>> for KuadrantService {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxedFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        match request.uri().path().rsplit('/').next() {
            Some("CheckRateLimit") => self.serve(request, |service, request| {
                Box::pin(async move { service.check_rate_limit(&request).await })
            }),
            Some("Report") => self.serve(request, |service, request| {
                Box::pin(async move { service.report(&request).await })
            }),
            Some("Reserve") => self.serve(request, |service, request| {
                Box::pin(async move { service.reserve(&request).await })
            }),
            Some("Commit") => self.serve(request, |service, request| {
                Box::pin(async move { service.commit(&request).await })
            }),
            _ => {
                let status = Status::unimplemented(
                    "the methods are CheckRateLimit, Report, Reserve and Commit",
                );
                Box::pin(async { Ok(status.into_http()) })
            }
        }
    }
}

/// One of the methods.
struct Method<F> {
    service: KuadrantService,
    run: F,
}

impl<Q, A, F> UnaryMethod<Q> for Method<F>
where
    A: Message + 'static,
    F: Fn(KuadrantService, Request<Q>) -> BoxedFuture<A, Status> + Send + 'static,
{
    type Answer = A;

    fn answer(&self, request: Request<Q>) -> BoxedFuture<A, Status> {
        (self.run)(self.service.clone(), request)
    }
}

impl KuadrantService {
    pub(in crate::grpc) fn new(engine: Arc<Engine>) -> Self {
        let headers = HeaderFamilies::default();
        Self { engine, headers }
    }

    fn serve<Q, A, F>(
        &self,
        request: http::Request<Body>,
        run: F,
    ) -> BoxedFuture<http::Response<Body>, Infallible>
    where
        Q: Message + Default + 'static,
        A: Message + 'static,
        F: Fn(Self, Request<Q>) -> BoxedFuture<A, Status> + Send + 'static,
    {
        let service = self.clone();
        let method = Method { service, run };
        Box::pin(async { Ok(unary::call::<Q, _>(request, method).await) })
    }

    /// Decides without charging.
    pub(in crate::grpc) async fn check_rate_limit(
        &self,
        request: &Request<RateLimitRequest>,
    ) -> Result<RateLimitResponse, Status> {
        let message = request.get_ref();
        let contexts = contexts(message).map_err(invalid)?;
        let domain = name_of(&message.domain)?;
        let decisions = self.engine.peek_all(domain, &contexts).await;
        Ok(self.response(&decisions.map_err(unavailable)?))
    }

    /// Charges what has been used, whether or not it fits.
    pub(in crate::grpc) async fn report(
        &self,
        request: &Request<RateLimitRequest>,
    ) -> Result<RateLimitResponse, Status> {
        let message = request.get_ref();
        let contexts = contexts(message).map_err(invalid)?;
        let origin = Origin::with_headers(Listener::Grpc, request.metadata().as_ref());
        let decisions = self.charge(&message.domain, &contexts, &origin).await?;
        let mut response = self.response(&decisions);
        // The request is over: that a limit is exceeded now refuses nothing. Each status has it.
        response.overall_code = code_of_report(&decisions).into();
        Ok(response)
    }

    /// Holds an amount until it is committed.
    pub(in crate::grpc) async fn reserve(
        &self,
        request: &Request<ReserveRequest>,
    ) -> Result<ReserveResponse, Status> {
        let message = request.get_ref();
        let ttl = match &message.ttl {
            Some(ttl) => ttl_of(ttl)?,
            None => DEFAULT_TTL,
        };
        let descriptors = (&message.domain[..], &message.descriptors[..]);
        let contexts = with_cost(descriptors, message.amount, |context| context.hold(ttl))?;
        let origin = Origin::with_headers(Listener::Grpc, request.metadata().as_ref());
        let domain = name_of(&message.domain)?;
        let decisions = self.engine.check_all_now(domain, &contexts, &origin).await;
        let decisions = decisions.map_err(unavailable)?;
        let hold = decisions.iter().find_map(Decision::hold);
        let code = if decisions.iter().all(Decision::allowed) {
            Code::Ok
        } else {
            Code::OverLimit
        };
        Ok(ReserveResponse {
            code: code.into(),
            reservation_id: hold.map(|hold| hold.to_string()).unwrap_or_default(),
        })
    }

    /// Settles a reservation with the real cost.
    pub(in crate::grpc) async fn commit(
        &self,
        request: &Request<CommitRequest>,
    ) -> Result<CommitResponse, Status> {
        let message = request.get_ref();
        let amount = message.actual_amount;
        let code = if message.reservation_id.is_empty() {
            let descriptors = (&message.domain[..], &message.descriptors[..]);
            let contexts = with_cost(descriptors, amount, |context| context)?;
            let origin = Origin::with_headers(Listener::Grpc, request.metadata().as_ref());
            let decisions = self.charge(&message.domain, &contexts, &origin).await?;
            code_of_report(&decisions)
        } else {
            let id = str::from_utf8(&message.reservation_id).ok();
            let settled = match id.and_then(|id| id.parse::<HoldId>().ok()) {
                Some(hold) => self.engine.settle(hold, Settlement::Cost(amount)).await,
                None => Ok(None),
            };
            if settled.map_err(unavailable)?.is_none() {
                return Err(Status::not_found(
                    "there is no such reservation: it was committed, has expired or never existed",
                ));
            }
            Code::Ok
        };
        Ok(CommitResponse { code: code.into() })
    }

    fn response(&self, decisions: &[Decision]) -> RateLimitResponse {
        let decisions = decisions.iter().map(DescriptorDecision::ByRules);
        response(&decisions.collect::<Vec<_>>(), self.headers)
    }

    async fn charge(
        &self,
        domain: &[u8],
        contexts: &[RequestContext<'_>],
        origin: &Origin<'_>,
    ) -> Result<Vec<Decision>, Status> {
        let domain = name_of(domain)?;
        let decisions = self.engine.report_all(domain, contexts, origin).await;
        decisions.map_err(unavailable)
    }
}

/// Returns the name of a rule set.
fn name_of(domain: &[u8]) -> Result<&str, Status> {
    str::from_utf8(domain).map_err(|_| Status::invalid_argument("`domain` is not UTF-8"))
}

/// Returns the code of a report: OK, unless nothing could be charged and `on_error` denies.
fn code_of_report(decisions: &[Decision]) -> Code {
    let mut decisions = decisions.iter();
    if decisions.any(|it| it.outcome() == Outcome::FailedClosed) {
        Code::OverLimit
    } else {
        Code::Ok
    }
}

/// Returns the context of each descriptor, with this cost.
fn with_cost<'m>(
    (domain, descriptors): (&[u8], &'m [RateLimitDescriptor]),
    cost: u64,
    customize: impl Fn(RequestContextBuilder<'m>) -> RequestContextBuilder<'m>,
) -> Result<Vec<RequestContext<'m>>, Status> {
    let contexts = contexts_of(domain, descriptors, None).map_err(invalid)?;
    let contexts = contexts.into_iter().map(|context| {
        let context = RequestContextBuilder::from(context).cost(cost);
        customize(context).build()
    });
    Ok(contexts.collect())
}

/// Returns the lifetime of a reservation. 0 is that of calls that do not say.
fn ttl_of(ttl: &prost_types::Duration) -> Result<Duration, Status> {
    let nanos = u32::try_from(ttl.nanos)
        .ok()
        .filter(|it| *it < 1_000_000_000);
    let ttl = u64::try_from(ttl.seconds).ok().zip(nanos);
    let Some((seconds, nanos)) = ttl else {
        return Err(Status::invalid_argument("`ttl` must not be negative"));
    };
    let ttl = Duration::new(seconds, nanos);
    let [least, most] = TTL;
    Ok(if ttl.is_zero() {
        DEFAULT_TTL
    } else {
        ttl.clamp(least, most)
    })
}

fn invalid(bad: impl std::fmt::Display) -> Status {
    Status::invalid_argument(bad.to_string())
}

fn unavailable(error: EngineError) -> Status {
    Status::unavailable(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes_are_those_of_holds() {
        let ttl = |seconds, nanos| ttl_of(&prost_types::Duration { seconds, nanos });
        for (seconds, nanos, expected) in [
            (0, 0, DEFAULT_TTL),
            (0, 1, TTL[0]),
            (0, 500_000_000, TTL[0]),
            (1, 500_000_000, Duration::from_millis(1_500)),
            (i64::MAX, 0, TTL[1]),
        ] {
            assert_eq!(ttl(seconds, nanos).unwrap(), expected);
        }
        for (seconds, nanos) in [(-1, 0), (0, -1), (1, 1_000_000_000), (i64::MIN, i32::MIN)] {
            assert_eq!(
                ttl(seconds, nanos).unwrap_err().code(),
                tonic::Code::InvalidArgument
            );
        }
    }
}
