//! `grpc.health.v1.Health`: asks the engine each time, so that all cores tell
//! the same.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, Stream};
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::Health;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use super::{Grpc, RATE_LIMIT_SERVICE};

/// How often one who watches looks whether the rules are there.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// How the service is.
#[derive(Debug)]
pub(super) struct HealthOfService(pub(super) Arc<Grpc>);

#[tonic::async_trait]
impl Health for HealthOfService {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        match self.0.status_of(&request.get_ref().service) {
            ServingStatus::ServiceUnknown => Err(Status::not_found("there is no such service")),
            status => Ok(Response::new(answer(status))),
        }
    }

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let service = request.into_inner().service;
        let watch = (Arc::clone(&self.0), service, None);
        let watch = stream::unfold(watch, |(grpc, service, told)| async move {
            let status = grpc.next_status(&service, told).await?;
            Some((Ok(answer(status)), (grpc, service, Some(status))))
        });
        Ok(Response::new(Box::pin(watch)))
    }
}

fn answer(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse {
        status: status.into(),
    }
}

impl Grpc {
    fn status_of(&self, service: &str) -> ServingStatus {
        if !["", RATE_LIMIT_SERVICE].contains(&service) {
            ServingStatus::ServiceUnknown
        } else if self.closing.is_cancelled()
            || self.engine.rules().is_none()
            || self.engine.needs_store()
        {
            ServingStatus::NotServing
        } else {
            ServingStatus::Serving
        }
    }

    /// Waits until there is something else to tell than what was `told`. There
    /// is nothing more to tell when the service ends.
    async fn next_status(
        &self,
        service: &str,
        told: Option<ServingStatus>,
    ) -> Option<ServingStatus> {
        loop {
            let status = self.status_of(service);
            if Some(status) != told {
                return Some(status);
            }
            if self.closing.is_cancelled() {
                return None;
            }
            tokio::select! {
                () = self.closing.cancelled() => {}
                () = tokio::time::sleep(LOOK_AGAIN) => {}
            }
        }
    }
}
