//! From a request that hyper has read to its response.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fluxgate_core::Decision;
use fluxgate_http::server::{Buffers, Listener, Origin, PrefixedStream, REQUEST_ID};
use fluxgate_http::{
    HeldUntilDropped, LimitHeaders, RequestHead as _, grpc_content_type, needs_http2,
};
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, TRAILER, UPGRADE};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Uri, Version};
use hyper::body::{Body as _, Incoming};
use hyper::upgrade::OnUpgrade;
use tokio_util::sync::CancellationToken;

use super::response_body::ResponseBody;
use super::tunnel::{PendingTunnel, Tunnel};
use crate::active_config::ActiveConfig;
use crate::admission::{Admission, Refusal};
use crate::echo;
use crate::engine::{Engine, RequestFacts};
use crate::error::GatewayError;
use crate::exchange::{
    BodyReader, ExpectedResponse, Http1Reader, Http2Reader, OutgoingRequest, ResponseHead,
};
use crate::forward::{ForwardError, ForwardOutcome, Http2Response, UpstreamResponse};
use crate::gateway::Gateway;
use crate::llm::{BodyBuffer, BufferedBody, MeteredCall, ReadBody};
use crate::received_request::{ConnectionInfo, ReceivedRequest};
use crate::request_body::RequestBody;
use crate::request_checks::{self, CheckedHead};
use crate::request_record::{OpenRecord, facts_of};
use crate::rewrite::ResponseChanges;
use crate::timeouts::{ConnectionState, watch_response};
use crate::upstream_request::{RequestOptions, announced_trailers, write_request};

const CLOSE: HeaderValue = HeaderValue::from_static("close");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Headers whose values rarely come twice. HPACK would keep every value in its table, and look
/// through all of them for the next one, unless they are said to be sensitive.
static UNREPEATED: [HeaderName; 3] = [
    REQUEST_ID,
    HeaderName::from_static("x-ratelimit-remaining"),
    HeaderName::from_static("ratelimit"),
];

/// Responds to the requests of one connection.
#[derive(Debug)]
pub(super) struct HttpService<E> {
    pub(super) gateway: Arc<Gateway<E>>,
    pub(super) info: ConnectionInfo,
    pub(super) state: Arc<ConnectionState>,
    pub(super) tunnel: PendingTunnel,
    pub(super) closing: CancellationToken,
}

impl<E: Engine> HttpService<E> {
    /// Responds to a request.
    pub(super) async fn respond(&self, request: Request<Incoming>) -> Response<ResponseBody> {
        let in_flight = self.state.begin();
        let gateway = &self.gateway;
        let config = gateway.config();
        let mut record = OpenRecord::start(&gateway.unrouted, gateway.observer.as_ref());
        let (parts, body) = request.into_parts();
        let observer = gateway.observer.as_deref();
        let trace = observer.and_then(|it| it.begin_trace(parts.header("traceparent")));
        record.record.traced(trace.as_ref());
        let mut origin = Origin::with_headers(Listener::Gateway, &parts.headers);
        if let Some(trace) = &trace {
            origin.traceparent = Some(&trace.traceparent);
        }
        let answered = self.forward_or_reject(&config, &parts, body, &origin, &mut record);
        let mut response = answered.await;
        drop(config);
        let status = response.status();
        record.record.status = Some(status.as_u16());
        self.gateway
            .engine
            .record_response(status.as_u16(), &origin);
        // Makes the id if there is none yet.
        let _ = origin.request_id();
        if let Some(id) = origin.into_id() {
            response.headers_mut().insert(REQUEST_ID, id);
        }
        if status == StatusCode::SWITCHING_PROTOCOLS {
            self.tunnel.hold(in_flight, record);
            return response;
        }
        let mut response = response.map(|body| body.recorded(record));
        if parts.version == Version::HTTP_2 {
            let headers = response.headers_mut();
            // HTTP/2 announces the end of a connection by GOAWAY.
            headers.remove(CONNECTION);
            for name in &UNREPEATED {
                if let Some(value) = headers.get_mut(name) {
                    value.set_sensitive(true);
                }
            }
            return response.map(|body| body.split(watch_response()).holding(in_flight));
        }
        if self.closing.is_cancelled() {
            response.headers_mut().insert(CONNECTION, CLOSE);
        }
        response.map(|body| body.holding(in_flight))
    }

    async fn forward_or_reject(
        &self,
        config: &ActiveConfig<E>,
        parts: &Parts,
        body: Incoming,
        origin: &Origin<'_>,
        record: &mut OpenRecord,
    ) -> Response<ResponseBody> {
        let max = config.limits.body_bytes.map(u64::from);
        let body_length = body.size_hint().exact();
        let checked = request_checks::check(parts);
        let awaits_continue = checked.as_ref().is_ok_and(|head| head.awaits_continue);
        // If it is dropped before its end, the connection is drained.
        let mut body = RequestBody::new(body, max, awaits_continue, &self.state);
        if let Some(body) = body.as_mut().filter(|_| record.is_observed()) {
            body.count_into(&record.bytes_in);
        }
        let checked = match checked {
            Ok(checked) => checked,
            Err(error) => {
                config.policy.log_refusal(&error, origin, None, None);
                if record.is_observed() {
                    record.keep(&facts_of_malformed(parts, origin, &self.info));
                }
                let mut limit_headers = LimitHeaders::default();
                let refusal = Refusal::new(error, None, &mut limit_headers);
                return rejection(parts, &refusal, &limit_headers, record);
            }
        };
        let request = ReceivedRequest {
            head: parts,
            path: &checked.path,
            host: checked.host,
            connection: &checked.connection,
            body_length,
            upgrades: checked.upgrade.is_some() && can_upgrade(parts),
            client: &self.info,
        };
        let mut body = IncomingBody {
            body,
            idle: config.timeouts.idle,
            whole: config.timeouts.request,
        };
        let mut limit_headers = LimitHeaders::default();
        let policy = &config.policy;
        let admitted = policy
            .admit(&request, &mut body, origin, &mut limit_headers)
            .await;
        let route = match &admitted {
            Ok(admitted) => Some(admitted.route),
            Err(rejected) => rejected.route,
        };
        record.routed(route);
        if record.is_observed() {
            let route = route.map(|route| &**route);
            record.keep(&facts_of(&request, protocol(parts.version), route, origin));
        }
        let mut admitted = match admitted {
            Ok(admitted) => admitted,
            Err(rejected) => return rejection(parts, &rejected, &limit_headers, record),
        };
        record.record.decided(limit_headers.last());
        let forwarded = self
            .forward_admitted(
                config,
                (&request, &checked),
                body.body,
                &mut admitted,
                origin,
                record,
            )
            .await;
        match forwarded {
            Ok(mut response) => {
                let changes = ResponseChanges::of(admitted.route, parts);
                if !changes.is_empty() {
                    changes.apply(response.headers_mut());
                }
                limit_headers.write(response.headers_mut());
                if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                    self.tunnel.keep(admitted.held);
                    return response;
                }
                response.map(|body| body.keeping(admitted.held))
            }
            Err(error) => {
                let refusal = Refusal::new(error, Some(admitted.route), &mut limit_headers);
                rejection(parts, &refusal, &limit_headers, record)
            }
        }
    }

    async fn forward_admitted(
        &self,
        config: &ActiveConfig<E>,
        (request, checked): (&ReceivedRequest<'_, Parts>, &CheckedHead<'_>),
        mut body: Option<Box<RequestBody>>,
        admitted: &mut Admission<'_>,
        origin: &Origin<'_>,
        record: &mut OpenRecord,
    ) -> Result<Response<ResponseBody>, GatewayError> {
        let parts = request.head;
        let counts_calls = admitted.route.counts_calls(request.path);
        let upgrade = checked.upgrade;
        let upgrade = upgrade.filter(|_| can_upgrade(parts) && !counts_calls);
        let wanted = ExpectedResponse {
            head_only: parts.method() == "HEAD",
            trailers: checked.trailers,
            upgrade: upgrade.is_some(),
        };
        let target = origin_form(&parts.uri);
        let target = admitted.route.rewrite.target(&target);
        let options = RequestOptions {
            target: &target,
            is_chunked: body.as_ref().is_some_and(|body| body.length.is_none()),
            replaced_body: admitted.body.as_ref().map(Bytes::len),
            trailers: wanted.trailers,
            upgrade: upgrade.map(HeaderValue::as_bytes),
        };
        let mut buffers = Buffers::take();
        let (out, scratch) = (&mut buffers.output, &mut buffers.json);
        let policy = &config.policy;
        write_request(policy, (out, scratch), request, admitted, origin, options);
        let (route, whole) = (admitted.route, admitted.body.take());
        let has_trailers = parts.headers.contains_key(TRAILER);
        if let Some(body) = body.as_mut().filter(|_| has_trailers) {
            body.keep_trailers(announced_trailers(policy, parts, route, origin));
        }
        let mut body = whole.map_or(body, |whole| Some(RequestBody::whole(whole, &self.state)));
        let is_kept = |body: &mut Box<RequestBody>| {
            !has_trailers && route.keeps_body(parts.method.as_str(), body.length)
        };
        let head = out.len();
        if let Some(mut kept) = body.take_if(is_kept) {
            // A client that sends a byte now and then must not hold it for ever.
            let reading = kept.for_each(route.timeouts.idle, |part| {
                out.extend_from_slice(&part);
                Ok(())
            });
            let in_time = tokio::time::timeout(route.timeouts.request, reading).await;
            if let Err(error) = in_time.unwrap_or(Err(GatewayError::BodyTimeout)) {
                policy.log_refusal(&error, origin, Some(&**route), None);
                return Err(error);
            }
        }
        let kept = (out.len() - head) as u64;
        let mut call = admitted.call.take();
        if let Some(call) = &mut call {
            call.sent();
        }
        let outgoing = OutgoingRequest {
            bytes: out,
            body,
            wanted,
            needs_http2: is_grpc_over_http2(parts),
        };
        let forwarded = config
            .forwarder
            .forward(route, outgoing, |head, _| response_head(head));
        let response = match forwarded.await {
            Ok(ForwardOutcome::Response(response)) => {
                record.record.attempts = response.attempts;
                record.record.assigned(Some(&response.assignment));
                Ok(self.pass_on(response, wanted, call, route.timeouts.idle))
            }
            Ok(ForwardOutcome::Http2(response)) => {
                record.record.attempts = response.attempts;
                record.record.assigned(Some(&response.assignment));
                Ok(pass_on_http2(*response, wanted, call, route.timeouts.idle))
            }
            Ok(ForwardOutcome::Echo(body)) => {
                MeteredCall::unsent(call);
                let length = match body {
                    Some(mut body) => body.discard(route.timeouts.idle).await,
                    None => Ok(kept),
                };
                length
                    .map(|length| {
                        own_response(StatusCode::OK, JSON, echo::describe(&out[..head], length))
                    })
                    .map_err(ForwardError::unsent)
            }
            Err(failed) => {
                MeteredCall::fail(call, failed.is_sent);
                Err(failed)
            }
        };
        buffers.release();
        response.map_err(|failed| {
            let assignment = failed.assignment.as_ref();
            record.record.attempts = failed.attempts;
            record.record.assigned(assignment);
            policy.log_refusal(&failed.error, origin, Some(&**route), assignment);
            failed.error
        })
    }

    /// Returns the response of an upstream for the client.
    fn pass_on(
        &self,
        response: UpstreamResponse<Response<()>>,
        wanted: ExpectedResponse,
        call: Option<Box<MeteredCall>>,
        idle: Duration,
    ) -> Response<ResponseBody> {
        let UpstreamResponse {
            exchange,
            head,
            assignment,
            ..
        } = response;
        if head.status() == StatusCode::SWITCHING_PROTOCOLS {
            let unread = exchange.buffers.input[exchange.unread.clone()].to_vec();
            exchange.buffers.release();
            self.tunnel.put(Tunnel {
                upstream: PrefixedStream::new(unread, exchange.stream),
                assignment,
                in_flight: None,
                held: HeldUntilDropped::default(),
                record: None,
            });
            return head.map(|()| ResponseBody::whole(""));
        }
        let limit = &self.gateway.connections;
        let reader = Http1Reader::new(exchange, assignment, limit, idle, wanted.trailers);
        with_body(head, BodyReader::Http1(reader), call)
    }
}

/// Returns the response of an upstream over HTTP/2 for the client.
fn pass_on_http2(
    response: Http2Response<Response<()>>,
    wanted: ExpectedResponse,
    call: Option<Box<MeteredCall>>,
    idle: Duration,
) -> Response<ResponseBody> {
    let Http2Response {
        exchange,
        head,
        assignment,
        ..
    } = response;
    let (reader, buffers) = Http2Reader::new(exchange, assignment, idle, wanted.trailers);
    buffers.release();
    with_body(head, BodyReader::Http2(reader), call)
}

/// Returns a response whose body is read from an upstream. If it answers a call to a language
/// model, its tokens are counted.
fn with_body(
    mut head: Response<()>,
    reader: BodyReader,
    call: Option<Box<MeteredCall>>,
) -> Response<ResponseBody> {
    let body = match call {
        Some(mut call) => {
            let headers = head.headers().iter();
            let headers = headers.map(|(name, value)| (name.as_str(), value.as_bytes()));
            call.answered(head.status().as_u16(), headers);
            if call.removes_events {
                head.headers_mut().remove(CONTENT_LENGTH);
            }
            ResponseBody::metered(reader, call)
        }
        None => ResponseBody::upstream(reader),
    };
    head.map(|()| body)
}

/// Returns whether a request is one of gRPC that only HTTP/2 can carry.
fn is_grpc_over_http2(parts: &Parts) -> bool {
    let content_type = parts.headers.get(CONTENT_TYPE);
    parts.version == Version::HTTP_2
        && content_type.is_some_and(|value| needs_http2(value.as_bytes()))
}

/// The body of a request that hyper receives.
struct IncomingBody {
    /// `None` if there is no body, or it was read.
    body: Option<Box<RequestBody>>,
    /// The time within which each part must arrive.
    idle: Duration,
    /// The time within which all of it must arrive, if it is read as a whole. Otherwise a client
    /// that sends a byte now and then would keep its part of the buffer for ever.
    whole: Duration,
}

impl ReadBody for IncomingBody {
    fn limit(&mut self, max: Option<u64>) {
        if let Some(body) = &mut self.body {
            body.limit(max);
        }
    }

    async fn has_arrived(&mut self) -> bool {
        match &mut self.body {
            Some(body) => body.has_arrived().await,
            None => true,
        }
    }

    async fn read(
        &mut self,
        max: u64,
        buffer: &Arc<BodyBuffer>,
    ) -> Result<BufferedBody, GatewayError> {
        let Some(mut body) = self.body.take() else {
            return Ok(buffer.start(0));
        };
        let max = match body.length {
            Some(length) if length > max => return Err(GatewayError::BodyTooLarge(max)),
            length => length.unwrap_or(max),
        };
        let mut read = buffer.start(max);
        let reading = body.for_each(self.idle, |part| read.append(&part));
        let in_time = tokio::time::timeout(self.whole, reading).await;
        in_time.unwrap_or(Err(GatewayError::BodyTimeout))?;
        Ok(read.finish())
    }
}

/// Returns the name of a version in logs.
fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_2 => "HTTP/2",
        Version::HTTP_10 => "HTTP/1.0",
        _ => "HTTP/1.1",
    }
}

/// Returns the facts of a request that cannot be read in one way only.
fn facts_of_malformed<'a>(
    parts: &'a Parts,
    origin: &'a Origin<'_>,
    client: &ConnectionInfo,
) -> RequestFacts<'a> {
    RequestFacts {
        method: parts.method.as_str(),
        path: parts.uri.path(),
        host: parts.header("host").unwrap_or_default(),
        protocol: protocol(parts.version),
        scheme: client.scheme(),
        client_ip: Some(client.peer.ip()),
        user_agent: parts.first_line("user-agent"),
        request_id: origin.request_id(),
        traceparent: origin.traceparent,
    }
}

/// Returns whether a connection can be upgraded, which hyper knows.
fn can_upgrade(parts: &Parts) -> bool {
    parts.extensions.get::<OnUpgrade>().is_some()
}

/// Returns the target without scheme and host.
pub(crate) fn origin_form(uri: &Uri) -> Cow<'_, str> {
    match uri.path_and_query().map(PathAndQuery::as_str) {
        None => "/".into(),
        Some(target) if target.starts_with(['/', '*']) => target.into(),
        Some(query) => format!("/{query}").into(),
    }
}

/// Returns the head of an upstream's response in hyper's form.
fn response_head(head: &ResponseHead<'_>) -> Response<()> {
    let mut headers = HeaderMap::with_capacity(head.headers.len() + 8);
    for (name, value) in &head.headers {
        let name = HeaderName::from_bytes(name.as_bytes());
        let value = HeaderValue::from_bytes(value);
        // The parser accepts the same names and values.
        if let (Ok(name), Ok(value)) = (name, value) {
            headers.append(name, value);
        }
    }
    if head.status == 101
        && let Some(Ok(protocol)) = head.upgrade.map(HeaderValue::from_bytes)
    {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, protocol);
    }
    let mut response = Response::new(());
    *response.headers_mut() = headers;
    // The parser accepts statuses from 100 to 999.
    *response.status_mut() = StatusCode::from_u16(head.status).unwrap_or_default();
    response
}

/// Returns the response to a request that is not forwarded.
fn rejection(
    request: &Parts,
    rejected: &Refusal<'_>,
    limit_headers: &LimitHeaders<Decision>,
    record: &mut OpenRecord,
) -> Response<ResponseBody> {
    record.record.refused(rejected, limit_headers.last());
    let content_type = grpc_content_type(&request.headers);
    let mut response = match content_type.filter(|_| !rejected.is_empty()) {
        Some(content_type) => {
            let mut response = own_response(StatusCode::OK, content_type.clone(), "");
            let status = rejected.grpc_status(limit_headers);
            status.write(response.headers_mut());
            response
        }
        None => {
            let mut body = Vec::new();
            let status = rejected.write_body(limit_headers, &mut body);
            own_response(status, rejected.content_type(), body)
        }
    };
    if rejected.is_empty() {
        response.headers_mut().remove(CONTENT_TYPE);
    }
    let changes = ResponseChanges::of_own(rejected.route.map(|route| &**route), request);
    changes.apply(response.headers_mut());
    limit_headers.write(response.headers_mut());
    if rejected.closes_connection() {
        response.headers_mut().insert(CONNECTION, CLOSE);
    }
    response
}

fn own_response(
    status: StatusCode,
    content_type: HeaderValue,
    body: impl Into<Bytes>,
) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::whole(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}
