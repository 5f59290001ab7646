//! A value that is built from files, and rebuilt when they change: certificates and tokens.
//! (`reload` reloads rules.)

use std::fmt::{self, Display};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
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
pub(crate) struct ReloadedFile<S: FileValue>(RwLock<LoadedFile<S>>);

impl<S: FileValue> fmt::Debug for ReloadedFile<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReloadedFile").finish_non_exhaustive()
    }
}

/// A value, and what it was built from.
#[derive(Debug)]
pub(crate) struct LoadedFile<S: FileValue> {
    source: S,
    content: S::Content,
    value: Arc<S::Value>,
    /// How often the source was replaced.
    replaced: u64,
}

impl<S: FileValue> LoadedFile<S> {
    /// Reads the files and builds the value.
    pub(crate) fn new(source: S) -> Result<Self, S::Error> {
        let content = source.read()?;
        let value = Arc::new(source.build(&content)?);
        Ok(Self {
            source,
            content,
            value,
            replaced: 0,
        })
    }
}

impl<S: FileValue> ReloadedFile<S> {
    /// Builds the value for the first time.
    pub(crate) fn new(source: S) -> Result<Self, S::Error> {
        Ok(Self(RwLock::new(LoadedFile::new(source)?)))
    }

    /// Returns the current value.
    pub(crate) fn current(&self) -> Arc<S::Value> {
        Arc::clone(&self.read().value)
    }

    /// Returns the files.
    pub(crate) fn source(&self) -> S {
        self.read().source.clone()
    }

    /// Uses other files from now on.
    pub(crate) fn replace(&self, mut loaded: LoadedFile<S>) {
        let mut last = self.0.write().unwrap_or_else(PoisonError::into_inner);
        loaded.replaced = last.replaced + 1;
        *last = loaded;
    }

    fn read(&self) -> RwLockReadGuard<'_, LoadedFile<S>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
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
                    tracing::info!("{}", self.source().replaced_message());
                }
                Err(error) => {
                    let error = error.to_string();
                    if logged.as_ref() != Some(&error) {
                        tracing::error!(%error, "{}", self.source().kept_message());
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
        let (source, replaced) = {
            let last = self.read();
            (last.source.clone(), last.replaced)
        };
        let reading = source.clone();
        // A hanging file system must not block signals or other work of this thread.
        let read = tokio::task::spawn_blocking(move || reading.read()).await;
        let Ok(content) = read else {
            // The runtime shuts down.
            return Ok(false);
        };
        let content = content?;
        let is_same = {
            let last = self.read();
            // Other files may be in use by now.
            last.replaced != replaced || last.content == content
        };
        if is_same {
            return Ok(false);
        }
        if before.as_ref() != Some(&content) {
            *unconfirmed = Some(content);
            return Ok(false);
        }
        let built = source.build(&content);
        // Invalid content stays invalid, so the next read need not confirm it.
        let value = match built {
            Ok(value) => Arc::new(value),
            Err(error) => {
                *unconfirmed = Some(content);
                return Err(error);
            }
        };
        let mut last = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if last.replaced != replaced {
            return Ok(false);
        }
        (last.content, last.value) = (content, value);
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

    #[tokio::test]
    async fn other_files_are_followed_once_they_are_in_use() {
        let [first, second] = ["a", "bb"].map(|content| File(Arc::new(Mutex::new(content))));
        let reloaded = ReloadedFile::new(first.clone()).unwrap();
        reloaded.replace(LoadedFile::new(second.clone()).unwrap());
        assert_eq!(*reloaded.current(), 2);
        *first.0.lock().unwrap() = "aaaa";
        *second.0.lock().unwrap() = "bbb";
        let mut unconfirmed = None;
        assert_eq!(reloaded.reload(&mut unconfirmed).await, Ok(false));
        assert_eq!(reloaded.reload(&mut unconfirmed).await, Ok(true));
        assert_eq!(*reloaded.current(), 3);
    }
}
