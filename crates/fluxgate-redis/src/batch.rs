//! Sends requests that are ready at the same moment in one call.
//!
//! A lone request is sent at once, by its own task. If the last call had several requests, the
//! next one yields to the scheduler once, without a timer, so that tasks that are ready can
//! join. Requests that arrive while calls are in flight form the next call.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fluxgate_core::StoreError;
use redis::Value;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::codec::{Answer, Call, Request};
use crate::deadlines::Deadlines;
use crate::error::{CallError, no_answer, unexpected};
use crate::lock::lock;
use crate::node::{Node, Operation};
use crate::script::TimeSource;

/// The most requests in one call: a call blocks the server for other clients.
const MAX_REQUESTS: usize = 32;
/// The most calls in flight: the server decides one while the next is on its way.
const MAX_CALLS: usize = 2;
/// The most full calls in flight: over a slow network, more of them are on their way.
const MAX_FULL_CALLS: usize = 8;

/// The requests of one runtime to one server.
#[derive(Debug)]
pub(crate) struct Batcher {
    node: Arc<Node>,
    deadline: Duration,
    deadlines: Deadlines,
    time: TimeSource,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<QueuedRequest>,
    /// Calls in flight, including one that is gathering.
    calls: usize,
    /// Whether a task is about to send the waiting requests.
    gathering: bool,
    /// The number of requests in the last call.
    last: usize,
}

/// A request in the queue, and where its answer goes.
#[derive(Debug)]
struct QueuedRequest {
    request: Request,
    answer: oneshot::Sender<Result<Answer, StoreError>>,
}

#[expect(
    clippy::large_enum_variant,
    reason = "it is matched at once and never stored"
)]
enum Dispatch {
    /// Another call takes the request.
    Queued(oneshot::Receiver<Result<Answer, StoreError>>),
    /// The caller sends the request, as a call that is counted already.
    Alone(Request),
}

impl Batcher {
    pub(crate) fn new(node: Arc<Node>, deadline: Duration, time: TimeSource) -> Self {
        Self {
            node,
            deadline,
            deadlines: Deadlines::default(),
            time,
            queue: Mutex::default(),
        }
    }

    /// Sends a request, alone or with others.
    pub(crate) async fn send(
        self: &Arc<Self>,
        request: Request,
        deadline: Instant,
    ) -> Result<Answer, StoreError> {
        let answer = match self.dispatch(request) {
            Dispatch::Queued(answer) => answer,
            Dispatch::Alone(alone) => {
                let _call = InFlightCall(self);
                // Boxed, so that requests in a queue reserve no space for this large future.
                let mut answers = Box::pin(self.call(&[&alone], deadline)).await?;
                return answers
                    .pop()
                    .unwrap_or_else(|| Err(unexpected("the script")));
            }
        };
        match self.deadlines.timeout_at(deadline, answer).await {
            Ok(Ok(answer)) => answer,
            // A request that still waits in the queue is not sent any more.
            Ok(Err(_)) | Err(_) => Err(no_answer(&self.node.name())),
        }
    }

    /// Queues a request, unless it may be sent alone.
    fn dispatch(self: &Arc<Self>, request: Request) -> Dispatch {
        let mut queue = lock(&self.queue);
        if queue.calls == 0 && queue.last <= 1 {
            queue.calls = 1;
            return Dispatch::Alone(request);
        }
        let (sender, answer) = oneshot::channel();
        queue.waiting.push_back(QueuedRequest {
            request,
            answer: sender,
        });
        self.gather(&mut queue);
        Dispatch::Queued(answer)
    }

    /// Starts a task that sends the waiting requests and those that arrive until it runs, unless
    /// there are too many calls.
    fn gather(self: &Arc<Self>, queue: &mut Queue) {
        let max_calls = if queue.waiting.len() >= MAX_REQUESTS {
            MAX_FULL_CALLS
        } else {
            MAX_CALLS
        };
        if queue.gathering || queue.calls >= max_calls || queue.waiting.is_empty() {
            return;
        }
        let Ok(runtime) = Handle::try_current() else {
            // The runtime is gone, and the waiting tasks with it.
            queue.waiting.clear();
            return;
        };
        queue.gathering = true;
        queue.calls += 1;
        let batcher = Arc::clone(self);
        runtime.spawn(async move {
            let _call = InFlightCall(&batcher);
            tokio::task::yield_now().await;
            batcher.send_waiting().await;
        });
    }

    async fn send_waiting(self: &Arc<Self>) {
        let waiting: Vec<QueuedRequest> = {
            let mut queue = lock(&self.queue);
            queue.gathering = false;
            let mut taken = Vec::new();
            while taken.len() < MAX_REQUESTS {
                match queue.waiting.pop_front() {
                    Some(waiting) if waiting.answer.is_closed() => {}
                    Some(waiting) => taken.push(waiting),
                    None => break,
                }
            }
            queue.last = taken.len();
            // Requests beyond the maximum form the next call.
            self.gather(&mut queue);
            taken
        };
        if waiting.is_empty() {
            return;
        }
        let requests: Vec<&Request> = waiting.iter().map(|waiting| &waiting.request).collect();
        let deadline = Instant::now() + self.deadline;
        // Ignores tasks that no longer wait.
        match self.call(&requests, deadline).await {
            Ok(answers) => {
                for (waiting, answer) in waiting.into_iter().zip(answers) {
                    let _ = waiting.answer.send(answer);
                }
            }
            Err(cause) => {
                for waiting in waiting {
                    let _ = waiting.answer.send(Err(cause.clone()));
                }
            }
        }
    }

    /// Sends requests in one call.
    async fn call(
        &self,
        requests: &[&Request],
        deadline: Instant,
    ) -> Result<Vec<Result<Answer, StoreError>>, StoreError> {
        let call = Call::new(requests, self.time.now());
        let operation = Operation::Script(self.time.script(call.has_leases), &call);
        let reply = match self.node.perform(operation, false, deadline).await {
            // The server did nothing, and the node finds the new primary.
            Err(CallError::ReadOnly(_)) => self.node.perform(operation, false, deadline).await?,
            reply => reply?,
        };
        let answers = bytes_of(&reply).and_then(|bytes| call.answers(bytes, requests.len()));
        if let Err(cause) = &answers {
            self.node.drop_connection(cause);
        }
        answers
    }
}

/// Returns the string that the script replied with.
pub(crate) fn bytes_of(reply: &Value) -> Result<&[u8], StoreError> {
    match reply {
        Value::BulkString(bytes) => Ok(bytes),
        _ => Err(unexpected("the script")),
    }
}

/// Counts a call as in flight until it is dropped.
struct InFlightCall<'b>(&'b Arc<Batcher>);

impl Drop for InFlightCall<'_> {
    fn drop(&mut self) {
        let mut queue = lock(&self.0.queue);
        queue.calls -= 1;
        self.0.gather(&mut queue);
    }
}
