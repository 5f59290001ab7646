//! The connection to MongoDB.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use mongodb::bson::RawDocumentBuf;
use mongodb::error::{Error, ErrorKind};
use mongodb::options::ClientOptions;
use mongodb::{Client, Collection};
use tokio::sync::Mutex;

use crate::config::{MongoRulesConfig, MongoUrl, MongoUrlSource, Secret};
use crate::reload::snapshot::{ReloadError, run_blocking};

/// How long to look for a server, unless the connection string says otherwise. The next attempt
/// goes on where this one has ended.
const SELECTION_TIMEOUT: Duration = Duration::from_secs(2);
/// How long to wait for a connection, unless the connection string says otherwise.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Connects to MongoDB when first needed, and again if the connection string has changed.
pub(super) struct Connection {
    config: MongoRulesConfig,
    /// The client, and the connection string that it was made from.
    client: Mutex<Option<(MongoUrl, Client)>>,
}

impl Connection {
    pub(super) fn new(config: MongoRulesConfig) -> Self {
        Self {
            config,
            client: Mutex::new(None),
        }
    }

    /// Returns the collection of the rules.
    pub(super) async fn collection(&self) -> Result<Collection<RawDocumentBuf>, ReloadError> {
        let url = self.url().await?;
        let mut known = self.client.lock().await;
        let client = match &*known {
            Some((known, client)) if *known == url => client.clone(),
            _ => {
                let client = connect(&url).await.map_err(|error| {
                    let namespace = self.config.namespace();
                    ReloadError::NoAnswer(format!("{namespace}: {}", reason(&error)))
                })?;
                known.insert((url, client)).1.clone()
            }
        };
        let MongoRulesConfig {
            database,
            collection,
            ..
        } = &self.config;
        Ok(client.database(database).collection(collection))
    }

    /// Returns how often the collection is read without a sign of a change.
    pub(super) fn poll(&self) -> Duration {
        self.config.poll
    }

    /// Reads the connection string, which may have been replaced since the last time.
    async fn url(&self) -> Result<MongoUrl, ReloadError> {
        match &self.config.url {
            MongoUrlSource::Given(url) => Ok(url.clone()),
            MongoUrlSource::File(path) => {
                let path = path.clone();
                run_blocking(move || read_url(&path)).await
            }
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

fn read_url(path: &Path) -> Result<MongoUrl, ReloadError> {
    let field = "rules_from.mongodb.url_file";
    let text = Secret::read_text(field, path)
        .map_err(|error| ReloadError::Unreadable(error.to_string()))?;
    let text = text.as_text().unwrap_or_default().trim();
    MongoUrl::parse(text).map_err(|why| {
        let path = path.display();
        ReloadError::Unreadable(format!("`{field}`: the content of {path} {why}"))
    })
}

async fn connect(url: &MongoUrl) -> Result<Client, Error> {
    let mut options = ClientOptions::parse(url.as_str()).await?;
    options.app_name.get_or_insert_with(|| "fluxgate".into());
    options
        .server_selection_timeout
        .get_or_insert(SELECTION_TIMEOUT);
    options.connect_timeout.get_or_insert(CONNECT_TIMEOUT);
    Client::with_options(options)
}

/// Returns why a call failed, on one line. Errors of the driver contain no passwords.
pub(super) fn reason(error: &Error) -> String {
    let reason = match &*error.kind {
        ErrorKind::Command(error) => {
            format!(
                "the server refuses with code {}: {}",
                error.code, error.message
            )
        }
        kind => kind.to_string(),
    };
    reason.split_whitespace().collect::<Vec<_>>().join(" ")
}
