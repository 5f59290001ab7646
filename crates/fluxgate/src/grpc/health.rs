//! `grpc.health.v1.Health`. The status derives from the engine, which all cores share.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, Stream};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::Health;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use super::ext_authz::AUTHORIZATION_SERVICE;
use super::kuadrant::KUADRANT_SERVICE;
use super::messages::RATE_LIMIT_SERVICE;
use crate::engine::Engine;

/// How often a watch polls the status.
const POLL: Duration = Duration::from_millis(200);

/// The health service.
#[derive(Clone, Debug)]
pub(super) struct HealthService {
    engine: Arc<Engine>,
    /// Cancelled when the service shuts down.
    closing: CancellationToken,
}

#[tonic::async_trait]
impl Health for HealthService {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        match self.status_of(&request.get_ref().service) {
            ServingStatus::ServiceUnknown => Err(Status::not_found("there is no such service")),
            status => Ok(Response::new(response(status))),
        }
    }

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let service = request.into_inner().service;
        let watch = (self.clone(), service, None);
        let watch = stream::unfold(watch, |(health, service, last)| async move {
            let status = health.next_status(&service, last).await?;
            Some((Ok(response(status)), (health, service, Some(status))))
        });
        Ok(Response::new(Box::pin(watch)))
    }
}

fn response(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse {
        status: status.into(),
    }
}

impl HealthService {
    pub(super) fn new(engine: Arc<Engine>, closing: CancellationToken) -> Self {
        Self { engine, closing }
    }

    fn status_of(&self, service: &str) -> ServingStatus {
        let known = [
            "",
            RATE_LIMIT_SERVICE,
            AUTHORIZATION_SERVICE,
            KUADRANT_SERVICE,
        ];
        if !known.contains(&service) {
            ServingStatus::ServiceUnknown
        } else if self.engine.is_stopping()
            || self.engine.rules().is_none()
            || self.engine.awaits_store()
        {
            ServingStatus::NotServing
        } else {
            ServingStatus::Serving
        }
    }

    /// Waits for a status other than `last`. Returns `None` when the service shuts down.
    async fn next_status(
        &self,
        service: &str,
        last: Option<ServingStatus>,
    ) -> Option<ServingStatus> {
        loop {
            let status = self.status_of(service);
            if Some(status) != last {
                return Some(status);
            }
            if self.closing.is_cancelled() {
                return None;
            }
            tokio::select! {
                () = self.closing.cancelled() => {}
                () = tokio::time::sleep(POLL) => {}
            }
        }
    }
}
