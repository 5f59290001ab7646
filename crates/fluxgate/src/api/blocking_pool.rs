//! Tasks beside the handlers: long work on a blocking thread, and changes that must run to
//! their end.

use std::sync::Arc;

use fluxgate_http::Problem;
use http::header::RETRY_AFTER;
use http::{HeaderValue, StatusCode};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// The most calls that wait for the one before them.
const MAX_WAITING: usize = 16;

/// Runs the work of one call at a time, so that many calls occupy at most one core.
#[derive(Debug)]
pub(super) struct BlockingPool {
    /// A permit for each call that runs or waits.
    waiting: Arc<Semaphore>,
    /// The permit to run.
    running: Arc<Semaphore>,
}

impl Default for BlockingPool {
    fn default() -> Self {
        Self {
            waiting: Arc::new(Semaphore::new(1 + MAX_WAITING)),
            running: Arc::new(Semaphore::new(1)),
        }
    }
}

impl BlockingPool {
    /// Runs `work` on a blocking thread after the work of earlier calls. If too many calls
    /// wait already, answers 503.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let waiting = Arc::clone(&self.waiting)
            .try_acquire_owned()
            .map_err(|_| overloaded())?;
        let running = Arc::clone(&self.running)
            .acquire_owned()
            .await
            .map_err(|_| overloaded())?;
        let task = tokio::task::spawn_blocking(move || {
            // The work continues if the client disconnects, so it owns the permits.
            let _permits = (waiting, running);
            work()
        });
        join(task).await
    }
}

/// Runs `work` to its end even if the client disconnects.
pub(super) async fn run_to_completion<T: Send + 'static>(
    work: impl Future<Output = Result<T, Problem>> + Send + 'static,
) -> Result<T, Problem> {
    join(tokio::spawn(work)).await
}

/// Returns the result of a task; a panic becomes a 500.
pub(super) async fn join<T>(task: JoinHandle<Result<T, Problem>>) -> Result<T, Problem> {
    task.await.unwrap_or_else(|error| {
        let detail = format!("the request failed: {error}");
        Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, detail))
    })
}

fn overloaded() -> Problem {
    let detail = "too many calls wait for rules to be validated; try again";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail)
        .with_header(RETRY_AFTER, HeaderValue::from_static("1"))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn one_call_runs_some_wait_and_the_rest_is_refused() {
        let work = Arc::new(BlockingPool::default());
        let (go, wait) = mpsc::channel::<()>();
        let (ended, ends) = mpsc::channel();
        let call = |first: Option<mpsc::Receiver<()>>| {
            let (work, ended) = (Arc::clone(&work), ended.clone());
            let call = async move {
                work.run(move || {
                    let is_first = first.is_some();
                    first.map(|wait| wait.recv());
                    ended.send(is_first).unwrap();
                    Ok(())
                })
                .await
            };
            tokio::spawn(call)
        };
        let mut calls = vec![call(Some(wait))];
        calls.extend((0..MAX_WAITING).map(|_| call(None)));
        while work.waiting.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        // Its client has disconnected, but it still runs.
        calls.remove(0).abort();
        let refused = call(None).await.unwrap().unwrap_err();
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert!(ends.try_recv().is_err());
        go.send(()).unwrap();
        for call in calls {
            assert!(call.await.unwrap().is_ok());
        }
        let ends: Vec<_> = ends.try_iter().collect();
        assert_eq!(ends.len(), 1 + MAX_WAITING);
        assert!(ends[0], "the first call ends before the others begin");
        assert!(call(None).await.unwrap().is_ok());
    }
}
