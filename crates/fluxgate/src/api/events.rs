//! `GET /v1/events`: what happened, as a list or as a stream.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use fluxgate_http::Problem;
use fluxgate_redis::EventId;
use futures_util::stream;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use http::request::Parts;

use super::overview::{EVENT_STREAM, NO_STORE};
use super::query;
use super::response::{ApiResult, compressed_json};
use super::state::SharedState;
use crate::admin::Role;
use crate::events::{EventViewer, MAX_LISTED};

const LAST_EVENT_ID: &str = "last-event-id";

/// Returns the last events, or sends server-sent events until the client disconnects, loses its
/// permission or the service closes.
pub(super) async fn events(State(api): SharedState, head: Parts) -> ApiResult {
    api.admin.authorize(&head, Role::Viewer)?;
    if !accepts_stream(&head) {
        let count = read_query(head.uri.query().unwrap_or_default())?;
        let events = api.events.list(count).join(",");
        let json = format!("{{\"events\":[{events}]}}");
        return Ok(compressed_json(&head.headers, json));
    }
    let viewer = EventViewer::new(Arc::clone(&api.events), last_event_id(&head)?);
    let events = stream::unfold((viewer, api, head), async |(mut viewer, api, head)| {
        let events = viewer.next(&api.closing).await?;
        // Its token may have been revoked.
        if !api.admin.is_still_authorized(&head, Role::Viewer) {
            return None;
        }
        Some((Ok::<_, Infallible>(events), (viewer, api, head)))
    });
    let mut response = Response::new(Body::from_stream(events));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, EVENT_STREAM);
    headers.insert(CACHE_CONTROL, NO_STORE);
    Ok(response)
}

/// Reads how many events are listed at most.
fn read_query(query: &str) -> Result<usize, Problem> {
    let mut count = MAX_LISTED;
    for field in query::fields(query) {
        let (name, value) = field?;
        match &*name {
            "n" => count = query::count("n", &value, MAX_LISTED)?,
            _ => return Err(query::unknown(&name)),
        }
    }
    Ok(count)
}

fn accepts_stream(head: &Parts) -> bool {
    let accepted = head.headers.get_all(ACCEPT).iter();
    let mut types = accepted
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    types.any(|it| {
        let essence = it.split(';').next().unwrap_or_default();
        essence.trim().eq_ignore_ascii_case("text/event-stream")
    })
}

/// Returns the last event that the client has, if it resumes.
fn last_event_id(head: &Parts) -> Result<Option<EventId>, Problem> {
    let Some(value) = head.headers.get(LAST_EVENT_ID) else {
        return Ok(None);
    };
    // Clients that have none may send an empty one.
    if value.is_empty() {
        return Ok(None);
    }
    let id = value.to_str().ok().and_then(|id| id.parse().ok());
    match id {
        Some(id) => Ok(Some(id)),
        None => Err(Problem::bad_request(
            "`Last-Event-ID` must be the id of an event, such as 1700000000000-0",
        )),
    }
}
