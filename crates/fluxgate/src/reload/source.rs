//! Where the rules come from, and what is read there.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fluxgate_core::RuleSets;
use fluxgate_redis::{RuleStore, StoredRules};

use super::config_file::ConfigFile;
use super::directory::RuleDir;
use super::stored::Stored;
use crate::config::{Config, DEFAULT_POLL, Draft, Rules};
use crate::engine::AnyStore;
use crate::failure::{Exit, Failure};

/// Where the rules come from.
#[derive(Debug)]
pub(crate) enum Source {
    /// From a config that cannot change.
    Fixed(Draft),
    /// From the config file.
    File(ConfigFile),
    /// From the files of a directory.
    Dir(RuleDir),
    /// From the store's Redis.
    Redis(Stored),
}

/// The same, for people and for those who would write there.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    Fixed,
    File(PathBuf),
    Dir(PathBuf),
    Redis(RuleStore),
}

impl Origin {
    /// What kind it is.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Fixed => "demo",
            Self::File(_) => "file",
            Self::Dir(_) => "dir",
            Self::Redis(_) => "redis",
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed => write!(f, "the built-in demo"),
            Self::File(path) => write!(f, "the config file {}", path.display()),
            Self::Dir(path) => write!(f, "the directory {}", path.display()),
            Self::Redis(_) => write!(f, "Redis"),
        }
    }
}

/// What a source held at one moment; whether it is any good is not said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// Files and what stands in them.
    Files(Vec<(PathBuf, Vec<u8>)>),
    /// Stored rule sets.
    Stored(StoredRules),
}

/// Why there are no rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Nothing could be read.
    Unreadable(String),
    /// The server did not answer, or not well.
    NoAnswer(String),
    /// What was read is wrong; a line for each fault.
    Invalid(Vec<String>),
}

impl Refusal {
    /// Whether it is the same trouble. The story of a server that does not answer
    /// is another each time.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        matches!((self, other), (Self::NoAnswer(_), Self::NoAnswer(_))) || self == other
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(why) | Self::NoAnswer(why) => f.write_str(why),
            Self::Invalid(faults) => f.write_str(&faults.join("\n")),
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let exit = match refusal {
            Refusal::Unreadable(_) | Refusal::NoAnswer(_) => Exit::NoInput,
            Refusal::Invalid(_) => Exit::Config,
        };
        Self::new(exit, refusal)
    }
}

impl Source {
    /// What the config says. Without a file it cannot change.
    pub(crate) fn new(
        config: &Config,
        draft: &Draft,
        file: Option<ConfigFile>,
        store: &AnyStore,
    ) -> Self {
        let options = config.rule_options();
        match (&config.rules, file, store) {
            (Rules::Dir { path, poll }, _, _) => {
                Self::Dir(RuleDir::new(path.clone(), *poll, options))
            }
            (Rules::Redis { poll }, _, AnyStore::Redis(store)) => {
                Self::Redis(Stored::new(store.rule_store(), *poll, options))
            }
            (_, Some(file), _) => Self::File(file),
            (_, None, _) => Self::Fixed(draft.clone()),
        }
    }

    pub(crate) fn origin(&self) -> Origin {
        match self {
            Self::Fixed(_) => Origin::Fixed,
            Self::File(file) => Origin::File(file.path.clone()),
            Self::Dir(dir) => Origin::Dir(dir.path.clone()),
            Self::Redis(stored) => Origin::Redis(stored.store.clone()),
        }
    }

    /// How often is looked for changes.
    pub(super) fn poll(&self) -> Duration {
        match self {
            Self::Fixed(_) | Self::File(_) => DEFAULT_POLL,
            Self::Dir(dir) => dir.poll,
            Self::Redis(stored) => stored.poll,
        }
    }

    /// The paths whose change may be a change of the rules.
    pub(super) fn watched(&self) -> Vec<PathBuf> {
        match self {
            Self::Fixed(_) | Self::Redis(_) => Vec::new(),
            Self::File(file) => vec![file.path.clone()],
            // What is beside the files is seen by a name that need not exist.
            Self::Dir(dir) => vec![dir.path.clone(), dir.path.join("*")],
        }
    }

    /// What is there now. What is in force, and what was refused last, may
    /// spare reading it all.
    pub(super) async fn content(
        self: &Arc<Self>,
        in_force: Option<&Arc<Content>>,
        refused: Option<&Arc<Content>>,
    ) -> Result<Arc<Content>, Refusal> {
        if let Self::Redis(stored) = &**self {
            return stored.content(in_force, refused).await;
        }
        let (source, had) = (Arc::clone(self), in_force.cloned());
        apart(move || source.files(had.as_deref()).map(Arc::new)).await
    }

    /// What stands in the files now.
    pub(super) fn files(&self, in_force: Option<&Content>) -> Result<Content, Refusal> {
        match self {
            Self::File(file) => file.content(),
            Self::Dir(dir) => dir.content(in_force),
            Self::Fixed(_) | Self::Redis(_) => Ok(Content::Files(Vec::new())),
        }
    }

    /// The rules in it, if all of it is good.
    pub(super) fn compile(&self, content: &Content) -> Result<RuleSets, Refusal> {
        match (self, content) {
            (Self::File(file), Content::Files(files)) => file.compile(files),
            (Self::Dir(dir), Content::Files(files)) => dir.compile(files),
            (Self::Redis(stored), Content::Stored(rules)) => stored.compile(rules),
            (Self::Fixed(draft), _) => rules_of(draft),
            // No source holds what another does.
            _ => Err(Refusal::Unreadable("nothing was read".into())),
        }
    }
}

/// The rules that a config holds itself.
pub(super) fn rules_of(draft: &Draft) -> Result<RuleSets, Refusal> {
    let config = draft.check().map_err(|error| invalid(&error))?;
    match config.rules {
        Rules::Here(rules) => Ok(rules),
        Rules::Dir { .. } | Rules::Redis { .. } => Err(Refusal::Unreadable(
            "rules from elsewhere need a restart".into(),
        )),
    }
}

/// An error whose text has a line for each fault.
pub(super) fn invalid(error: &impl fmt::Display) -> Refusal {
    Refusal::Invalid(error.to_string().lines().map(str::to_owned).collect())
}

/// Does what takes its time where nobody waits for it.
pub(super) async fn apart<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(Refusal::Unreadable(error.to_string())))
}
