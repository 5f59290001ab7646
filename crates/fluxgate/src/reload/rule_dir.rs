//! Rules in the files of a directory.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, fs};

use fluxgate_core::regular_file;
use fluxgate_core::regular_file::MAX_BYTES;
use fluxgate_core::rules::RuleOptions;

use super::error::ReloadError;
use super::rule_files::compile_files;
use super::snapshot::{CompiledRules, Document, Snapshot, run_blocking};
use super::source::{BoxFuture, KnownSnapshots, RuleSource};
use crate::config::Deployment;
use crate::failure::{Exit, Failure};

/// The maximum number of files.
const MAX_FILES: usize = 10_000;
/// The maximum size of all files together.
const MAX_TOTAL_BYTES: usize = 64 << 20;
/// How often a directory is read until two passes agree.
const MAX_PASSES: usize = 5;

/// Reads and compiles the rules of all files in a directory, all or none.
pub(crate) fn rules_in(
    path: &Path,
    options: RuleOptions,
    deployment: Deployment,
) -> Result<CompiledRules, ReloadError> {
    let dir = RuleDir {
        path: path.to_owned(),
        poll: Duration::ZERO,
        options,
        deployment,
    };
    dir.compile(&settled_files(path)?)
}

/// A directory in which every `*.yaml` holds `rule_sets`.
#[derive(Debug)]
pub(super) struct RuleDir {
    pub(super) path: PathBuf,
    pub(super) poll: Duration,
    pub(super) options: RuleOptions,
    pub(super) deployment: Deployment,
}

impl RuleSource for RuleDir {
    fn kind(&self) -> &'static str {
        "dir"
    }

    fn poll(&self) -> Duration {
        self.poll
    }

    fn read<'a>(
        &'a self,
        known: &'a KnownSnapshots,
    ) -> BoxFuture<'a, Result<Arc<Snapshot>, ReloadError>> {
        let path = self.path.clone();
        let had_files = known.active.as_ref();
        let had_files = had_files.is_some_and(|active| !active.documents.is_empty());
        Box::pin(run_blocking(move || {
            let files = settled_files(&path)?;
            // An unmounted volume looks the same, and must not lift all limits.
            if files.documents.is_empty() && had_files {
                let path = path.display();
                return Err(ReloadError::Unreadable(format!(
                    "{path}: there is no *.yaml any more; for no rules at all, say `rule_sets: {{}}`"
                )));
            }
            Ok(Arc::new(files))
        }))
    }

    fn compile(&self, snapshot: &Snapshot) -> Result<CompiledRules, ReloadError> {
        let path = self.path.display().to_string();
        let documents = &snapshot.documents;
        let mut compiled = compile_files(documents, self.options, &self.deployment, &path)?;
        compiled.warnings.extend_from_slice(&snapshot.warnings);
        Ok(compiled)
    }

    fn watched(&self) -> Vec<PathBuf> {
        // The second path watches the entries of the directory; it need not exist.
        vec![self.path.clone(), self.path.join("*")]
    }

    fn start_failure(&self, error: ReloadError) -> Failure {
        let field = "rules_from.dir";
        match error {
            ReloadError::Unreadable(why) => {
                Failure::of_field(Exit::NoInput, field, format!("`{field}`: {why}"))
            }
            _ => error.into(),
        }
    }
}

impl fmt::Display for RuleDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the directory {}", self.path.display())
    }
}

/// Reads the files until two passes agree.
fn settled_files(path: &Path) -> Result<Snapshot, ReloadError> {
    settled(|| read_files(path)).unwrap_or_else(|| {
        let path = path.display();
        Err(ReloadError::Unreadable(format!(
            "{path}: it changes while it is read"
        )))
    })
}

/// Reads the files in the order of their names, in one pass, which may mix old and new ones while
/// files are being replaced.
fn read_files(path: &Path) -> Result<Snapshot, ReloadError> {
    let unreadable = |path: &Path, error: std::io::Error| {
        ReloadError::Unreadable(format!("{}: {error}", path.display()))
    };
    let entries = fs::read_dir(path).map_err(|error| unreadable(path, error))?;
    let paths = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<Vec<_>, _>>();
    let mut paths = paths.map_err(|error| unreadable(path, error))?;
    paths.retain(|path| is_yaml_file(path));
    // Sorted, so that errors come in a stable order.
    paths.sort();
    let (paths, ignored): (Vec<_>, Vec<_>) = paths.into_iter().partition(|path| is_rule_file(path));
    let too_much = |what: String| ReloadError::Unreadable(format!("{}: {what}", path.display()));
    if paths.len() > MAX_FILES {
        let count = paths.len();
        return Err(too_much(format!(
            "there are {count} *.yaml files; at most {MAX_FILES} are read"
        )));
    }
    let (mut documents, mut bytes) = (Vec::new(), 0);
    for path in paths {
        let content =
            regular_file::read(&path, MAX_BYTES).map_err(|error| unreadable(&path, error))?;
        bytes += content.len();
        if bytes > MAX_TOTAL_BYTES {
            return Err(too_much(format!(
                "the files are larger than {MAX_TOTAL_BYTES} bytes together"
            )));
        }
        let name = path.display().to_string();
        documents.push(Document { name, content });
    }
    let warning = ignored_files(documents.is_empty(), &ignored);
    let path = path.display();
    Ok(Snapshot {
        version: None,
        documents,
        warnings: warning
            .map(|message| format!("{path}: warning: {message}"))
            .into_iter()
            .collect(),
    })
}

/// Returns a warning if there are no rule files, or files whose names prevent that they are
/// read.
fn ignored_files(is_empty: bool, ignored: &[PathBuf]) -> Option<String> {
    let names: Vec<_> = ignored
        .iter()
        .filter_map(|path| path.file_name())
        .map(|name| name.to_string_lossy())
        .collect();
    let verb = if names.len() == 1 { "is" } else { "are" };
    let names = names.join(", ");
    match (is_empty, ignored.is_empty()) {
        (true, true) => Some("there is no *.yaml file, so there are no rules".into()),
        (true, false) => Some(format!("there is no *.yaml file; {names} {verb} ignored")),
        (false, false) => Some(format!(
            "{names} {verb} ignored; only *.yaml files are read"
        )),
        (false, true) => None,
    }
}

/// Reads until two passes in a row agree; `None` if they never do.
fn settled<T: PartialEq>(mut read: impl FnMut() -> T) -> Option<T> {
    let mut last = read();
    for _ in 1..MAX_PASSES {
        let now = read();
        if now == last {
            return Some(now);
        }
        last = now;
    }
    None
}

/// Returns whether the name of a file ends in `.yaml`, exactly.
fn is_rule_file(path: &Path) -> bool {
    path.extension().is_some_and(|it| it == "yaml")
}

/// Returns whether a path is a file that is not hidden and ends in `.yaml` or `.yml`, in any
/// case.
fn is_yaml_file(path: &Path) -> bool {
    let hidden = path
        .file_name()
        .is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
    let is_yaml = path.extension().is_some_and(|extension| {
        extension.eq_ignore_ascii_case("yaml") || extension.eq_ignore_ascii_case("yml")
    });
    // `is_dir` follows links: Kubernetes mounts volumes as links.
    !hidden && is_yaml && !path.is_dir()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_while_it_is_read_is_read_again() {
        let after = |passes: &[u8]| {
            let mut passes = passes.iter();
            settled(|| passes.next().copied().unwrap())
        };
        assert_eq!(after(&[1, 1]), Some(1));
        assert_eq!(after(&[1, 2, 3, 3]), Some(3));
        assert_eq!(after(&[1, 2, 1, 2, 2]), Some(2));
        assert_eq!(after(&[1, 2, 1, 2, 1]), None);
    }
}
