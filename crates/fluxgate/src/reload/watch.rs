//! Noticing that files change.

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

/// Whoever changes files does it in several steps: they are over once nothing
/// has happened for so long.
const QUIET: Duration = Duration::from_millis(60);
/// Even if it never is quiet.
const LONGEST: Duration = Duration::from_millis(500);
/// Links that lead to links, and on.
const MOST_LINKS: usize = 40;

/// Watches the directories in which paths, and the links that they lead over,
/// stand: a file that is replaced is seen there, and itself it is not.
#[derive(Debug)]
pub(super) struct Watch {
    watcher: Option<RecommendedWatcher>,
    /// The directories, and which ones they are: one that is made anew under the
    /// same name is another.
    watched: BTreeSet<(PathBuf, u64, u64)>,
}

impl Watch {
    /// Tells `changed` of what happens. Where nothing can be watched, only
    /// looking now and then is left.
    pub(super) fn new(changed: Arc<Notify>) -> Self {
        let told = move |event: Result<Event, notify::Error>| {
            if event.map_or(true, |event| is_change(&event.kind)) {
                changed.notify_one();
            }
        };
        let watcher = notify::recommended_watcher(told);
        Self {
            watcher: watcher.map_err(|error| tell_of(&error)).ok(),
            watched: BTreeSet::new(),
        }
    }

    /// Watches these paths from now on. To be called before each look at them,
    /// for links and directories may have become others.
    pub(super) fn follow(&mut self, paths: &[PathBuf]) {
        let Some(watcher) = &mut self.watcher else {
            return;
        };
        let mut wanted = BTreeSet::new();
        for path in paths {
            let mut links = MOST_LINKS;
            directories_of(path, &mut wanted, &mut links);
        }
        let wanted = wanted.into_iter().filter_map(|directory| {
            let it = fs::metadata(&directory).ok()?;
            Some((directory, it.dev(), it.ino()))
        });
        let wanted: BTreeSet<_> = wanted.collect();
        for gone in self.watched.difference(&wanted) {
            // It may have gone by itself.
            let _ = watcher.unwatch(&gone.0);
        }
        let mut watched = BTreeSet::new();
        for directory in wanted {
            let known = self.watched.contains(&directory);
            match known || watch(watcher, &directory.0) {
                true => watched.insert(directory),
                false => continue,
            };
        }
        self.watched = watched;
    }
}

fn watch(watcher: &mut RecommendedWatcher, directory: &Path) -> bool {
    let watched = watcher.watch(directory, RecursiveMode::NonRecursive);
    watched.map_err(|error| tell_of(&error)).is_ok()
}

fn tell_of(error: &notify::Error) {
    tracing::warn!(%error, "files cannot be watched; changes are noticed later");
}

/// Waits until whoever changes files has done.
pub(super) async fn settled(changed: &Notify) {
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
        // Joined with nothing it would end in a slash.
        let target = match rest.as_os_str().is_empty() {
            true => target,
            false => target.join(rest),
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

/// Reading is none; else each look would be the cause of the next.
fn is_change(kind: &EventKind) -> bool {
    match kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => true,
        EventKind::Access(_) => false,
        _ => true,
    }
}
