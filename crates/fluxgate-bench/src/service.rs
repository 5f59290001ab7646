//! The service under test, and temporary directories.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, fs};

use fluxgate_testkit::Program;

/// A running service.
pub(crate) struct Service {
    #[allow(dead_code, reason = "dropping it stops the process")]
    program: Program,
    addresses: HashMap<String, SocketAddr>,
}

impl Service {
    /// Returns the address of a listener.
    pub(crate) fn address(&self, listener: &str) -> SocketAddr {
        self.addresses[listener]
    }
}

/// Starts the binary with these listeners and the rest of a config. Prints a message and
/// returns `None` if it is not built.
pub(crate) fn start(dir: &TempDir, listeners: &[&str], config: &str) -> Option<Service> {
    let fluxgate = binary()?;
    let addresses = listeners
        .iter()
        .map(|name| format!("{name}: \"127.0.0.1:0\""));
    let addresses = addresses.collect::<Vec<_>>().join(", ");
    let config = format!("listen: {{ {addresses} }}\n{config}");
    // A file of its own, because a service reloads its rules when its file changes.
    static STARTED: AtomicUsize = AtomicUsize::new(0);
    let number = STARTED.fetch_add(1, Ordering::Relaxed);
    let config = dir.file(&format!("fluxgate-{number}.yaml"), &config);
    let program = Program::start(fluxgate, |command| {
        command.arg("run").arg("--config").arg(&config);
    });
    let mut addresses = HashMap::new();
    for name in listeners {
        let field = format!("\"listener\":\"{name}\"");
        let address = program.wait_for_line("the listener is open", |line| {
            let after = line
                .split_once("\"address\":\"")
                .filter(|_| line.contains(&field));
            after?.1.split_once('"')?.0.parse().ok()
        });
        addresses.insert((*name).to_owned(), address);
    }
    Some(Service { program, addresses })
}

/// Returns the path of the binary. Prints a message and returns `None` if it is not built.
pub(crate) fn binary() -> Option<PathBuf> {
    let fluxgate = env::current_exe().ok()?.with_file_name("fluxgate");
    if !fluxgate.exists() {
        eprintln!("{} is not built", fluxgate.display());
        return None;
    }
    Some(fluxgate)
}

/// A directory that is removed when dropped.
pub(crate) struct TempDir(PathBuf);

impl TempDir {
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

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
