//! Where the rules come from.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fluxgate_redis::RuleStore;

use super::config_file::ConfigFile;
use super::rule_dir::RuleDir;
use super::snapshot::{CompiledRules, ReloadError, Snapshot, rules_of, run_blocking};
use super::stored::RedisRules;
use crate::config::{Config, DEFAULT_POLL, Deployment, RawConfig, Rules};
use crate::engine::AnyStore;

/// Where the rules come from.
#[derive(Debug)]
pub(crate) enum RuleSource {
    /// From a config that cannot change.
    Fixed(RawConfig),
    /// From the config file.
    File(ConfigFile),
    /// From the files of a directory.
    Dir(RuleDir),
    /// From the store's Redis.
    Redis(RedisRules),
}

impl fmt::Display for RuleSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(_) => write!(f, "the built-in demo"),
            Self::File(file) => write!(f, "the config file {}", file.path.display()),
            Self::Dir(dir) => write!(f, "the directory {}", dir.path.display()),
            Self::Redis(_) => write!(f, "Redis"),
        }
    }
}

impl RuleSource {
    /// Returns the source that the config names. A config without a file cannot change.
    pub(crate) fn new(
        config: &Config,
        raw: &RawConfig,
        file: Option<ConfigFile>,
        store: &AnyStore,
    ) -> Self {
        let options = config.rule_options();
        let deployment = Deployment::located(config, |field| raw.place_of(field));
        match (&config.rules, file, store) {
            (Rules::Directory { path, poll }, _, _) => Self::Dir(RuleDir {
                path: path.clone(),
                poll: *poll,
                options,
                deployment,
            }),
            (Rules::Redis { poll }, _, AnyStore::Redis(store)) => Self::Redis(RedisRules {
                store: store.rule_store(),
                poll: *poll,
                options,
                deployment,
            }),
            (_, Some(file), _) => Self::File(file),
            (_, None, _) => Self::Fixed(raw.clone()),
        }
    }

    /// Returns the name of the kind.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Fixed(_) => "demo",
            Self::File(_) => "file",
            Self::Dir(_) => "dir",
            Self::Redis(_) => "redis",
        }
    }

    /// Returns the store of the rules, if they are in Redis. The admin API writes to it.
    pub(crate) fn rule_store(&self) -> Option<&RuleStore> {
        match self {
            Self::Redis(stored) => Some(&stored.store),
            _ => None,
        }
    }

    /// Returns how often to look for changes.
    pub(super) fn poll(&self) -> Duration {
        match self {
            Self::Fixed(_) | Self::File(_) => DEFAULT_POLL,
            Self::Dir(dir) => dir.poll,
            Self::Redis(stored) => stored.poll,
        }
    }

    /// Returns the paths to watch for changes.
    pub(super) fn watched(&self) -> Vec<PathBuf> {
        match self {
            Self::Fixed(_) | Self::Redis(_) => Vec::new(),
            Self::File(file) => vec![file.path.clone()],
            // The second path watches the entries of the directory; it need not exist.
            Self::Dir(dir) => vec![dir.path.clone(), dir.path.join("*")],
        }
    }

    /// Reads the source. If the active or the refused snapshot has its version, returns that
    /// snapshot instead of reading everything.
    pub(super) async fn snapshot(
        self: &Arc<Self>,
        active: Option<&Arc<Snapshot>>,
        refused: Option<&Arc<Snapshot>>,
    ) -> Result<Arc<Snapshot>, ReloadError> {
        if let Self::Redis(stored) = &**self {
            return stored.snapshot(active, refused).await;
        }
        let (source, active) = (Arc::clone(self), active.cloned());
        run_blocking(move || source.files(active.as_deref()).map(Arc::new)).await
    }

    /// Reads the files, if the source has any.
    pub(super) fn files(&self, active: Option<&Snapshot>) -> Result<Snapshot, ReloadError> {
        match self {
            Self::File(file) => file.snapshot(),
            Self::Dir(dir) => dir.snapshot(active),
            Self::Fixed(_) | Self::Redis(_) => Ok(Snapshot::Files(Vec::new())),
        }
    }

    /// Compiles the rules of a snapshot, all or none.
    pub(super) fn compile(&self, snapshot: &Snapshot) -> Result<CompiledRules, ReloadError> {
        match (self, snapshot) {
            (Self::File(file), Snapshot::Files(files)) => file.compile(files),
            (Self::Dir(dir), Snapshot::Directory(files)) => dir.compile(files),
            (Self::Redis(stored), Snapshot::Stored(rules)) => stored.compile(rules),
            (Self::Fixed(raw), _) => rules_of(raw),
            // A source makes snapshots of its own kind only.
            _ => Err(ReloadError::Unreadable("nothing was read".into())),
        }
    }
}
