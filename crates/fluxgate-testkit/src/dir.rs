//! A directory that goes when its owner does.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

#[derive(Debug)]
pub(crate) struct Dir(PathBuf);

impl Dir {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // A killed process leaves its directories behind, and numbers of
        // processes come round again: then the next number is taken. The name
        // is short because the path of a Unix socket may have 107 bytes only.
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("fg-kit-{}-{number}", std::process::id());
            let path = std::env::temp_dir().join(name);
            match fs::create_dir(&path) {
                Ok(()) => return Self(path),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => panic!("make the directory {}: {error}", path.display()),
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The path of a file in it.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file in it and tells its path.
    pub(crate) fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.file(name);
        fs::write(&path, content)
            .unwrap_or_else(|error| panic!("write {}: {error}", path.display()));
        path
    }

    /// What is in a file; nothing if there is none.
    pub(crate) fn read(&self, name: &str) -> String {
        let bytes = fs::read(self.file(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        // What is left in the temporary directory harms nobody.
        let _ = fs::remove_dir_all(&self.0);
    }
}
