//! The last good rules of a server, for a start without it.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;

use fluxgate_core::RuleSets;
use fluxgate_core::regular_file;
use fluxgate_core::regular_file::MAX_BYTES;
use fluxgate_core::rules::RuleOptions;

use super::error::ReloadError;
use super::rule_files::compile_files;
use super::snapshot::{CompiledRules, Document};
use crate::config::Deployment;

/// The largest cache. Rules take more bytes as we write them than in JSON without spaces.
const MAX_CACHE_BYTES: u64 = 4 * MAX_BYTES;

/// A rule file that the service writes itself.
#[derive(Clone, Debug)]
pub(crate) struct CacheFile {
    path: PathBuf,
    options: RuleOptions,
    deployment: Arc<Deployment>,
}

impl CacheFile {
    pub(super) fn new(path: PathBuf, options: RuleOptions, deployment: Arc<Deployment>) -> Self {
        Self {
            path,
            options,
            deployment,
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads and compiles the rules; `None` if there is no file yet.
    pub(super) fn read(&self) -> Result<Option<CompiledRules>, ReloadError> {
        let name = self.path.display().to_string();
        let content = match regular_file::read(&self.path, MAX_CACHE_BYTES) {
            Ok(content) => content,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(ReloadError::Unreadable(format!("{name}: {error}"))),
        };
        let file = Document { name, content };
        let name = file.name.clone();
        compile_files(&[file], self.options, &self.deployment, &name).map(Some)
    }

    /// Replaces the file atomically: a reader sees the old rules or the new ones.
    pub(super) fn write(&self, rules: &RuleSets) -> io::Result<()> {
        let mut new = self.path.clone().into_os_string();
        // Another process may write the same cache.
        new.push(format!(".{}.new", process::id()));
        let new = PathBuf::from(new);
        let mut file = File::create(&new)?;
        file.write_all(rules.sets_to_yaml().as_bytes())?;
        // After a crash the file must not be there without its content.
        file.sync_all()?;
        fs::rename(&new, &self.path)
    }
}
