//! Holds that the service has granted.

use bytes::Bytes;
use fluxgate_core::hold::MAX_HOLD;
use fluxgate_core::renewal::{HoldKeeper, HoldRenewals};
use fluxgate_core::store::{Micros, Reason};
use fluxgate_core::{HoldId, Settled, Settlement, StoreError};
use http::StatusCode;
use serde::{Deserialize, Serialize};

use super::RemoteHandler;
use super::pool::CallError;

const SETTLE: &str = "/v1/settle";
const RENEW: &str = "/v1/renew";

/// How many holds the service renews in one call.
const MAX_RENEWED: usize = 1_000;

#[derive(Serialize)]
struct SettleRequest {
    hold: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attributes: Option<serde_json::Map<String, serde_json::Value>>,
}

#[derive(Deserialize)]
struct SettleResponse {
    charged: u64,
    uncharged: u64,
}

#[derive(Serialize)]
struct RenewRequest {
    holds: Vec<String>,
    hold_for: String,
}

#[derive(Deserialize)]
struct RenewResponse {
    renewed: Vec<bool>,
}

impl RemoteHandler {
    async fn post<T: for<'de> Deserialize<'de>>(
        &self,
        path: &str,
        request: &impl Serialize,
    ) -> Result<T, CallError> {
        let body = serde_json::to_vec(request).map_err(|_| CallError::InvalidResponse)?;
        let deadline = self.settings.deadline;
        let response = self.pool.post(path, Bytes::from(body), deadline);
        let response = response.await?;
        serde_json::from_slice(response.body()).map_err(|_| CallError::InvalidResponse)
    }
}

impl HoldKeeper for RemoteHandler {
    fn kept(&self) -> &HoldRenewals {
        &self.kept
    }

    async fn settle(
        &self,
        hold: HoldId,
        settlement: Settlement<'_>,
    ) -> Result<Option<Settled>, StoreError> {
        let mut request = SettleRequest {
            hold: hold.to_string(),
            cost: None,
            attributes: None,
        };
        match settlement {
            Settlement::Cost(cost) => request.cost = Some(cost),
            Settlement::Attributes(costs) => {
                let costs = costs
                    .iter()
                    .map(|(name, cost)| ((*name).into(), (*cost).into()));
                request.attributes = Some(costs.collect());
            }
            _ => {}
        }
        match self.post(SETTLE, &request).await {
            Ok(SettleResponse { charged, uncharged }) => Ok(Some(Settled { charged, uncharged })),
            Err(CallError::Status(StatusCode::NOT_FOUND)) => Ok(None),
            Err(error) => Err(store_error(&error)),
        }
    }

    /// Renews all for the longest of the times. The service cuts it to what the rules allow.
    async fn renew_all(&self, holds: &[(HoldId, Micros)]) -> Result<Vec<bool>, StoreError> {
        let longest = holds.iter().map(|(_, span)| *span).max();
        let millis = longest.unwrap_or_default().min(MAX_HOLD).ceil_millis();
        let mut renewed = Vec::with_capacity(holds.len());
        for some in holds.chunks(MAX_RENEWED) {
            let request = RenewRequest {
                holds: some.iter().map(|(hold, _)| hold.to_string()).collect(),
                hold_for: format!("{millis}ms"),
            };
            let response = self.post::<RenewResponse>(RENEW, &request).await;
            let each = response.map_err(|error| store_error(&error))?.renewed;
            if each.len() != some.len() {
                return Err(store_error(&CallError::InvalidResponse));
            }
            renewed.extend(each);
        }
        Ok(renewed)
    }

    fn hold_expired(&self, hold: HoldId) {
        tracing::warn!(?hold, "the hold of a running request has expired");
    }

    fn answers_at_once(&self) -> bool {
        false
    }
}

fn store_error(error: &CallError) -> StoreError {
    let reason = match error {
        CallError::Deadline => Reason::TIMEOUT,
        CallError::Connect(_) | CallError::Broken(_) => Reason::new("connection"),
        CallError::Body(_) | CallError::Status(_) | CallError::InvalidResponse => {
            Reason::BAD_RESPONSE
        }
    };
    StoreError {
        reason,
        message: error.to_string(),
    }
}
