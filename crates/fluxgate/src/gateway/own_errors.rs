//! What is answered to heads that the HTTP library cannot read.

use http::StatusCode;

use super::Gateway;
use super::trouble::Trouble;
use crate::http::{Listener, closing_response, request_id};

impl Gateway {
    /// The whole answer to a head that cannot be read, after which the connection
    /// ends. It is counted.
    pub(super) fn refusal(&self, status: StatusCode) -> Vec<u8> {
        let id = request_id::next();
        let id = id.to_str().unwrap_or_default();
        let trouble = match status {
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => Trouble::HeadTooLarge,
            StatusCode::URI_TOO_LONG => Trouble::TargetTooLong,
            _ => Trouble::Unreadable,
        };
        self.note(&trouble, id, None, None);
        let telemetry = self.engine.telemetry();
        telemetry.record_response(Listener::Gateway, status.as_u16(), || id);
        closing_response(&trouble.problem(), id)
    }
}
