//! Requests that are ready at the same moment travel together.
//!
//! A request that comes alone is sent at once by whoever asks. When the last
//! ones came together, the next is given the time in which the tasks that are
//! ready now can join it: no timer, one turn of the scheduler. While calls are
//! under way, those that come meanwhile make up the next one.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fluxgate_core::StoreError;
use redis::Value;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use crate::codec::{Answer, Call, Request};
use crate::endpoint::unexpected;
use crate::error::{CallError, timeout as no_answer};
use crate::node::{Node, Work};
use crate::script::TimeSource;

/// So many requests make one call at most: the server answers nobody else
/// meanwhile.
const MOST_REQUESTS: usize = 32;
/// So many calls are under way at most: one is decided while the next travels.
const MOST_CALLS: usize = 3;

/// The requests to one server.
#[derive(Debug)]
pub(crate) struct Batcher {
    node: Arc<Node>,
    deadline: Duration,
    time: TimeSource,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    /// Calls under way, the one included that is gathering.
    calls: usize,
    /// Whether a call is about to take what is waiting.
    gathering: bool,
    /// How many requests the last call had.
    last: usize,
}

#[derive(Debug)]
struct Waiting {
    request: Request,
    answer: oneshot::Sender<Result<Answer, StoreError>>,
}

enum Joined {
    Waits(oneshot::Receiver<Result<Answer, StoreError>>),
    GoesAlone(Request),
}

impl Batcher {
    pub(crate) fn new(node: Arc<Node>, deadline: Duration, time: TimeSource) -> Arc<Self> {
        Arc::new(Self {
            node,
            deadline,
            time,
            queue: Mutex::default(),
        })
    }

    pub(crate) fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// Sends a request, alone or with others.
    pub(crate) async fn ask(
        self: &Arc<Self>,
        request: Request,
        deadline: Instant,
    ) -> Result<Answer, StoreError> {
        let answer = match self.join(request) {
            Joined::Waits(answer) => answer,
            Joined::GoesAlone(alone) => {
                let _call = CallUnderWay(self);
                let mut answers = self.send(&[&alone], deadline).await?;
                return answers
                    .pop()
                    .unwrap_or_else(|| Err(unexpected("the script")));
            }
        };
        match timeout_at(deadline, answer).await {
            Ok(Ok(answer)) => answer,
            // Not sent if it is still waiting: nobody would hear the answer.
            Ok(Err(_)) | Err(_) => Err(no_answer(&self.node.name())),
        }
    }

    /// Puts a request among those that wait; gives it back if it may go alone,
    /// as a call that has been counted.
    fn join(self: &Arc<Self>, request: Request) -> Joined {
        let mut queue = self.queue();
        if queue.calls == 0 && queue.last <= 1 {
            queue.calls = 1;
            return Joined::GoesAlone(request);
        }
        let (sender, answer) = oneshot::channel();
        queue.waiting.push_back(Waiting {
            request,
            answer: sender,
        });
        self.gather(&mut queue);
        Joined::Waits(answer)
    }

    /// Sends what is waiting, and what comes until the scheduler's next turn, in
    /// a task of its own; if there may be one more call.
    fn gather(self: &Arc<Self>, queue: &mut Queue) {
        if queue.gathering || queue.calls >= MOST_CALLS || queue.waiting.is_empty() {
            return;
        }
        let Ok(runtime) = Handle::try_current() else {
            // The runtime is gone, and who waits with it.
            queue.waiting.clear();
            return;
        };
        queue.gathering = true;
        queue.calls += 1;
        let batcher = Arc::clone(self);
        runtime.spawn(async move {
            let _call = CallUnderWay(&batcher);
            tokio::task::yield_now().await;
            batcher.send_waiting().await;
        });
    }

    async fn send_waiting(self: &Arc<Self>) {
        let waiting: Vec<Waiting> = {
            let mut queue = self.queue();
            queue.gathering = false;
            let mut taken = Vec::new();
            while taken.len() < MOST_REQUESTS {
                match queue.waiting.pop_front() {
                    Some(gone) if gone.answer.is_closed() => {}
                    Some(waiting) => taken.push(waiting),
                    None => break,
                }
            }
            queue.last = taken.len();
            // What found no room makes up the next call.
            self.gather(&mut queue);
            taken
        };
        if waiting.is_empty() {
            return;
        }
        let requests: Vec<&Request> = waiting.iter().map(|waiting| &waiting.request).collect();
        let deadline = Instant::now() + self.deadline;
        // Who has stopped waiting does not hear it.
        match self.send(&requests, deadline).await {
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

    async fn send(
        &self,
        requests: &[&Request],
        deadline: Instant,
    ) -> Result<Vec<Result<Answer, StoreError>>, StoreError> {
        let call = Call::new(requests, self.time.now());
        let work = Work::Script(self.time.script(), &call);
        let reply = match self.node.perform(&work, false, deadline).await {
            // It did nothing, and there is a new primary to be found.
            Err(CallError::ReadOnly(_)) => self.node.perform(&work, false, deadline).await,
            reply => reply,
        };
        let reply = reply.map_err(CallError::into_store_error)?;
        let answers = bytes_of(&reply).and_then(|bytes| call.answers(bytes, requests.len()));
        if let Err(cause) = &answers {
            self.node.distrust(cause);
        }
        answers
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        // Nothing can panic while it is held.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The one string that the script answers with.
pub(crate) fn bytes_of(reply: &Value) -> Result<&[u8], StoreError> {
    match reply {
        Value::BulkString(bytes) => Ok(bytes),
        _ => Err(unexpected("the script")),
    }
}

/// A call, until it is over, in whatever way.
struct CallUnderWay<'b>(&'b Arc<Batcher>);

impl Drop for CallUnderWay<'_> {
    fn drop(&mut self) {
        let mut queue = self.0.queue();
        queue.calls -= 1;
        self.0.gather(&mut queue);
    }
}
