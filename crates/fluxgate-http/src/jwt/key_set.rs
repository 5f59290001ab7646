//! The keys in use, and their renewal in the background.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use super::key::Key;
use super::key_source::{JwtError, KeySource};

/// How often a file is read.
const FILE_INTERVAL: Duration = Duration::from_secs(2);
/// How often a key set is fetched although no token needs new keys: a key that is revoked is
/// gone after this time.
const FETCH_INTERVAL: Duration = Duration::from_secs(300);
/// The shortest time between two fetches, once one has succeeded.
const MIN_FETCH_INTERVAL: Duration = Duration::from_secs(60);
/// The wait after a first fetch that failed. It doubles with each failure.
const FIRST_RETRY: Duration = Duration::from_secs(1);

/// The keys of one source.
pub(super) struct KeySet {
    source: KeySource,
    keys: ArcSwap<Keys>,
    /// The content that the keys were last parsed from.
    content: Mutex<Option<Bytes>>,
    /// Notified when a token needs keys that are not known yet.
    wanted: Arc<Notify>,
    /// Whether a task renews the keys.
    is_watched: AtomicBool,
    /// Held while the keys are loaded for the first time.
    loading: tokio::sync::Mutex<()>,
}

/// The keys of one moment.
#[derive(Debug, Default)]
pub(super) struct Keys {
    pub(super) keys: Vec<Key>,
    /// Differs for different keys.
    pub(super) generation: u64,
}

impl KeySet {
    /// Creates the keys of a source. They are read at once, unless they must be fetched.
    pub(super) fn new(source: KeySource) -> Result<Arc<Self>, JwtError> {
        let content = source.read_now()?;
        let set = Self {
            source,
            keys: ArcSwap::default(),
            content: Mutex::default(),
            wanted: Arc::default(),
            is_watched: AtomicBool::new(false),
            loading: tokio::sync::Mutex::default(),
        };
        if let Some(content) = content {
            set.replace(content)?;
            if set.current().keys.is_empty() {
                return Err(set.source.no_key());
            }
        }
        let set = Arc::new(set);
        // If there is no runtime yet, the first request starts the renewal.
        set.watch();
        Ok(set)
    }

    /// Returns the keys in use.
    pub(super) fn current(&self) -> arc_swap::Guard<Arc<Keys>> {
        self.keys.load()
    }

    /// Requests newer keys, because no known key fits a token. Does not wait for them.
    pub(super) fn want_newer(&self) {
        self.wanted.notify_one();
    }

    /// Starts a task that renews the keys for as long as they are used, unless one is running
    /// or the keys cannot change. Does nothing outside of a runtime.
    pub(super) fn watch(self: &Arc<Self>) {
        if self.is_watched.load(Ordering::Relaxed) || self.source.is_fixed() {
            return;
        }
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        if !self.is_watched.swap(true, Ordering::AcqRel) {
            let watch = KeyRenewal(Arc::downgrade(self));
            runtime.spawn(watch.run(Arc::clone(&self.wanted)));
        }
    }

    /// Reads the source, unless its keys are known.
    pub(super) async fn load(&self) -> Result<(), JwtError> {
        // The program and the task may both load them at the start.
        let _loading = self.loading.lock().await;
        if self.has_keys() {
            Ok(())
        } else {
            self.refresh().await
        }
    }

    /// Reads the source now.
    async fn refresh(&self) -> Result<(), JwtError> {
        let content = self.source.read().await?;
        self.replace(content)
    }

    /// Uses the keys of this content from now on, if it is new and valid.
    fn replace(&self, content: Bytes) -> Result<(), JwtError> {
        let mut last = self.content.lock().unwrap_or_else(PoisonError::into_inner);
        if last.as_ref() == Some(&content) {
            return Ok(());
        }
        let keys = self.source.parse(&content)?;
        let is_first = last.replace(content).is_none();
        let current = self.keys.load();
        if current.keys == keys && !is_first {
            return Ok(());
        }
        let count = keys.len();
        self.keys.store(Arc::new(Keys {
            keys,
            generation: current.generation + 1,
        }));
        match count {
            0 => {
                tracing::warn!(source = %self.source, "no key can verify tokens: all tokens are invalid");
            }
            _ => {
                tracing::info!(source = %self.source, keys = count, "tokens are verified by new keys");
            }
        }
        Ok(())
    }

    fn has_keys(&self) -> bool {
        self.current().generation > 0
    }
}

/// Omits the content, which may be a secret.
impl fmt::Debug for KeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeySet")
            .field("source", &self.source)
            .field("keys", &self.keys)
            .finish_non_exhaustive()
    }
}

/// Ends the task that renews the keys.
impl Drop for KeySet {
    fn drop(&mut self) {
        self.wanted.notify_one();
    }
}

/// The task that renews keys.
struct KeyRenewal(Weak<KeySet>);

impl KeyRenewal {
    /// Reads the source again and again, until the keys are no longer used.
    async fn run(self, wanted: Arc<Notify>) {
        let mut logged = None;
        let mut retry = FIRST_RETRY;
        // The first fetch does not count: keys may change just after the start.
        let mut last_renewal: Option<Instant> = None;
        let Some(set) = self.0.upgrade() else {
            return;
        };
        let mut refreshed = set.load().await;
        drop(set);
        loop {
            let Some(set) = self.0.upgrade() else {
                return;
            };
            let (is_file, has_keys) = (set.source.is_file(), set.has_keys());
            let is_ok = refreshed.is_ok();
            log_failure(refreshed, &mut logged, has_keys);
            drop(set);
            match (is_file, has_keys) {
                (true, _) => sleep(FILE_INTERVAL).await,
                // No token is valid yet, so tokens must not cause fetches.
                (false, false) => {
                    sleep(retry).await;
                    retry = (2 * retry).min(MIN_FETCH_INTERVAL);
                }
                (false, true) => {
                    let interval = if is_ok {
                        FETCH_INTERVAL
                    } else {
                        MIN_FETCH_INTERVAL
                    };
                    let is_wanted = timeout(interval, wanted.notified()).await.is_ok();
                    if self.0.strong_count() == 0 {
                        return;
                    }
                    if let (true, Some(last)) = (is_wanted, last_renewal) {
                        sleep(MIN_FETCH_INTERVAL.saturating_sub(last.elapsed())).await;
                    }
                    last_renewal = Some(Instant::now());
                }
            }
            let Some(set) = self.0.upgrade() else {
                return;
            };
            refreshed = set.refresh().await;
        }
    }
}

/// Lets the next request start another task, should this one end with its runtime.
impl Drop for KeyRenewal {
    fn drop(&mut self) {
        if let Some(set) = self.0.upgrade() {
            set.is_watched.store(false, Ordering::Release);
        }
    }
}

/// Logs a failure, unless it is the same as the last.
fn log_failure(refreshed: Result<(), JwtError>, logged: &mut Option<String>, has_keys: bool) {
    let Err(error) = refreshed else {
        *logged = None;
        return;
    };
    let error = error.to_string();
    if logged.as_ref() == Some(&error) {
        return;
    }
    if has_keys {
        tracing::error!(
            error,
            "cannot renew the keys: tokens are still verified by the previous ones"
        );
    } else {
        tracing::error!(error, "there are no keys yet: all tokens are invalid");
    }
    *logged = Some(error);
}
