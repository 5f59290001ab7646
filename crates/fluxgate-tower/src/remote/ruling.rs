//! The answer to a request, from the service or in its stead.

use fluxgate_core::{Decision, Micros, Outcome, Retry, Timestamp};

use super::answer::Answer;
use crate::ruling::Report;

/// What the service says, or the limiter that decides in its stead.
#[derive(Clone, Debug)]
pub struct RemoteReport(By);

#[derive(Clone, Debug)]
enum By {
    Service(Answer),
    Limiter(Decision),
}

/// What came of asking.
#[derive(Debug)]
pub(super) enum Said {
    Answer(Answer),
    /// It cannot be asked about this request, however often one tries: to leave
    /// that to `on_error` would let a client choose it.
    TooLarge,
}

impl RemoteReport {
    pub(super) fn local(decision: Decision) -> Self {
        Self(By::Limiter(decision))
    }

    pub(super) fn said(said: Said) -> Self {
        Self(match said {
            Said::Answer(answer) => By::Service(answer),
            Said::TooLarge => By::Limiter(Decision::never()),
        })
    }

    /// What the limiter decided, or else what the service said.
    pub(super) fn decision(&self) -> Result<&Decision, &Answer> {
        match &self.0 {
            By::Service(answer) => Err(answer),
            By::Limiter(decision) => Ok(decision),
        }
    }
}

impl Report for RemoteReport {
    fn allowed(&self) -> bool {
        match &self.0 {
            By::Service(answer) => answer.allowed,
            By::Limiter(decision) => decision.allowed(),
        }
    }

    fn outcome(&self) -> Outcome {
        match &self.0 {
            By::Service(answer) => answer.outcome,
            // By its rules, in the service's stead.
            By::Limiter(decision) if decision.rules().next().is_some() => Outcome::Fallback,
            By::Limiter(decision) => decision.outcome(),
        }
    }

    fn delay(&self) -> Micros {
        match &self.0 {
            By::Service(answer) => answer.delay,
            By::Limiter(decision) => decision.delay(),
        }
    }

    fn worth_waiting(&self) -> Option<Micros> {
        self.decision().ok()?.worth_waiting()
    }

    fn max_wait(&self) -> Option<Micros> {
        self.decision().ok()?.max_wait()
    }

    fn after(self, waited: Micros) -> Self {
        Self(match self.0 {
            By::Service(answer) => By::Service(answer.after(waited)),
            By::Limiter(decision) => By::Limiter(decision.after(waited)),
        })
    }

    fn into_denied(self) -> Self {
        Self(match self.0 {
            By::Service(answer) => By::Service(answer.into_denied()),
            By::Limiter(decision) => By::Limiter(decision.into_denied()),
        })
    }

    fn limit(&self) -> Option<u64> {
        match &self.0 {
            By::Service(answer) => answer.limit,
            By::Limiter(decision) => decision.limit(),
        }
    }

    fn remaining(&self) -> Option<u64> {
        match &self.0 {
            By::Service(answer) => answer.remaining,
            By::Limiter(decision) => decision.remaining(),
        }
    }

    fn reset_after(&self) -> Micros {
        match &self.0 {
            By::Service(answer) => answer.reset_after,
            By::Limiter(decision) => decision.reset_after(),
        }
    }

    fn reset_at(&self) -> Timestamp {
        match &self.0 {
            By::Service(answer) => answer.reset_at,
            By::Limiter(decision) => decision.reset_at(),
        }
    }

    fn retry_after(&self) -> Retry {
        match &self.0 {
            By::Service(answer) => answer.retry_after,
            By::Limiter(decision) => decision.retry_after(),
        }
    }

    fn write_policies(&self, text: &mut Vec<u8>) {
        match &self.0 {
            By::Service(answer) => text.extend_from_slice(&answer.policies),
            By::Limiter(decision) => decision.write_policies(text),
        }
    }

    fn write_rate_limit(&self, text: &mut Vec<u8>) {
        match &self.0 {
            By::Service(answer) => text.extend_from_slice(&answer.rate_limit),
            By::Limiter(decision) => decision.write_rate_limit(text),
        }
    }

    fn for_each_violated(&self, mut tell: impl FnMut(&str, &str)) {
        match &self.0 {
            By::Service(answer) => {
                let pairs = answer.violated.iter().filter_map(|id| id.split_once('/'));
                pairs.for_each(|(rule, band)| tell(rule, band));
            }
            By::Limiter(decision) => decision.for_each_violated(tell),
        }
    }
}
