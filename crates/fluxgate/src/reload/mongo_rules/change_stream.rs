//! Waits for changes of the documents. A change means only that they have to be read again.

use std::sync::Arc;
use std::time::Duration;

use fluxgate_redis::BackOff;
use mongodb::bson::{RawDocumentBuf, doc};
use mongodb::change_stream::ChangeStream;
use mongodb::error::{Error, ErrorKind};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::connection::{Connection, reason};
use crate::reload::error::ReloadError;

/// The codes of servers without change streams: a standalone server, one that does not implement
/// them, and one that does not know them.
const UNSUPPORTED: [i32; 3] = [40573, 238, 40324];
/// The longest wait before the next attempt to open a stream.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// The wait before a server without change streams is asked again: it may have been replaced.
const UNSUPPORTED_WAIT: Duration = Duration::from_secs(600);
/// How long the server may take to answer, also that nothing has changed.
const DEADLINE: Duration = Duration::from_secs(10);
/// The time between two calls that return nothing. Servers wait before they answer.
const PACE: Duration = Duration::from_millis(200);

/// Why there is no stream of changes.
#[derive(Debug, thiserror::Error)]
enum StreamError {
    #[error("the server has no change streams (code {0})")]
    Unsupported(i32),
    #[error("no answer within {} s", DEADLINE.as_secs())]
    Deadline,
    #[error("{}", reason(.0))]
    Driver(Error),
    #[error("{0}")]
    Connection(#[from] ReloadError),
    #[error("the server has closed the stream")]
    Closed,
}

impl From<Error> for StreamError {
    fn from(error: Error) -> Self {
        match &*error.kind {
            ErrorKind::Command(refusal) if UNSUPPORTED.contains(&refusal.code) => {
                Self::Unsupported(refusal.code)
            }
            _ => Self::Driver(error),
        }
    }
}

/// Notifies `changed` of each change, and when a server is lost or found, for as long as the
/// runtime runs.
pub(super) async fn listen(connection: Arc<Connection>, changed: Arc<Notify>) {
    tokio::join!(
        watch_availability(&connection, &changed),
        follow(&connection, &changed)
    );
}

/// Notifies `changed` when a server is lost or found.
async fn watch_availability(connection: &Connection, changed: &Notify) {
    loop {
        connection.availability_changed().await;
        changed.notify_one();
    }
}

/// Notifies `changed` of each change that a stream announces.
async fn follow(connection: &Connection, changed: &Notify) {
    let mut back_off = BackOff::up_to(LONGEST_WAIT);
    let mut log = StreamLog::default();
    loop {
        let error = match open(connection).await {
            Ok(stream) => {
                log.opened();
                // For the changes before it was open.
                changed.notify_one();
                pass_on(stream, changed, &mut back_off).await
            }
            Err(error) => error,
        };
        log.failed(&error, connection.poll());
        let wait = match error {
            StreamError::Unsupported(_) => UNSUPPORTED_WAIT,
            _ => back_off.next_wait(),
        };
        tokio::time::sleep(wait).await;
    }
}

async fn open(connection: &Connection) -> Result<ChangeStream<RawDocumentBuf>, StreamError> {
    let collection = connection.collection().await?;
    // The documents themselves are not needed, and may be large.
    let fields = doc! { "$project": { "_id": 1, "operationType": 1, "ns": 1 } };
    let opened = timeout(
        DEADLINE,
        collection.watch().pipeline([fields]).into_future(),
    )
    .await;
    let stream = opened.map_err(|_| StreamError::Deadline)??;
    Ok(stream.with_type())
}

/// Notifies `changed` of each change until the stream ends, and returns why it did.
async fn pass_on(
    mut stream: ChangeStream<RawDocumentBuf>,
    changed: &Notify,
    back_off: &mut BackOff,
) -> StreamError {
    while stream.is_alive() {
        let pace = tokio::time::sleep(PACE);
        match timeout(DEADLINE, stream.next_if_any()).await {
            Ok(Ok(Some(_))) => changed.notify_one(),
            Ok(Ok(None)) => pace.await,
            Ok(Err(error)) => return error.into(),
            Err(_) => return StreamError::Deadline,
        }
        back_off.reset();
    }
    StreamError::Closed
}

/// Logs when the stream is lost and when it is back, each once.
#[derive(Debug, Default)]
struct StreamLog {
    /// What was logged last, if there is no stream.
    last: Option<&'static str>,
}

impl StreamLog {
    fn opened(&mut self) {
        if self.last.take().is_some() {
            tracing::info!("MongoDB announces changes of the rules again");
        }
    }

    fn failed(&mut self, error: &StreamError, poll: Duration) {
        let kind = match error {
            StreamError::Unsupported(_) => "unsupported",
            // A collection that was dropped or renamed.
            StreamError::Closed => return,
            _ => "failed",
        };
        if self.last.replace(kind) == Some(kind) {
            return;
        }
        let poll_ms = poll.as_millis();
        match error {
            StreamError::Unsupported(code) => tracing::info!(
                code,
                poll_ms,
                "MongoDB has no change streams here; the rules are polled"
            ),
            _ => tracing::warn!(
                %error,
                poll_ms,
                "MongoDB announces no changes of the rules; they take effect at the next poll"
            ),
        }
    }
}
