//! Posts events to a receiver, signed.

use std::time::Duration;

use bytes::Bytes;
use fluxgate_http::{CallError, ClientCertificates, Endpoint, EndpointError};
use hmac::{Hmac, KeyInit, Mac};
use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use sha2::Sha256;

use crate::config::{Secret, Webhook};
use crate::telemetry::unix_time;

/// How long a receiver may take to answer.
const DEADLINE: Duration = Duration::from_secs(10);
/// How much of an answer is read.
const MAX_ANSWER: usize = 64 * 1024;
const SIGNATURE: &str = "x-fluxgate-signature";
const AGENT: &str = concat!("fluxgate/", env!("CARGO_PKG_VERSION"));

/// What a sender needs of the world outside. Tests have another one, with a clock of their own.
pub(in crate::events) trait Post: Send + Sync + 'static {
    /// Posts an event. `now` is the time since 1970.
    fn post(
        &self,
        body: &str,
        now: Duration,
    ) -> impl Future<Output = Result<Delivery, DeliveryError>> + Send;

    /// Returns the time since 1970.
    fn unix_time(&self) -> Duration {
        unix_time()
    }
}

/// The receiver of a webhook.
#[derive(Debug)]
pub(crate) struct Receiver {
    endpoint: Endpoint,
    secret: Secret,
}

/// An event that was accepted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delivery {
    pub(crate) status: StatusCode,
}

/// Why a receiver has not accepted an event.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DeliveryError {
    #[error("no response within {} s", DEADLINE.as_secs())]
    Deadline,
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("invalid request: {0}")]
    Request(#[from] http::Error),
    #[error("the response has status {0}, not 2xx")]
    Status(StatusCode),
}

impl Receiver {
    /// Creates the receiver of a webhook. `ca` is the certificate authority of its server.
    pub(crate) fn new(
        webhook: &Webhook,
        secret: Secret,
        ca: Option<&Secret>,
    ) -> Result<Self, EndpointError> {
        let certificates = ClientCertificates {
            ca: ca.map(Secret::as_bytes),
            ..ClientCertificates::default()
        };
        Ok(Self {
            endpoint: Endpoint::new(webhook.url.as_str(), certificates)?,
            secret,
        })
    }

    /// Posts an event. `now` is the time since 1970.
    pub(crate) async fn post(&self, body: &str, now: Duration) -> Result<Delivery, DeliveryError> {
        let signature = signature(self.secret.as_bytes(), now.as_secs(), body);
        let request = Request::post(self.endpoint.path_and_query())
            .header(CONTENT_TYPE, "application/json")
            .header(USER_AGENT, AGENT)
            .header(SIGNATURE, signature)
            .body(Full::new(Bytes::from(body.to_owned())))?;
        let posted = async {
            let response = self.endpoint.send(request).await?;
            let status = response.status();
            // Read, so that the receiver can end; what it says does not matter, and if it says too
            // much, the connection is closed.
            let _ = Limited::new(response.into_body(), MAX_ANSWER)
                .collect()
                .await;
            Ok(status)
        };
        let status = match tokio::time::timeout(DEADLINE, posted).await {
            Ok(status) => status.map_err(DeliveryError::Call)?,
            Err(_) => return Err(DeliveryError::Deadline),
        };
        // Redirects could lead to any server, and are not followed.
        if status.is_success() {
            Ok(Delivery { status })
        } else {
            Err(DeliveryError::Status(status))
        }
    }
}

impl Post for Receiver {
    async fn post(&self, body: &str, now: Duration) -> Result<Delivery, DeliveryError> {
        Self::post(self, body, now).await
    }
}

/// Returns the value of the header that signs a body: `t=UNIX,v1=HEX`, with the HMAC-SHA-256 of
/// `t.body`.
pub(super) fn signature(secret: &[u8], unix: u64, body: &str) -> HeaderValue {
    let header = match Hmac::<Sha256>::new_from_slice(secret) {
        Ok(mut mac) => {
            mac.update(format!("{unix}.").as_bytes());
            mac.update(body.as_bytes());
            let digits = mac.finalize().into_bytes();
            let digits = digits.iter().map(|byte| format!("{byte:02x}"));
            format!("t={unix},v1={}", digits.collect::<String>())
        }
        // Keys of any length are valid.
        Err(_) => String::new(),
    };
    // Digits and punctuation are valid in a header.
    HeaderValue::try_from(header).unwrap_or(HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed with `printf '1700000000.{"id":"1-0"}' | openssl dgst -sha256 -hmac secret`.
    #[test]
    fn the_signature_is_an_hmac_of_time_and_body() {
        let expected =
            "t=1700000000,v1=f85a699342d0bbf92c961985959d434395359980d523cfac74add0cc79ca069e";
        assert_eq!(
            signature(b"secret", 1_700_000_000, "{\"id\":\"1-0\"}"),
            expected
        );
    }
}
