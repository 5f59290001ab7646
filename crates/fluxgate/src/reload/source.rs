//! Where rules come from.

use std::fmt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use fluxgate_redis::RuleStore;
use tokio::sync::Notify;

use super::cache_file::CacheFile;
use super::error::ReloadError;
use super::settings::Settings;
use super::snapshot::{CompiledRules, Snapshot};
use crate::failure::Failure;

/// A future of a [`RuleSource`].
pub(super) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Where rules come from. Displayed as a place to write them.
pub(crate) trait RuleSource: fmt::Debug + fmt::Display + Send + Sync {
    /// Returns the name of the kind.
    fn kind(&self) -> &'static str;

    /// Returns how often to read the source without a sign of a change.
    fn poll(&self) -> Duration;

    /// Reads everything. May return one of the `known` snapshots if its version is current.
    fn read<'a>(
        &'a self,
        known: &'a KnownSnapshots,
    ) -> BoxFuture<'a, Result<Arc<Snapshot>, ReloadError>>;

    /// Compiles the rules of a snapshot, all or none.
    fn compile(&self, snapshot: &Snapshot) -> Result<CompiledRules, ReloadError>;

    /// Returns whether the source is a server, which may be down when the service starts. The
    /// service then starts without rules. Files must be readable and valid.
    fn is_server(&self) -> bool {
        false
    }

    /// Returns the paths to watch for changes.
    fn watched(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Returns a task that notifies `changed` whenever the rules may have changed, if the source
    /// can tell.
    fn listen(&self, _changed: Arc<Notify>) -> Option<BoxFuture<'static, ()>> {
        None
    }

    /// Returns the file that keeps the last good rules for a start without the server.
    fn cache(&self) -> Option<&CacheFile> {
        None
    }

    /// Returns the store of the rules, if the admin API can write them.
    fn rule_store(&self) -> Option<&RuleStore> {
        None
    }

    /// Prepares these settings with the rules from now on, if the source holds both. Returns
    /// whether it does.
    fn follow(&self, _settings: &Arc<dyn Settings>) -> bool {
        false
    }

    /// Returns the failure of a start for which the source cannot be read.
    fn start_failure(&self, error: ReloadError) -> Failure {
        error.into()
    }
}

/// The snapshots that a source need not read again.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownSnapshots {
    /// The one whose rules are active.
    pub(super) active: Option<Arc<Snapshot>>,
    /// The one that was refused since.
    pub(super) refused: Option<Arc<Snapshot>>,
}

impl KnownSnapshots {
    /// Returns the newest snapshot that has a version, with it.
    pub(super) fn newest_with_version(&self) -> Option<(&Arc<Snapshot>, &str)> {
        let mut newest_first = self.refused.iter().chain(&self.active);
        newest_first.find_map(|snapshot| Some((snapshot, snapshot.version.as_deref()?)))
    }

    /// Returns the snapshot with this version.
    pub(super) fn with_version(&self, version: &str) -> Option<Arc<Snapshot>> {
        let mut known = self.refused.iter().chain(&self.active);
        known
            .find(|snapshot| snapshot.version.as_deref() == Some(version))
            .cloned()
    }
}
