//! `GET /v1/live`: what happens, second by second.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use fluxgate_http::Problem;
use futures_util::stream;
use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};

use super::Api;
use crate::admin::Role;

const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// Sends server-sent events until the client leaves or the service closes.
pub(super) async fn live(
    State(api): State<Arc<Api>>,
    request: Request,
) -> Result<Response, Problem> {
    let (head, _) = request.into_parts();
    api.admin.authorize(&head, Role::Viewer)?;
    let mut events = api.live.subscribe();
    // The last event is sent at once.
    events.mark_changed();
    let events = stream::unfold((events, api), async |(mut events, api)| {
        loop {
            tokio::select! {
                changed = events.changed() => changed.ok()?,
                () = api.closing.cancelled() => return None,
            }
            let event = events.borrow_and_update().clone();
            if let Some(event) = event {
                let text = Bytes::from(format!("data: {event}\n\n"));
                return Some((Ok::<_, Infallible>(text), (events, api)));
            }
        }
    });
    let mut response = Response::new(Body::from_stream(events));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, EVENT_STREAM);
    headers.insert(CACHE_CONTROL, NO_STORE);
    Ok(response)
}
