//! Notifications that files have changed.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

/// A change of files takes several steps. It is complete once nothing has happened for
/// this long.
const QUIET: Duration = Duration::from_millis(60);
/// The longest time to wait for that.
const LONGEST: Duration = Duration::from_millis(500);
/// How many symbolic links to follow on the way to a file.
const MOST_LINKS: usize = 40;

/// Watches the directories of paths and of the symbolic links on the way to them: the
/// replacement of a file is an event of its directory, not of the file.
#[derive(Debug)]
pub(crate) struct DirectoryWatch {
    watcher: Option<RecommendedWatcher>,
    /// The directories with device and inode: a directory that is recreated under the
    /// same name is another one.
    watched: BTreeSet<(PathBuf, u64, u64)>,
}

impl DirectoryWatch {
    /// Notifies `changed` of events. If nothing can be watched, callers must rely on
    /// polling.
    pub(crate) fn new(changed: Arc<Notify>) -> Self {
        let notify = move |event: Result<Event, notify::Error>| {
            if event.map_or(true, |event| is_change(&event.kind)) {
                changed.notify_one();
            }
        };
        let watcher = notify::recommended_watcher(notify);
        Self {
            watcher: watcher.map_err(|error| warn(&error)).ok(),
            watched: BTreeSet::new(),
        }
    }

    /// Watches these paths. Call it before each read of them, because links and directories may
    /// have changed.
    pub(crate) fn follow(&mut self, paths: &[PathBuf]) {
        let Some(watcher) = &mut self.watcher else {
            return;
        };
        let mut wanted = BTreeSet::new();
        for path in paths {
            let mut links = MOST_LINKS;
            directories_of(path, &mut wanted, &mut links);
        }
        let mut wanted: BTreeSet<_> = wanted
            .into_iter()
            .filter_map(|directory| {
                let it = fs::metadata(&directory).ok()?;
                Some((directory, it.dev(), it.ino()))
            })
            .collect();
        for gone in self.watched.difference(&wanted) {
            // The directory may be gone.
            let _ = watcher.unwatch(&gone.0);
        }
        wanted.retain(|directory| self.watched.contains(directory) || watch(watcher, &directory.0));
        self.watched = wanted;
    }
}

fn watch(watcher: &mut RecommendedWatcher, directory: &Path) -> bool {
    let watched = watcher.watch(directory, RecursiveMode::NonRecursive);
    watched.map_err(|error| warn(&error)).is_ok()
}

fn warn(error: &notify::Error) {
    tracing::warn!(%error, "cannot watch files; changes take effect at the next poll");
}

/// Waits until a change of files is complete.
pub(crate) async fn wait_until_quiet(changed: &Notify) {
    let end = Instant::now() + LONGEST;
    while timeout(QUIET, changed.notified()).await.is_ok() && Instant::now() < end {}
}

/// Adds the directory of a path, and those of all links on the way to it.
fn directories_of(path: &Path, directories: &mut BTreeSet<PathBuf>, links: &mut usize) {
    directories.insert(parent(path));
    for step in path.ancestors() {
        let Ok(target) = fs::read_link(step) else {
            continue;
        };
        if *links == 0 {
            return;
        }
        *links -= 1;
        let place = parent(step);
        let rest = path.strip_prefix(step).unwrap_or(Path::new(""));
        let target = place.join(target);
        directories.insert(place);
        // Joined with an empty path it would end in a slash.
        let target = if rest.as_os_str().is_empty() {
            target
        } else {
            target.join(rest)
        };
        directories_of(&target, directories, links);
    }
}

fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.into(),
        Some(_) => ".".into(),
        None => path.into(),
    }
}

/// Reads do not count: each read of ours would cause the next.
fn is_change(kind: &EventKind) -> bool {
    match kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => true,
        EventKind::Access(_) => false,
        _ => true,
    }
}
