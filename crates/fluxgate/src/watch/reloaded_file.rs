//! A value that is built from files, and rebuilt when they change: certificates and tokens.
//! (`reload` reloads rules.)

use std::fmt::Display;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use super::signals::next_signal;

/// How often the files are read.
const INTERVAL: Duration = Duration::from_secs(2);

/// The files, and how the value is built from them.
pub(crate) trait FileValue: Clone + Send + 'static {
    /// The content of the files.
    type Content: PartialEq + Send;
    /// The value.
    type Value;
    /// Why the files cannot be read or the value not be built.
    type Error: Display + Send;

    /// Returns what is logged when the value has been rebuilt.
    fn replaced(&self) -> &'static str;

    /// Returns what is logged when it could not be, and the old one stays.
    fn kept(&self) -> &'static str;

    /// Reads the files.
    fn read(&self) -> Result<Self::Content, Self::Error>;

    /// Builds the value.
    fn build(&self, content: &Self::Content) -> Result<Self::Value, Self::Error>;
}

/// The value that was last built from valid files.
#[derive(Debug)]
pub(crate) struct ReloadedFile<S: FileValue> {
    source: S,
    last: RwLock<(S::Content, Arc<S::Value>)>,
}

impl<S: FileValue> ReloadedFile<S> {
    /// Builds the value for the first time.
    pub(crate) fn new(source: S) -> Result<Self, S::Error> {
        let content = source.read()?;
        let value = Arc::new(source.build(&content)?);
        Ok(Self {
            source,
            last: RwLock::new((content, value)),
        })
    }

    /// Returns the current value.
    pub(crate) fn current(&self) -> Arc<S::Value> {
        let last = self.last.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&last.1)
    }

    /// Rebuilds the value whenever the files change; never returns. A bad file is
    /// logged once and changes nothing.
    pub(crate) async fn keep_current(&self) {
        let mut hangup = signal(SignalKind::hangup()).ok();
        let mut logged = None;
        loop {
            tokio::select! {
                () = tokio::time::sleep(INTERVAL) => {}
                () = next_signal(&mut hangup) => logged = None,
            }
            match self.reload().await {
                Ok(false) => {}
                Ok(true) => {
                    logged = None;
                    tracing::info!("{}", self.source.replaced());
                }
                Err(error) => {
                    let error = error.to_string();
                    if logged.as_ref() != Some(&error) {
                        tracing::error!(%error, "{}", self.source.kept());
                        logged = Some(error);
                    }
                }
            }
        }
    }

    /// Reads the files; returns whether the value has changed.
    async fn reload(&self) -> Result<bool, S::Error> {
        let source = self.source.clone();
        // A hanging file system must not block signals, nor what else this thread does.
        let read = tokio::task::spawn_blocking(move || source.read()).await;
        let Ok(content) = read else {
            // The runtime shuts down.
            return Ok(false);
        };
        let content = content?;
        let is_same = {
            let last = self.last.read().unwrap_or_else(PoisonError::into_inner);
            last.0 == content
        };
        if is_same {
            return Ok(false);
        }
        let value = Arc::new(self.source.build(&content)?);
        let mut last = self.last.write().unwrap_or_else(PoisonError::into_inner);
        *last = (content, value);
        Ok(true)
    }
}
