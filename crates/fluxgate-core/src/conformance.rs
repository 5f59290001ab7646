//! The suite that every store must pass.
//!
//! The vectors of `spec/vectors` are decisions and settlements computed by hand or by an
//! independent exact model. [`run`] replays all of them on a store, which fails if it differs
//! in a unit or a microsecond.

mod vector;

use std::path::{Path, PathBuf};

use crate::clock::ManualClock;
use crate::store::Store;
use crate::time::Timestamp;
use vector::Vector;

/// Replays every vector on a new store, which `make` creates on the given clock. Returns the
/// number of steps.
///
/// ```
/// use fluxgate_core::{MemoryStore, conformance};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), conformance::Mismatch> {
/// let steps = conformance::run(async |clock| MemoryStore::with_clock(clock)).await?;
/// assert!(steps > 1_000);
/// # Ok(())
/// # }
/// ```
pub async fn run<S: Store>(make: impl AsyncFn(ManualClock) -> S) -> Result<usize, Mismatch> {
    let mut steps = 0;
    for path in vector_files()? {
        let text = std::fs::read_to_string(&path).map_err(|error| unreadable(&path, &error))?;
        let vectors: Vec<Vector> =
            serde_json::from_str(&text).map_err(|error| unreadable(&path, &error))?;
        for vector in vectors {
            let clock = ManualClock::new(Timestamp::default());
            let store = make(clock.clone()).await;
            let place = format!("{}: {}", path.display(), vector.name);
            let checked = vector.run(store, &clock).await;
            steps += checked.map_err(|what| Mismatch { place, what })?;
        }
    }
    Ok(steps)
}

/// A store that differs from a vector, or a vector that is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {what}")]
pub struct Mismatch {
    /// The file and the case.
    pub place: String,
    /// The step, the expected and the actual result.
    pub what: String,
}

fn vector_files() -> Result<Vec<PathBuf>, Mismatch> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/vectors"));
    let entries = std::fs::read_dir(folder).map_err(|error| unreadable(folder, &error))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| {
        path.extension()
            .is_some_and(|extension| extension == "json")
    });
    files.sort();
    if files.is_empty() {
        return Err(unreadable(folder, &"no vectors"));
    }
    Ok(files)
}

fn unreadable(path: &Path, error: &dyn std::fmt::Display) -> Mismatch {
    Mismatch {
        place: path.display().to_string(),
        what: error.to_string(),
    }
}
