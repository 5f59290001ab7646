//! Temporary directories.

use std::path::PathBuf;
use std::{env, fs};

/// A directory that is removed when dropped.
pub(crate) struct Folder(PathBuf);

impl Folder {
    #[expect(clippy::unwrap_used, reason = "a benchmark that cannot run has failed")]
    pub(crate) fn new(name: &str) -> Self {
        let name = format!("fluxgate-bench-{name}-{}", std::process::id());
        let path = env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    #[expect(clippy::unwrap_used, reason = "a benchmark that cannot run has failed")]
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, content).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
