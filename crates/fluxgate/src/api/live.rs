//! `GET /v1/live`: the counts of each second.

use std::convert::Infallible;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use futures_util::stream;
use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};

use super::response::ApiResult;
use super::state::SharedState;
use crate::admin::Role;

const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// Sends server-sent events until the client disconnects, loses its permission or the service
/// closes.
pub(super) async fn live(State(api): SharedState, request: Request) -> ApiResult {
    let (head, _) = request.into_parts();
    api.admin.authorize(&head, Role::Viewer)?;
    let viewer = api.live.add_viewer();
    let events = stream::unfold((viewer, api, head), async |(mut viewer, api, head)| {
        let event = viewer.next(&api.closing).await?;
        // Its token may have been revoked.
        if !api.admin.is_still_authorized(&head, Role::Viewer) {
            return None;
        }
        Some((Ok::<_, Infallible>(event), (viewer, api, head)))
    });
    let mut response = Response::new(Body::from_stream(events));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, EVENT_STREAM);
    headers.insert(CACHE_CONTROL, NO_STORE);
    Ok(response)
}
