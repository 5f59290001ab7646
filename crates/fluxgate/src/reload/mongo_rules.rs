//! Rules in a collection of MongoDB, as OpenFluxGate keeps them.

mod change_stream;
mod compile;
mod connection;
mod documents;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fluxgate_core::regular_file::MAX_BYTES;
use fluxgate_core::rules::RuleOptions;
use mongodb::Collection;
use mongodb::bson::{RawDocumentBuf, doc};
use tokio::sync::Notify;

use super::cache_file::CacheFile;
use super::error::ReloadError;
use super::snapshot::{CompiledRules, Snapshot, run_blocking};
use super::source::{BoxFuture, KnownSnapshots, RuleSource};
use crate::config::{Deployment, MongoRulesConfig};
use compile::compile;
use connection::{Connection, reason};
use documents::sorted_by_id;

/// How long a read of all documents may take.
const DEADLINE: Duration = Duration::from_secs(30);
/// The maximum number of documents. All of them together have at most [`MAX_BYTES`].
const MAX_DOCUMENTS: usize = 100_000;
/// The number of documents that the server sends at once, if they fit into one message.
const BATCH: u32 = 10_000;
/// How often documents that change are read before the attempt is given up.
const MAX_READS: usize = 5;
/// The wait before documents that have just changed are read again.
const PAUSE: Duration = Duration::from_millis(100);

/// A collection of rule documents.
#[derive(Debug)]
pub(super) struct MongoRules {
    connection: Arc<Connection>,
    /// The database and the collection, as the source is named in messages.
    namespace: String,
    poll: Duration,
    options: RuleOptions,
    deployment: Arc<Deployment>,
    cache: Option<CacheFile>,
}

/// Why the documents are not used.
#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error("no answer within {} s", DEADLINE.as_secs())]
    Deadline,
    #[error("{}", reason(.0))]
    Driver(#[from] mongodb::error::Error),
    #[error("there are more than {MAX_DOCUMENTS} documents")]
    TooMany,
    #[error("the documents have more than {MAX_BYTES} bytes together")]
    TooLarge,
}

impl MongoRules {
    pub(super) fn new(
        config: &MongoRulesConfig,
        options: RuleOptions,
        deployment: Deployment,
    ) -> Self {
        let deployment = Arc::new(deployment);
        let cache = config.cache_file.clone();
        Self {
            namespace: config.namespace(),
            poll: config.poll,
            cache: cache.map(|path| CacheFile::new(path, options, Arc::clone(&deployment))),
            connection: Arc::new(Connection::new(config.clone())),
            options,
            deployment,
        }
    }

    /// Reads the documents until two reads agree: a read may see some of the changes that are
    /// made at the same time and miss others.
    async fn read_settled(&self, known: &KnownSnapshots) -> Result<Arc<Snapshot>, ReloadError> {
        let mut last = self.read_once().await?;
        let mut known_snapshots = known.active.iter().chain(&known.refused);
        // Two reads have agreed on these before.
        if let Some(known) = known_snapshots.find(|known| ***known == last) {
            return Ok(Arc::clone(known));
        }
        for _ in 1..MAX_READS {
            let now = self.read_once().await?;
            if now == last {
                return self.accept(now, known);
            }
            last = now;
            tokio::time::sleep(PAUSE).await;
        }
        Err(ReloadError::Unreadable(format!(
            "{}: the documents change while they are read",
            self.namespace
        )))
    }

    fn accept(
        &self,
        snapshot: Snapshot,
        known: &KnownSnapshots,
    ) -> Result<Arc<Snapshot>, ReloadError> {
        let had_documents = known
            .active
            .as_ref()
            .is_some_and(|active| !active.documents.is_empty());
        // A database that was restored or renamed must not lift all limits.
        if snapshot.documents.is_empty() && had_documents {
            return Err(ReloadError::Unreadable(format!(
                "{}: there are no documents any more; for no rules at all, keep one with `enabled: \
                 false`",
                self.namespace
            )));
        }
        Ok(Arc::new(snapshot))
    }

    async fn read_once(&self) -> Result<Snapshot, ReloadError> {
        let collection = self.connection.collection().await?;
        let read = tokio::time::timeout(DEADLINE, read_documents(&collection)).await;
        let documents = read
            .unwrap_or(Err(ReadError::Deadline))
            .map_err(|error| match error {
                ReadError::Deadline | ReadError::Driver(_) => {
                    ReloadError::NoAnswer(format!("{}: {error}", self.namespace))
                }
                ReadError::TooMany | ReadError::TooLarge => {
                    ReloadError::Unreadable(format!("{}: {error}", self.namespace))
                }
            })?;
        run_blocking(move || {
            Ok(Snapshot {
                version: None,
                documents: sorted_by_id(documents),
                warnings: Vec::new(),
            })
        })
        .await
    }
}

/// Reads all documents, and stops as soon as there are too many.
async fn read_documents(
    collection: &Collection<RawDocumentBuf>,
) -> Result<Vec<RawDocumentBuf>, ReadError> {
    let limit = i64::try_from(MAX_DOCUMENTS + 1).unwrap_or(i64::MAX);
    let find = collection.find(doc! {}).limit(limit).batch_size(BATCH);
    let mut cursor = find.await?;
    let (mut documents, mut bytes) = (Vec::new(), 0);
    while cursor.advance().await? {
        let document = cursor.current();
        bytes += document.as_bytes().len() as u64;
        if documents.len() == MAX_DOCUMENTS {
            return Err(ReadError::TooMany);
        }
        if bytes > MAX_BYTES {
            return Err(ReadError::TooLarge);
        }
        documents.push(document.to_owned());
    }
    Ok(documents)
}

impl RuleSource for MongoRules {
    fn kind(&self) -> &'static str {
        "mongodb"
    }

    fn poll(&self) -> Duration {
        self.poll
    }

    fn read<'a>(
        &'a self,
        known: &'a KnownSnapshots,
    ) -> BoxFuture<'a, Result<Arc<Snapshot>, ReloadError>> {
        Box::pin(self.read_settled(known))
    }

    fn compile(&self, snapshot: &Snapshot) -> Result<CompiledRules, ReloadError> {
        compile(
            &snapshot.documents,
            self.options,
            &self.deployment,
            &self.namespace,
        )
    }

    fn is_server(&self) -> bool {
        true
    }

    fn listen(&self, changed: Arc<Notify>) -> Option<BoxFuture<'static, ()>> {
        let connection = Arc::clone(&self.connection);
        Some(Box::pin(change_stream::listen(connection, changed)))
    }

    fn cache(&self) -> Option<&CacheFile> {
        self.cache.as_ref()
    }
}

impl fmt::Display for MongoRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the collection {} of MongoDB", self.namespace)
    }
}
