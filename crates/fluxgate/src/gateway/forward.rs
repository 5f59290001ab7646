//! A request on its way to an upstream, and the answer on its way back.

use std::sync::Arc;

use http::header::{CONNECTION, HOST, UPGRADE};
use http::request::Parts;
use http::{HeaderValue, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;

use super::activity::{Activity, Stillness};
use super::answer_body::{AnswerBody, Streamed};
use super::pool::Connection;
use super::request_body::RequestBody;
use super::routes::Route;
use super::trouble::Trouble;
use super::tunnel::{Slot, Tunnel};
use super::upstreams::{Lease, Tried};
use super::{Gateway, echo, hop_by_hop, open, strict};
use crate::config;

/// A request, ready to be sent.
pub(super) struct Outgoing {
    pub(super) parts: Parts,
    pub(super) body: RequestBody,
    pub(super) activity: Arc<Activity>,
    /// The client's side of another protocol, if it asks for one.
    pub(super) upgrade: Option<OnUpgrade>,
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
            upgrade,
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
                    return self.pass_on(answered, lease, activity, upgrade, tunnels);
                }
                Err(Failure::Sent(trouble)) => return Err((trouble, Some(lease))),
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
        activity: &Activity,
    ) -> Result<Answered, Failure> {
        let number = lease.upstream().number;
        if !parts.headers.contains_key(HOST) {
            add_host(&mut parts, &lease.upstream().target);
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
            }
        }
        let (tls, within) = (self.client_tls.as_ref(), self.timeouts.connect);
        let mut connection = match Box::pin(open::open(lease.upstream(), tls, within)).await {
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
                let (Failure::Sent(trouble) | Failure::Unsent(_, trouble)) = &failure;
                blame(lease, trouble);
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
        activity: &Activity,
    ) -> Result<Response<Incoming>, Failure> {
        activity.moves();
        let answer = connection
            .sender
            .try_send_request(Request::from_parts(parts, body));
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
        upgrade: Option<OnUpgrade>,
        tunnels: &Slot,
    ) -> Result<Response<AnswerBody>, (Trouble, Option<Lease>)> {
        let Answered {
            mut response,
            connection,
        } = answered;
        if let Err(trouble) = strict::check_answer(response.headers()) {
            lease.failed();
            return Err((trouble, Some(lease)));
        }
        let protocol = response.headers().get(UPGRADE).cloned();
        hop_by_hop::strip(response.headers_mut());
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let (Some(client), Some(protocol)) = (upgrade, protocol) else {
                lease.failed();
                return Err((Trouble::Unasked, Some(lease)));
            };
            lease.succeeded();
            let headers = response.headers_mut();
            headers.insert(CONNECTION, UPGRADE_OPTION);
            headers.insert(UPGRADE, protocol);
            let upstream = hyper::upgrade::on(&mut response);
            tunnels.put(Tunnel {
                client,
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
