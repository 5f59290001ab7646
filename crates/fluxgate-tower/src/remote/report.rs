//! The report of the service, or of the local decision in its place.

use fluxgate_core::store::{Micros, Retry};
use fluxgate_core::{Decision, Outcome, Timestamp};
use http::StatusCode;

use super::response::CheckResponse;
use fluxgate_http::Report;

/// The report on a request, from the service or from the local decision in its place.
#[derive(Clone, Debug)]
pub struct RemoteReport(pub(super) DecidedBy);

#[derive(Clone, Debug)]
pub(super) enum DecidedBy {
    Service(CheckResponse),
    Local(Decision),
}

impl RemoteReport {
    fn map<T>(
        &self,
        service: impl FnOnce(&CheckResponse) -> T,
        local: impl FnOnce(&Decision) -> T,
    ) -> T {
        match &self.0 {
            DecidedBy::Service(response) => service(response),
            DecidedBy::Local(decision) => local(decision),
        }
    }
}

impl Report for RemoteReport {
    fn allowed(&self) -> bool {
        self.map(|response| response.allowed, Decision::allowed)
    }

    fn outcome(&self) -> Outcome {
        match &self.0 {
            DecidedBy::Service(response) => response.outcome,
            DecidedBy::Local(decision) => match decision.outcome() {
                // A rule that decides by itself decides the same everywhere.
                outcome @ (Outcome::Forbidden | Outcome::Exempt) => outcome,
                // The local rules decided in place of the service's.
                _ if decision.rules().next().is_some() => Outcome::Fallback,
                outcome => outcome,
            },
        }
    }

    fn forbidden_status(&self) -> Option<StatusCode> {
        match &self.0 {
            DecidedBy::Service(response) => response.forbidden_status,
            DecidedBy::Local(decision) => Report::forbidden_status(decision),
        }
    }

    fn delay(&self) -> Micros {
        self.map(|response| response.delay, Decision::delay_micros)
    }

    fn worth_waiting(&self) -> Option<Micros> {
        self.map(|_| None, Decision::worth_waiting)
    }

    fn max_wait(&self) -> Option<Micros> {
        self.map(|_| None, Decision::max_wait)
    }

    fn after(self, waited: Micros) -> Self {
        Self(match self.0 {
            DecidedBy::Service(response) => DecidedBy::Service(response.after(waited)),
            DecidedBy::Local(decision) => DecidedBy::Local(decision.after(waited)),
        })
    }

    fn into_denied(self) -> Self {
        Self(match self.0 {
            DecidedBy::Service(response) => DecidedBy::Service(response.into_denied()),
            DecidedBy::Local(decision) => DecidedBy::Local(decision.into_denied()),
        })
    }

    fn limit(&self) -> Option<u64> {
        self.map(|response| response.limit, Decision::limit)
    }

    fn remaining(&self) -> Option<u64> {
        self.map(|response| response.remaining, Decision::remaining)
    }

    fn reset_after(&self) -> Micros {
        self.map(|response| response.reset_after, Decision::reset_micros)
    }

    fn reset_at(&self) -> Timestamp {
        self.map(|response| response.reset_at, Decision::reset_timestamp)
    }

    fn retry_after(&self) -> Retry {
        self.map(|response| response.retry_after, Decision::retry)
    }

    fn write_policies(&self, text: &mut Vec<u8>) {
        match &self.0 {
            DecidedBy::Service(response) => text.extend_from_slice(&response.policies),
            DecidedBy::Local(decision) => decision.write_policies(text),
        }
    }

    fn write_rate_limit(&self, text: &mut Vec<u8>) {
        match &self.0 {
            DecidedBy::Service(response) => text.extend_from_slice(&response.rate_limit),
            DecidedBy::Local(decision) => decision.write_rate_limit(text),
        }
    }

    fn for_each_violated(&self, mut visit: impl FnMut(&str, &str)) {
        match &self.0 {
            DecidedBy::Service(response) => {
                let ids = response.violated.iter().filter_map(|id| id.split_once('/'));
                ids.for_each(|(rule, band)| visit(rule, band));
            }
            DecidedBy::Local(decision) => decision.for_each_violated(visit),
        }
    }
}
