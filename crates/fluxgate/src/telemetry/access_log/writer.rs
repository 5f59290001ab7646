//! The thread that writes the access log.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use super::buffer::Buffers;
use crate::config::AccessLogFile;
use crate::telemetry::clock;
use crate::watch::next_signal;

/// How long a line waits at most before it is written.
const INTERVAL: Duration = Duration::from_millis(200);
/// The wait before a failed write is retried.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// How often lost lines are logged.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// How long writing the last lines may take.
const LAST_TIMEOUT: Duration = Duration::from_secs(1);

/// Why the access log cannot be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AccessLogError {
    /// The file cannot be opened.
    #[error("`gateway.access_log.file`: {}: {error}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// Standard output cannot be used, or the thread cannot be started.
    #[error("the access log cannot be written: {0}")]
    System(#[from] io::Error),
}

/// Where the lines go.
#[derive(Debug)]
pub(super) struct Output {
    file: File,
    /// `None` for standard output.
    path: Option<PathBuf>,
}

impl Output {
    pub(super) fn open(file: &AccessLogFile) -> Result<Self, AccessLogError> {
        Ok(match file {
            AccessLogFile::Stdout => Self {
                file: io::stdout().as_fd().try_clone_to_owned()?.into(),
                path: None,
            },
            AccessLogFile::Path(path) => Self {
                file: open(path)?,
                path: Some(path.clone()),
            },
        })
    }

    /// Opens the file again, because it was renamed. The old one stays if that fails.
    fn reopen(&mut self) {
        let Some(path) = &self.path else { return };
        match open(path) {
            Ok(file) => {
                self.file = file;
                tracing::info!(file = %path.display(), "the access log was opened again");
            }
            Err(error) => tracing::error!(%error, "the access log goes on in the old file"),
        }
    }
}

/// Opens a file to append to it. A pipe without a reader would block for ever.
fn open(path: &Path) -> Result<File, AccessLogError> {
    let unusable = |error| AccessLogError::Unusable {
        path: path.into(),
        error,
    };
    if let Ok(metadata) = path.metadata() {
        let kind = metadata.file_type();
        if !kind.is_file() && !kind.is_char_device() {
            let why = "it is neither a regular file nor a terminal";
            return Err(unusable(io::Error::new(io::ErrorKind::InvalidInput, why)));
        }
    }
    let opened = OpenOptions::new().append(true).create(true).open(path);
    opened.map_err(unusable)
}

/// A running writer. When it is dropped, the last lines are written, if the disk accepts them.
#[derive(Debug)]
#[must_use = "dropping it ends the log"]
pub(crate) struct AccessLogWriter {
    buffers: Arc<Buffers>,
    thread: Option<JoinHandle<()>>,
}

impl AccessLogWriter {
    /// Starts the thread.
    pub(super) fn start(
        output: Output,
        buffers: &Arc<Buffers>,
        lost: &Arc<AtomicU64>,
    ) -> Result<Self, AccessLogError> {
        let mut writing = Writing {
            output,
            buffers: Arc::clone(buffers),
            lost: Arc::clone(lost),
            reported: 0,
            reported_at: Duration::ZERO,
        };
        let thread = thread::Builder::new().name("fluxgate-access".into());
        let thread = thread.spawn(move || writing.run())?;
        // Set before the first request: the listeners are not open yet.
        let _ = buffers.writer.set(thread.thread().clone());
        Ok(Self {
            buffers: Arc::clone(buffers),
            thread: Some(thread),
        })
    }

    /// Returns what opens the file again on SIGHUP. Never ends.
    pub(crate) fn reopen_on_hangup(&self) -> impl Future<Output = ()> + Send + 'static {
        let buffers = Arc::clone(&self.buffers);
        let mut hangup = signal(SignalKind::hangup()).ok();
        async move {
            loop {
                next_signal(&mut hangup).await;
                buffers.reopens.store(true, Ordering::Relaxed);
                buffers.wake();
            }
        }
    }
}

impl Drop for AccessLogWriter {
    fn drop(&mut self) {
        const STEP: Duration = Duration::from_millis(5);
        self.buffers.has_ended.store(true, Ordering::Release);
        self.buffers.wake();
        let Some(thread) = self.thread.take() else {
            return;
        };
        // Lines that are not written in time are lost.
        let started = clock::monotonic();
        while !thread.is_finished() && clock::monotonic() < started + LAST_TIMEOUT {
            thread::sleep(STEP);
        }
    }
}

/// What the thread works with.
#[derive(Debug)]
struct Writing {
    output: Output,
    buffers: Arc<Buffers>,
    lost: Arc<AtomicU64>,
    /// How many lost lines were logged, and when.
    reported: u64,
    reported_at: Duration,
}

impl Writing {
    fn run(&mut self) {
        loop {
            // Read before the lines: what is appended later need not be written.
            let has_ended = self.buffers.has_ended.load(Ordering::Acquire);
            self.reopen_if_asked();
            let buffers = Arc::clone(&self.buffers);
            buffers.drain(|lines| self.write(lines));
            self.report_lost();
            if has_ended {
                return;
            }
            thread::park_timeout(INTERVAL);
        }
    }

    fn reopen_if_asked(&mut self) {
        if self.buffers.reopens.swap(false, Ordering::Relaxed) {
            self.output.reopen();
        }
    }

    /// Writes lines, however long that takes. Errors such as a full disk are retried, and the file
    /// may be replaced meanwhile.
    fn write(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            match self.output.file.write(bytes) {
                Ok(0) => thread::sleep(RETRY_PAUSE),
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    self.report_lost();
                    thread::sleep(RETRY_PAUSE);
                    self.reopen_if_asked();
                }
            }
        }
    }

    fn report_lost(&mut self) {
        let (lost, now) = (self.lost.load(Ordering::Relaxed), clock::monotonic());
        if lost > self.reported && now >= self.reported_at + REPORT_INTERVAL {
            tracing::warn!(
                lines = lost - self.reported,
                "lines of the access log were lost"
            );
            (self.reported, self.reported_at) = (lost, now);
        }
    }
}
