//! Forwards HTTP/1.1 requests without hyper, in a quarter to a third less time.
//!
//! The fast path serves requests that arrive as a whole, or whose body follows at once, and
//! that can be read in one way only: most requests. At the first other request it returns
//! what it has read, and hyper serves the connection from there. It only parses, writes and
//! copies bytes; the policy is the same on both paths.

mod client;
mod http2_response;
mod request;
mod response;

use std::num::NonZeroU64;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fluxgate_core::Decision;
use fluxgate_http::server::{
    Buffers, ClientStream, INPUT, Listener, Origin, close_gracefully, request_id, wall_clock,
    write_date, write_header, write_number, write_status,
};
use fluxgate_http::{LimitHeaders, RequestHead as _, is_grpc};
use http::StatusCode;
use tokio_util::sync::CancellationToken;

use crate::active_config::ActiveConfig;
use crate::admission::Refusal;
use crate::echo;
use crate::engine::Engine;
use crate::error::GatewayError;
use crate::exchange::{ExpectedResponse, OutgoingRequest};
use crate::forward::{ForwardOutcome, UpstreamResponse};
use crate::gateway::Gateway;
use crate::llm::{BodyBuffer, BufferedBody, MeteredCall, ReadBody};
use crate::received_request::{ConnectionInfo, ReceivedRequest};
use crate::request_record::{RequestRecord, early_end, facts_of};
use crate::rewrite::ResponseChanges;
use crate::routes::Route;
use crate::upstream::pool;
use crate::upstream_request::{RequestOptions, write_request};
use client::Client;
pub(crate) use request::{FastRequest, Headers};
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use response::write_head as write_response_head;
use response::{BodyCopy, BodyEnd};

/// What became of a request.
enum ConnectionFate {
    /// The next request may come.
    Next,
    /// The client was told that the connection ends.
    Last,
    /// The connection has ended.
    Ended,
}

/// Serves the requests of a connection. The first one must arrive within `timeout`.
/// Returns the connection and what has been read of the first request that needs hyper, or
/// `None` if the connection has ended.
pub(crate) async fn serve<E: Engine, S: ClientStream>(
    stream: S,
    info: &ConnectionInfo,
    gateway: &Arc<Gateway<E>>,
    closing: &CancellationToken,
    timeout: Duration,
) -> Option<(S, Vec<u8>)> {
    let mut configs = gateway.config_cache();
    let client = Client::new(stream, closing, configs.load().timeouts.idle, timeout);
    let mut connection = Connection {
        gateway,
        client,
        info,
    };
    loop {
        let (mut buffers, mut read) = connection.client.receive().await?;
        let mut start = 0;
        while start < read {
            let input = &buffers.input[start..read];
            let mut headers = Headers::new();
            let Some(request) = FastRequest::parse(input, &mut headers) else {
                let end = FastRequest::length_of(input).map(|length| start + length);
                drop(headers);
                let Some(end) = end.filter(|end| *end <= INPUT) else {
                    break;
                };
                let stream = &mut connection.client.stream;
                read = buffers.read_on(stream, read, end).await;
                if read < end {
                    break;
                }
                continue;
            };
            let config = configs.load();
            let max_head = config.limits.header_bytes.map(NonZeroU64::get);
            if max_head.is_some_and(|max| request.head as u64 > max) {
                break;
            }
            let scratch = (&mut buffers.output, &mut buffers.json);
            match connection.serve(config, &request, scratch).await {
                ConnectionFate::Next => start += request.length,
                ConnectionFate::Last => {
                    // It has been answered, whether the client reads that or not.
                    let _ = close_gracefully(connection.client.stream).await;
                    return None;
                }
                ConnectionFate::Ended => return None,
            }
        }
        if start < read {
            let rest = buffers.input[start..read].to_vec();
            buffers.release();
            return Some((connection.client.stream, rest));
        }
        buffers.release();
    }
}

/// A request, in all its forms.
#[derive(Clone, Copy)]
struct FastExchange<'r, 'b> {
    request: &'r FastRequest<'b>,
    received: &'r ReceivedRequest<'r, FastRequest<'b>>,
    origin: &'r Origin<'r>,
}

/// A connection on the fast path.
struct Connection<'g, E, S> {
    gateway: &'g Arc<Gateway<E>>,
    client: Client<'g, S>,
    info: &'g ConnectionInfo,
}

impl<'g, E: Engine, S: ClientStream> Connection<'g, E, S> {
    /// Admits and forwards a request, or answers it otherwise.
    async fn serve(
        &mut self,
        config: &ActiveConfig<E>,
        request: &FastRequest<'_>,
        (out, scratch): (&mut Vec<u8>, &mut Vec<u8>),
    ) -> ConnectionFate {
        let gateway = self.gateway;
        let observer = gateway.observer.as_deref();
        let mut record = RequestRecord::start(observer.is_some());
        record.bytes_in = request.body.len() as u64;
        let traceparent = request.header("traceparent");
        let trace = observer.and_then(|it| it.begin_trace(traceparent));
        record.traced(trace.as_ref());
        let origin = Origin::with_ids(
            Listener::Gateway,
            request.header(request_id::NAME),
            trace.as_ref().map(|it| &*it.traceparent).or(traceparent),
        );
        let received = ReceivedRequest {
            head: request,
            path: &request.path,
            host: request.host,
            // The parser accepts only `Connection: keep-alive`, and drops it.
            connection: &[],
            body_length: Some(request.body.len() as u64),
            upgrades: false,
            client: self.info,
        };
        let exchange = FastExchange {
            request,
            received: &received,
            origin: &origin,
        };
        let output = (out, scratch);
        let (fate, route) = self.respond(config, exchange, output, &mut record).await;
        let counts = route.map_or(&*gateway.unrouted, |route| &route.counts.responses);
        let observer = observer.map(|it| (it, facts_of(&received, "HTTP/1.1", route, &origin)));
        record.finish(counts, route, observer);
        fate
    }

    /// Admits and forwards a request, or answers it otherwise. Returns its route, too, if it has
    /// one that is known.
    async fn respond<'c>(
        &mut self,
        config: &'c ActiveConfig<E>,
        exchange: FastExchange<'_, '_>,
        (out, scratch): (&mut Vec<u8>, &mut Vec<u8>),
        record: &mut RequestRecord,
    ) -> (ConnectionFate, Option<&'c Route>) {
        let gateway = self.gateway;
        let FastExchange {
            request,
            received,
            origin,
        } = exchange;
        let mut arrived = ArrivedBody(request.body);
        let mut limit_headers = LimitHeaders::default();
        let admission = {
            let policy = &config.policy;
            let admission = pin!(policy.admit(received, &mut arrived, origin, &mut limit_headers));
            self.client.unless_gone(admission).await
        };
        let mut admitted = match admission {
            Some(Ok(admitted)) => admitted,
            Some(Err(rejected)) => {
                let route = rejected.route.map(|route| &**route);
                let refusal = (&rejected, &limit_headers);
                let output = (out, scratch);
                let fate = self.reject(exchange, refusal, output, record).await;
                return (fate, route);
            }
            None => return (ConnectionFate::Ended, None),
        };
        let route = &**admitted.route;
        record.decided(limit_headers.last());
        out.clear();
        let target = route.rewrite.target(request.target);
        let changes = ResponseChanges::of(route, request);
        let options = RequestOptions {
            target: &target,
            replaced_body: admitted.body.as_ref().map(Bytes::len),
            ..RequestOptions::default()
        };
        write_request(
            &config.policy,
            (out, scratch),
            received,
            &admitted,
            origin,
            options,
        );
        let head = out.len();
        let call_body = admitted.body.take();
        out.extend_from_slice(call_body.as_deref().unwrap_or(request.body));
        drop(call_body);
        let mut call = admitted.call.take();
        if let Some(call) = &mut call {
            call.sent();
        }
        let outgoing = OutgoingRequest {
            bytes: out,
            body: None,
            wanted: ExpectedResponse {
                head_only: request.method == "HEAD",
                ..ExpectedResponse::default()
            },
            needs_http2: false,
        };
        let (mut is_last, closing) = (self.client.is_last, self.client.closing);
        let forwarded = {
            let forwarding = pin!(config.forwarder.forward(route, outgoing, |head, out| {
                is_last |= closing.is_cancelled();
                let mut is_resized = false;
                if let Some(call) = &mut call {
                    let headers = head.headers.iter().copied();
                    call.answered(head.status, headers);
                    is_resized = call.removes_events;
                }
                response::write_head(out, head, is_resized, &limit_headers, &changes);
                write_end_of_head(out, &limit_headers, origin, is_last);
            }));
            self.client.unless_gone(forwarding).await
        };
        let fate = match forwarded {
            None => ConnectionFate::Ended,
            Some(Ok(ForwardOutcome::Response(response))) => {
                let status = response.exchange.status;
                gateway.engine.record_response(status, origin);
                record.status = Some(status);
                record.attempts = response.attempts;
                record.assigned(Some(&response.assignment));
                let idle = route.timeouts.idle;
                match self.copy_body(response, call, idle, record).await {
                    BodyEnd::Early => ConnectionFate::Ended,
                    _ if is_last => ConnectionFate::Last,
                    _ => ConnectionFate::Next,
                }
            }
            Some(Ok(ForwardOutcome::Http2(response))) => {
                let status = response.exchange.status;
                gateway.engine.record_response(status, origin);
                record.status = Some(status);
                record.attempts = response.attempts;
                record.assigned(Some(&response.assignment));
                let idle = route.timeouts.idle;
                match Box::pin(self.copy_http2_body(*response, call, idle, record)).await {
                    BodyEnd::Early => ConnectionFate::Ended,
                    _ if is_last => ConnectionFate::Last,
                    _ => ConnectionFate::Next,
                }
            }
            Some(Ok(ForwardOutcome::Echo(_))) => {
                MeteredCall::unsent(call);
                let body = echo::describe(&out[..head], request.body.len() as u64);
                let answer = OwnAnswer {
                    changes,
                    status: StatusCode::OK,
                    content_type: b"application/json",
                    fields: b"",
                    body: body.as_bytes(),
                };
                self.answer(exchange, answer, &limit_headers, out, record)
                    .await
            }
            Some(Err(failed)) => {
                MeteredCall::fail(call, failed.is_sent);
                let assignment = failed.assignment.as_ref();
                record.attempts = failed.attempts;
                record.assigned(assignment);
                config
                    .policy
                    .log_refusal(&failed.error, origin, Some(route), assignment);
                let route = Some(admitted.route);
                let rejected = Refusal::new(failed.error, route, &mut limit_headers);
                let refusal = (&rejected, &limit_headers);
                let output = (out, scratch);
                self.reject(exchange, refusal, output, record).await
            }
        };
        (fate, Some(route))
    }

    /// Copies the body of a response to the client, after its head. Keeps the connection to
    /// the upstream if it can be reused.
    async fn copy_body(
        &mut self,
        response: UpstreamResponse<()>,
        call: Option<Box<MeteredCall>>,
        idle: Duration,
        record: &mut RequestRecord,
    ) -> BodyEnd {
        let mut exchange = response.exchange;
        let mut copy = BodyCopy {
            stream: &mut exchange.stream,
            client: &mut self.client,
            idle,
            copied: 0,
            is_cut_off: false,
        };
        let Buffers { input, output, .. } = &mut exchange.buffers;
        let (framing, unread) = (exchange.framing, exchange.unread);
        let end = match call {
            None => copy.run(framing, output, input, unread).await,
            Some(call) => {
                // The future is large, and most requests are no calls.
                Box::pin(copy.run_metered(framing, call, output, input, unread)).await
            }
        };
        record.bytes_out = copy.copied;
        if end == BodyEnd::Early {
            let is_cut_off = copy.is_cut_off;
            record.failed(|| early_end(is_cut_off).to_owned());
        }
        if exchange.keeps_alive && end == BodyEnd::Complete {
            let upstream = &response.assignment.upstream;
            pool::put(upstream, exchange.stream, &self.gateway.connections);
        }
        exchange.buffers.release();
        end
    }

    /// Answers a request that is not forwarded.
    async fn reject(
        &mut self,
        exchange: FastExchange<'_, '_>,
        (rejected, limit_headers): (&Refusal<'_>, &LimitHeaders<Decision>),
        (out, body): (&mut Vec<u8>, &mut Vec<u8>),
        record: &mut RequestRecord,
    ) -> ConnectionFate {
        record.refused(rejected, limit_headers.last());
        body.clear();
        self.client.is_last |= rejected.closes_connection();
        let route = rejected.route.map(|route| &**route);
        let changes = ResponseChanges::of_own(route, exchange.request);
        let content_type = exchange.request.header_lines("content-type").next();
        let own_type = rejected.content_type();
        let answer = match content_type.filter(|it| is_grpc(it) && !rejected.is_empty()) {
            Some(content_type) => {
                rejected.grpc_status(limit_headers).write_text(body);
                OwnAnswer {
                    changes,
                    status: StatusCode::OK,
                    content_type,
                    fields: body,
                    body: b"",
                }
            }
            None => OwnAnswer {
                changes,
                status: rejected.write_body(limit_headers, body),
                content_type: own_type.as_bytes(),
                fields: b"",
                body,
            },
        };
        self.answer(exchange, answer, limit_headers, out, record)
            .await
    }

    /// Answers with a response of the gateway itself.
    async fn answer(
        &mut self,
        FastExchange {
            request, origin, ..
        }: FastExchange<'_, '_>,
        answer: OwnAnswer<'_>,
        limit_headers: &LimitHeaders<Decision>,
        out: &mut Vec<u8>,
        record: &mut RequestRecord,
    ) -> ConnectionFate {
        let OwnAnswer {
            changes,
            status,
            content_type,
            fields,
            body,
        } = answer;
        let is_last = self.client.is_last || self.client.closing.is_cancelled();
        out.clear();
        write_status(out, status);
        // A response without content has neither.
        if status != StatusCode::NO_CONTENT {
            write_header(out, "content-type", content_type);
            write_number(out, "content-length", body.len());
        }
        write_date(wall_clock(), out);
        out.extend_from_slice(fields);
        changes.write_text(out);
        write_end_of_head(out, limit_headers, origin, is_last);
        if request.method != "HEAD" {
            out.extend_from_slice(body);
        }
        let engine = &self.gateway.engine;
        engine.record_response(status.as_u16(), origin);
        record.status = Some(status.as_u16());
        if request.method != "HEAD" {
            record.bytes_out = body.len() as u64;
        }
        if !self.client.send(out).await {
            ConnectionFate::Ended
        } else if is_last {
            ConnectionFate::Last
        } else {
            ConnectionFate::Next
        }
    }
}

/// A response of the gateway itself.
struct OwnAnswer<'a> {
    changes: ResponseChanges<'a>,
    status: StatusCode,
    content_type: &'a [u8],
    /// Further headers, each with its line end.
    fields: &'a [u8],
    body: &'a [u8],
}

/// The body of a request that has arrived as a whole.
struct ArrivedBody<'a>(&'a [u8]);

impl ReadBody for ArrivedBody<'_> {
    /// Its length is declared, and is checked with the head.
    fn limit(&mut self, _: Option<u64>) {}

    async fn has_arrived(&mut self) -> bool {
        true
    }

    async fn read(
        &mut self,
        max: u64,
        buffer: &Arc<BodyBuffer>,
    ) -> Result<BufferedBody, GatewayError> {
        let mut read = buffer.start(max);
        read.append(self.0)?;
        Ok(read.finish())
    }
}

/// Appends the headers that the gateway adds to every response, and the end of the head.
fn write_end_of_head(
    out: &mut Vec<u8>,
    limit_headers: &LimitHeaders<Decision>,
    origin: &Origin<'_>,
    is_last: bool,
) {
    if !limit_headers.is_empty() {
        limit_headers.write_text(out);
    }
    write_header(out, request_id::NAME, origin.request_id().as_bytes());
    if is_last {
        write_header(out, "connection", b"close");
    }
    out.extend_from_slice(b"\r\n");
}
