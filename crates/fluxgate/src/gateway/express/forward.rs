//! A request forwarded, and its answer passed on.

use fluxgate_core::Decision;
use fluxgate_tower::LimitHeaders;
use http::StatusCode;

use super::body::{Body, Ended};
use super::exchange::{NoAnswer, exchange};
use super::request::PlainRequest;
use super::{Done, Express, idle, write};
use crate::gateway::forwarded::Forwarded;
use crate::gateway::routes::Route;
use crate::gateway::trouble::Trouble;
use crate::gateway::upstreams::{Lease, Tried};
use crate::http::{Buffers, Listener, Origin, wall_clock};

/// What filters have to tell of a request, and what it is known by.
pub(super) type Known<'a> = (&'a LimitHeaders<Decision>, &'a Origin<'a>);

/// How a request fared with one upstream.
enum Sent {
    Done(Done),
    /// Not a byte of it was sent: it may be sent elsewhere.
    Unsent(Trouble),
    Failed(Trouble),
    /// It is not sent elsewhere, and the upstream is not to blame: it was sent over a
    /// connection that was kept, and that ended at the same time; or none may be
    /// opened.
    Blameless(Trouble),
}

impl Express<'_> {
    pub(super) async fn forward(
        &mut self,
        request: &PlainRequest<'_>,
        route: &Route,
        known: Known<'_>,
        (out, text): (&mut Vec<u8>, &mut Vec<u8>),
    ) -> Done {
        let forwarded = Forwarded {
            peer: self.peer.ip(),
            is_trusted: route.trusts(self.peer.ip()),
            is_secure: false,
            host: request.host,
            port: self.port,
        };
        out.clear();
        write::request(out, request, &forwarded, known.1.request_id(), text);
        let mut tried = Tried::new();
        let mut failed = None;
        while let Some(lease) = route.upstreams.lease(&tried) {
            let (trouble, may_go_on) = match self.send(request, out, &lease, known).await {
                Sent::Done(done) => return done,
                Sent::Unsent(trouble) => (trouble, true),
                Sent::Failed(trouble) => (trouble, false),
                Sent::Blameless(trouble) => {
                    failed = Some((trouble, lease));
                    break;
                }
            };
            lease.failed();
            tried.push(lease.upstream().number);
            failed = Some((trouble, lease));
            if !may_go_on {
                break;
            }
        }
        // There is one upstream at least, so one has failed.
        let Some((trouble, lease)) = failed else {
            return Done::Ended;
        };
        let request_id = known.1.request_id();
        self.gateway
            .note(&trouble, request_id, Some(route), Some(&lease));
        text.clear();
        trouble.problem().write(text);
        self.answer_ourselves(request, trouble.status(), known, (out, text))
            .await
    }

    async fn send(
        &mut self,
        request: &PlainRequest<'_>,
        bytes: &[u8],
        lease: &Lease,
        known: Known<'_>,
    ) -> Sent {
        let timeouts = self.gateway.timeouts;
        let upstream = lease.upstream();
        let kept = idle::send_over_kept(upstream.number, bytes);
        let is_kept = kept.is_some();
        let sent = match kept {
            Some(sent) => sent,
            None => {
                let connections = &self.gateway.upstream_connections;
                let Ok(permit) = connections.acquire(timeouts.connect).await else {
                    return Sent::Blameless(Trouble::Busy);
                };
                match upstream.connect(permit, timeouts.connect).await {
                    Ok(stream) => (stream, 0),
                    Err(error) => return Sent::Unsent(Trouble::connecting(error)),
                }
            }
        };
        let (mut stream, sent) = sent;
        let (told, origin) = known;
        let (mut is_last, closing) = (self.client.is_last, self.closing);
        let mut buffers = Buffers::take();
        let Buffers { input, output, .. } = &mut buffers;
        output.clear();
        let answer = exchange(
            &mut stream.tcp,
            (&bytes[sent..], request.method == "HEAD"),
            input,
            (&mut self.client, timeouts.request),
            |head| {
                is_last |= closing.is_cancelled();
                let now = wall_clock();
                head.write(output, now, |name| is_ours(name, told));
                write::end_of_head(output, told, origin.request_id(), is_last);
            },
        );
        match answer.await {
            Ok(begun) => {
                lease.succeeded();
                let telemetry = self.gateway.engine.telemetry();
                telemetry.record_response(Listener::Gateway, begun.status, || origin);
                let mut body = Body {
                    upstream: &mut stream.tcp,
                    idle: timeouts.idle,
                    client: &mut self.client,
                };
                let ended = body.pass(begun.framing, output, input, begun.read).await;
                let is_wanted = self.gateway.upstream_connections.is_wanted();
                if begun.keeps_alive && ended == Ended::Well && !is_wanted {
                    idle::give(upstream.number, stream);
                }
                buffers.release();
                Sent::Done(match ended {
                    Ended::Early => Done::Ended,
                    _ if is_last => Done::Last,
                    _ => Done::Answered,
                })
            }
            Err(NoAnswer::ClientGone) => Sent::Done(Done::Ended),
            Err(NoAnswer::Late) => Sent::Failed(Trouble::AnswerTimeout),
            // It may have been read and acted upon, so it is not sent again.
            Err(NoAnswer::Silence(error)) if is_kept => Sent::Blameless(Trouble::Silence(error)),
            Err(NoAnswer::Silence(error)) => Sent::Failed(Trouble::Silence(error)),
            Err(NoAnswer::Broken(why)) => Sent::Failed(Trouble::Malformed(why)),
        }
    }

    /// Answers with a problem, whose body is in `text`.
    pub(super) async fn answer_ourselves(
        &mut self,
        request: &PlainRequest<'_>,
        status: StatusCode,
        (told, origin): Known<'_>,
        (out, text): (&mut Vec<u8>, &mut Vec<u8>),
    ) -> Done {
        let (now, request_id) = (wall_clock(), origin.request_id());
        let is_last = self.client.is_last;
        out.clear();
        write::own_head(out, status, now, text.len());
        write::end_of_head(out, told, request_id, is_last);
        if request.method != "HEAD" {
            out.extend_from_slice(text);
        }
        let telemetry = self.gateway.engine.telemetry();
        telemetry.record_response(Listener::Gateway, status.as_u16(), || origin);
        match self.client.send(out).await {
            true if is_last => Done::Last,
            true => Done::Answered,
            false => Done::Ended,
        }
    }
}

/// Whether we tell an answer's header ourselves. All of them begin with one of
/// two letters.
fn is_ours(name: &str, told: &LimitHeaders<Decision>) -> bool {
    let may_be = matches!(name.as_bytes().first(), Some(b'x' | b'X' | b'r' | b'R'));
    may_be && (name.eq_ignore_ascii_case(write::REQUEST_ID) || told.replaces(name.as_bytes()))
}
