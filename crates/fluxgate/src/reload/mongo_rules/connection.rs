//! The connection to MongoDB.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::RawDocumentBuf;
use mongodb::error::{Error, ErrorKind};
use mongodb::event::EventHandler;
use mongodb::event::sdam::SdamEvent;
use mongodb::options::ClientOptions;
use mongodb::{Client, Collection, ServerType};
use tokio::sync::{Mutex, Notify};

use crate::config::{MongoRulesConfig, MongoUrl, MongoUrlSource, Secret};
use crate::reload::error::ReloadError;
use crate::reload::snapshot::run_blocking;

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
    /// Notified when a server is lost or found.
    availability: Arc<Notify>,
}

impl Connection {
    pub(super) fn new(config: MongoRulesConfig) -> Self {
        Self {
            config,
            client: Mutex::new(None),
            availability: Arc::default(),
        }
    }

    /// Waits until a server is lost or found, or has been since the last call.
    pub(super) async fn availability_changed(&self) {
        self.availability.notified().await;
    }

    /// Returns the collection of the rules.
    pub(super) async fn collection(&self) -> Result<Collection<RawDocumentBuf>, ReloadError> {
        let url = self.url().await?;
        let mut known = self.client.lock().await;
        let client = match &*known {
            Some((known, client)) if *known == url => client.clone(),
            _ => {
                let availability = Arc::clone(&self.availability);
                let client = connect(&url, availability).await.map_err(|error| {
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

async fn connect(url: &MongoUrl, availability: Arc<Notify>) -> Result<Client, Error> {
    let mut options = ClientOptions::parse(url.as_str()).await?;
    options.app_name.get_or_insert_with(|| "fluxgate".into());
    options
        .server_selection_timeout
        .get_or_insert(SELECTION_TIMEOUT);
    options.connect_timeout.get_or_insert(CONNECT_TIMEOUT);
    options.sdam_event_handler = Some(EventHandler::callback(move |event| {
        if let SdamEvent::ServerDescriptionChanged(change) = event {
            let [before, now] = [&change.previous_description, &change.new_description]
                .map(|server| server.server_type() != ServerType::Unknown);
            if before != now {
                availability.notify_one();
            }
        }
    }));
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
        kind @ ErrorKind::ServerSelection { .. } => no_server(&kind.to_string()),
        kind => cause(&kind.to_string()),
    };
    reason.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns why there is no server, from a text with a description of each:
/// `… Topology: { …, Servers: [ { Address: a:1, Type: Unknown, Error: … }, … ] }`.
fn no_server(text: &str) -> String {
    let servers = text.split("{ Address: ").skip(1).filter_map(|server| {
        let (address, rest) = server.split_once(", ")?;
        let (_, error) = rest.split_once("Error: ")?;
        Some(format!("{address}: {}", cause(error)))
    });
    let servers: Vec<_> = servers.collect();
    if servers.is_empty() {
        return before(text, " Topology:").to_owned();
    }
    servers.join("; ")
}

/// Returns the innermost cause in the text of an error, such as `connection refused` in `Kind: I/O
/// error: Connection refused (os error 111), labels: {}, …`.
fn cause(text: &str) -> String {
    let (_, innermost) = text.rsplit_once("Kind: ").unwrap_or(("", text));
    let described = before(innermost, ", labels:");
    let message = before(described.trim_start_matches("I/O error: "), " (os error");
    let mut chars = message.chars();
    match (chars.next(), chars.clone().next()) {
        // Not of an abbreviation.
        (Some(first), Some(second)) if second.is_lowercase() => {
            format!("{}{}", first.to_lowercase(), chars.as_str())
        }
        _ => message.to_owned(),
    }
}

/// Returns the part of a text before `end`, or all of it.
fn before<'t>(text: &'t str, end: &str) -> &'t str {
    text.split_once(end).map_or(text, |(before, _)| before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_short() {
        let refused = "Kind: I/O error: Connection refused (os error 111), labels: {}, source: \
                       None, server response: None";
        let start = "Server selection timeout: No available servers. Topology: { Type: ";
        for (text, expected) in [
            (
                format!(
                    "{start}Single, Servers: [ {{ Address: 127.0.0.1:44097, Type: Unknown, Error: \
                     {refused} }} ] }}"
                ),
                "127.0.0.1:44097: connection refused",
            ),
            (
                format!(
                    "{start}ReplicaSetNoPrimary, Set Name: rs, Servers: [ {{ Address: a:1, Type: \
                     Unknown, Error: {refused} }}, {{ Address: b:2, Type: RsSecondary, Average \
                     RTT: 1ms }}, {{ Address: [::1]:3, Type: Unknown, Error: Kind: I/O error: \
                     timed out, labels: {{}} }} ] }}"
                ),
                "a:1: connection refused; [::1]:3: timed out",
            ),
            (
                format!("{start}ReplicaSetNoPrimary }}"),
                "Server selection timeout: No available servers.",
            ),
        ] {
            assert_eq!(no_server(&text), expected);
        }
        for (text, expected) in [
            (refused, "connection refused"),
            (
                "I/O error: Connection reset by peer (os error 104)",
                "connection reset by peer",
            ),
            (
                "Connection pool for a:1 cleared because another operation failed with: Kind: I/O \
                 error: unexpected end of file, labels: {\"x\"}, source: None",
                "unexpected end of file",
            ),
            ("SCRAM failure: x", "SCRAM failure: x"),
            ("", ""),
        ] {
            assert_eq!(cause(text), expected);
        }
    }
}
