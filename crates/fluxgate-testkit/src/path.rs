//! Programs that may or may not be installed.

use std::env;
use std::path::{Path, PathBuf};

/// The binary of a Valkey server: the one that `FLUXGATE_VALKEY_SERVER` names,
/// or `valkey-server` in the search path, or none.
///
/// # Panics
/// If the variable names a file that does not exist: a test that was meant to
/// run must not be left out in silence.
pub fn valkey() -> Option<PathBuf> {
    let Some(named) = env::var_os("FLUXGATE_VALKEY_SERVER").filter(|path| !path.is_empty()) else {
        return find("valkey-server");
    };
    let path = PathBuf::from(named);
    assert!(
        path.is_file(),
        "FLUXGATE_VALKEY_SERVER names {}, which is no file",
        path.display()
    );
    Some(path)
}

/// A program in the search path.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .map(|directory: PathBuf| directory.join(program))
        .find(|file: &PathBuf| Path::is_file(file))
}
