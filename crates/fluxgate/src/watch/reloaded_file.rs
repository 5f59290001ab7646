//! A value that is built from files, and rebuilt when they change: certificates and tokens.
//! (`reload` reloads rules.)

use std::fmt::Display;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use super::signals::next_signal;

/// How often the files are read. A change takes effect when two successive reads agree.
const INTERVAL: Duration = Duration::from_secs(1);

/// The files, and how the value is built from them.
pub(crate) trait FileValue: Clone + Send + 'static {
    /// The content of the files.
    type Content: PartialEq + Send + Sync;
    /// The value.
    type Value;
    /// Why the files cannot be read, or the value cannot be built.
    type Error: Display + Send;

    /// Returns the log message for a value that has been rebuilt.
    fn replaced_message(&self) -> String;

    /// Returns the log message for a value that cannot be rebuilt, so that the old one stays.
    fn kept_message(&self) -> String;

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
        let (mut logged, mut unconfirmed) = (None, None);
        loop {
            tokio::select! {
                () = tokio::time::sleep(INTERVAL) => {}
                () = next_signal(&mut hangup) => logged = None,
            }
            match self.reload(&mut unconfirmed).await {
                Ok(false) => {}
                Ok(true) => {
                    logged = None;
                    tracing::info!("{}", self.source.replaced_message());
                }
                Err(error) => {
                    let error = error.to_string();
                    if logged.as_ref() != Some(&error) {
                        tracing::error!(%error, "{}", self.source.kept_message());
                        logged = Some(error);
                    }
                }
            }
        }
    }

    /// Reads the files; returns whether the value has changed.
    ///
    /// A file that is being written may be valid but incomplete: a certificate without its
    /// intermediates, or some of the tokens. So new content is `unconfirmed` until the next read
    /// finds the same.
    async fn reload(&self, unconfirmed: &mut Option<S::Content>) -> Result<bool, S::Error> {
        let before = unconfirmed.take();
        let source = self.source.clone();
        // A hanging file system must not block signals or other work of this thread.
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
        if before.as_ref() != Some(&content) {
            *unconfirmed = Some(content);
            return Ok(false);
        }
        let built = self.source.build(&content);
        // Invalid content stays invalid, so the next read need not confirm it.
        let value = match built {
            Ok(value) => Arc::new(value),
            Err(error) => {
                *unconfirmed = Some(content);
                return Err(error);
            }
        };
        let mut last = self.last.write().unwrap_or_else(PoisonError::into_inner);
        *last = (content, value);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// A file with this content. The value is its length; `bad` cannot be used.
    #[derive(Clone, Debug)]
    struct File(Arc<Mutex<&'static str>>);

    impl FileValue for File {
        type Content = String;
        type Value = usize;
        type Error = &'static str;

        fn replaced_message(&self) -> String {
            "replaced".into()
        }

        fn kept_message(&self) -> String {
            "kept".into()
        }

        fn read(&self) -> Result<String, &'static str> {
            match *self.0.lock().unwrap() {
                "missing" => Err("cannot be read"),
                content => Ok(content.into()),
            }
        }

        fn build(&self, content: &String) -> Result<usize, &'static str> {
            if content == "bad" {
                Err("bad content")
            } else {
                Ok(content.len())
            }
        }
    }

    #[tokio::test]
    async fn a_change_is_taken_over_when_two_reads_agree() {
        let file = File(Arc::new(Mutex::new("a")));
        let reloaded = ReloadedFile::new(file.clone()).unwrap();
        let mut unconfirmed = None;
        for (content, expected, value) in [
            ("a", Ok(false), 1),
            // It is being written.
            ("ab", Ok(false), 1),
            ("abc", Ok(false), 1),
            ("abc", Ok(true), 3),
            ("abc", Ok(false), 3),
            // It was written back.
            ("abcd", Ok(false), 3),
            ("abc", Ok(false), 3),
            ("abcd", Ok(false), 3),
            // Between the two reads it was replaced.
            ("missing", Err("cannot be read"), 3),
            ("abcd", Ok(false), 3),
            ("abcd", Ok(true), 4),
            ("bad", Ok(false), 4),
            ("bad", Err("bad content"), 4),
            ("bad", Err("bad content"), 4),
            ("abcd", Ok(false), 4),
        ] {
            *file.0.lock().unwrap() = content;
            let changed = reloaded.reload(&mut unconfirmed).await;
            assert_eq!(
                (changed, *reloaded.current()),
                (expected, value),
                "{content}"
            );
        }
    }
}
