//! A request on its way to an upstream, and the answer on its way back.

use std::sync::Arc;

use http::header::{CONNECTION, HOST, TRAILER, UPGRADE};
use http::request::Parts;
use http::{HeaderValue, Request, Response, StatusCode};
use hyper::body::Incoming;

use super::activity::{Activity, Stillness};
use super::answer_body::{AnswerBody, Streamed};
use super::pool::Connection;
use super::request_body::RequestBody;
use super::routes::Route;
use super::trouble::Trouble;
use super::tunnel::{Slot, Tunnel};
use super::upstream_connections::Busy;
use super::upstreams::{Lease, Tried};
use super::{Gateway, echo, hop_by_hop, open, strict};
use crate::config;

/// A request, ready to be sent.
pub(super) struct Outgoing {
    pub(super) parts: Parts,
    pub(super) body: RequestBody,
    pub(super) activity: Arc<Activity>,
    pub(super) wanted: Wanted,
}

/// What a client asks for besides an answer.
pub(super) struct Wanted {
    /// Whether it goes on in another protocol.
    pub(super) upgrade: bool,
    /// Whether it takes trailers.
    pub(super) trailers: bool,
}

/// An upstream's answer, and what it came over.
struct Answered {
    response: Response<Incoming>,
    connection: Connection,
}

/// Why there is no answer.
enum Failure {
    /// The request was not sent: another upstream may have it.
    Unsent(Box<(Parts, RequestBody)>, Trouble),
    /// It may have been, and is not sent again.
    Sent(Trouble),
    /// It was not sent, and no upstream may have it.
    Busy,
}

impl From<Busy> for Failure {
    fn from(_: Busy) -> Self {
        Self::Busy
    }
}

const UPGRADE_OPTION: HeaderValue = HeaderValue::from_static("upgrade");

impl Gateway {
    /// Sends a request to an upstream of its route, and to the next one as long as
    /// it has certainly not been sent. Also tells who answered, or failed last.
    pub(super) async fn forward(
        &self,
        route: &Route,
        outgoing: Outgoing,
        tunnels: &Slot,
    ) -> Result<Response<AnswerBody>, (Trouble, Option<Lease>)> {
        let Outgoing {
            mut parts,
            mut body,
            activity,
            wanted,
        } = outgoing;
        let mut tried = Tried::new();
        let mut last = None;
        while let Some(lease) = route.upstreams.lease(&tried) {
            if lease.upstream().target == config::Upstream::Echo {
                let answer = echo::answer(&parts, body, &activity).await;
                return answer.map_err(|trouble| (trouble, None));
            }
            match self.ask(&lease, parts, body, &activity).await {
                Ok(answered) => {
                    return self.pass_on(answered, lease, activity, wanted, tunnels);
                }
                Err(Failure::Sent(trouble)) => return Err((trouble, Some(lease))),
                Err(Failure::Busy) => return Err((Trouble::Busy, None)),
                Err(Failure::Unsent(unsent, trouble)) => {
                    (parts, body) = *unsent;
                    tried.push(lease.upstream().number);
                    last = Some((trouble, Some(lease)));
                }
            }
        }
        // A route has an upstream at least, and it was tried.
        Err(last.unwrap_or((Trouble::NoRoute, None)))
    }

    /// Asks one upstream: over a connection that waits, or else over a new one.
    async fn ask(
        &self,
        lease: &Lease,
        mut parts: Parts,
        mut body: RequestBody,
        activity: &Arc<Activity>,
    ) -> Result<Answered, Failure> {
        let number = lease.upstream().number;
        if !parts.headers.contains_key(HOST) {
            add_host(&mut parts, &lease.upstream().target);
        }
        let (connections, within) = (&self.upstream_connections, self.timeouts.connect);
        if body.is_open().await {
            body.hold(connections.acquire_open_body(within).await?);
        }
        // Those that the upstream has closed meanwhile are heard of before they are
        // used: what was sent over one of them could not be sent again.
        tokio::task::yield_now().await;
        while let Some(mut connection) = Connection::waiting(number) {
            // It is nearly always. One to an upstream that has answered without
            // reading may never be.
            let ready = tokio::time::timeout(self.timeouts.connect, connection.sender.ready());
            let Ok(Ok(())) = ready.await else {
                continue;
            };
            let read = connection.read();
            match self.exchange(&mut connection, parts, body, activity).await {
                Ok(response) => {
                    return Ok(Answered {
                        response,
                        connection,
                    });
                }
                Err(Failure::Unsent(unsent, _)) => (parts, body) = *unsent,
                // It may have been read and acted upon.
                Err(Failure::Sent(trouble)) => {
                    // A server may close a connection that waits whenever it likes,
                    // also while a request is on its way: that is no fault.
                    let is_closed = matches!(trouble, Trouble::BadAnswer(_));
                    if !is_closed || connection.read() != read {
                        blame(lease, &trouble);
                    }
                    return Err(Failure::Sent(trouble));
                }
                Err(Failure::Busy) => return Err(Failure::Busy),
            }
        }
        let permit = connections.acquire(within).await?;
        let tls = self.client_tls.as_ref();
        let opened = open::open(lease.upstream(), (connections, permit), tls, within);
        let mut connection = match Box::pin(opened).await {
            Ok(connection) => connection,
            Err(error) => {
                lease.failed();
                let unsent = Box::new((parts, body));
                return Err(Failure::Unsent(unsent, Trouble::connecting(error)));
            }
        };
        let answer = self.exchange(&mut connection, parts, body, activity).await;
        match answer {
            Ok(response) => Ok(Answered {
                response,
                connection,
            }),
            Err(failure) => {
                if let Failure::Sent(trouble) | Failure::Unsent(_, trouble) = &failure {
                    blame(lease, trouble);
                }
                Err(failure)
            }
        }
    }

    /// Sends a request over a connection and waits for the answer to begin.
    async fn exchange(
        &self,
        connection: &mut Connection,
        parts: Parts,
        body: RequestBody,
        activity: &Arc<Activity>,
    ) -> Result<Response<Incoming>, Failure> {
        activity.moves();
        connection.carry(&parts);
        let mut request = Request::from_parts(parts, body);
        let counted = Arc::clone(activity);
        hyper::ext::on_informational(&mut request, move |_| counted.count_interim());
        let answer = connection.sender.try_send_request(request);
        let answer = tokio::select! {
            biased;
            answer = answer => answer,
            trouble = activity.too_late(&self.timeouts) => {
                return Err(Failure::Sent(match activity.broken() {
                    Some(_) => echo::broken_off(activity),
                    None => trouble,
                }));
            }
        };
        answer.map_err(|mut error| match error.take_message() {
            Some(request) => {
                let trouble = Trouble::BadAnswer(error.into_error());
                Failure::Unsent(Box::new(request.into_parts()), trouble)
            }
            None if activity.broken().is_some() => Failure::Sent(echo::broken_off(activity)),
            None => Failure::Sent(Trouble::BadAnswer(error.into_error())),
        })
    }

    /// What the client gets of an answer.
    fn pass_on(
        &self,
        answered: Answered,
        lease: Lease,
        activity: Arc<Activity>,
        wanted: Wanted,
        tunnels: &Slot,
    ) -> Result<Response<AnswerBody>, (Trouble, Option<Lease>)> {
        let Answered {
            mut response,
            connection,
        } = answered;
        let checked = strict::check_answer(&response).and_then(|()| activity.check_interim());
        if let Err(trouble) = checked {
            lease.failed();
            return Err((trouble, Some(lease)));
        }
        let protocol = response.headers().get(UPGRADE).cloned();
        hop_by_hop::strip(response.headers_mut());
        if !wanted.trailers {
            response.headers_mut().remove(TRAILER);
        }
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let Some(protocol) = protocol.filter(|_| wanted.upgrade) else {
                lease.failed();
                return Err((Trouble::Unasked, Some(lease)));
            };
            lease.succeeded();
            let headers = response.headers_mut();
            headers.insert(CONNECTION, UPGRADE_OPTION);
            headers.insert(UPGRADE, protocol);
            let upstream = hyper::upgrade::on(&mut response);
            tunnels.put(Tunnel {
                upstream,
                lease,
                in_flight: None,
            });
            return Ok(response.map(|_| AnswerBody::whole("")));
        }
        lease.succeeded();
        let streamed = |incoming| Streamed {
            incoming,
            connection: Some(connection),
            stillness: Stillness::new(self.timeouts.idle),
            activity,
            ended: false,
            broken: None,
            lease,
            wants_trailers: wanted.trailers,
        };
        Ok(response.map(|incoming| AnswerBody::streamed(streamed(incoming))))
    }
}

/// An old client does not say whom it wants; the upstream has to be told.
fn add_host(parts: &mut Parts, target: &config::Upstream) {
    if let config::Upstream::Http { host, port, .. } = target
        && let Ok(host) = HeaderValue::try_from(format!("{host}:{port}"))
    {
        parts.headers.insert(HOST, host);
    }
}

/// Puts an upstream aside, if it was its fault.
fn blame(lease: &Lease, trouble: &Trouble) {
    if trouble.status().is_server_error() {
        lease.failed();
    }
}
