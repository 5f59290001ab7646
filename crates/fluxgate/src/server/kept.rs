//! What is made from files, and made anew when they change.

use std::fmt::Display;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use super::signals;

/// How often the files are looked at.
const OFTEN: Duration = Duration::from_secs(2);

/// Files that something is made from.
pub(crate) trait Files {
    /// What they hold.
    type Read: PartialEq;
    /// What is made of it.
    type Made;
    /// Why it cannot be.
    type Error: Display;

    /// What is told when something new was made.
    const RENEWED: &'static str;
    /// What is told when nothing could be, so that the old stays.
    const KEPT: &'static str;

    /// Reads them.
    fn read(&self) -> Result<Self::Read, Self::Error>;

    /// Makes it.
    fn make(&self, read: &Self::Read) -> Result<Self::Made, Self::Error>;
}

/// What was last made from good files.
#[derive(Debug)]
pub(crate) struct Kept<F: Files> {
    files: F,
    last: RwLock<(F::Read, Arc<F::Made>)>,
}

impl<F: Files> Kept<F> {
    /// Makes it for the first time.
    pub(crate) fn new(files: F) -> Result<Self, F::Error> {
        let read = files.read()?;
        let made = Arc::new(files.make(&read)?);
        Ok(Self {
            files,
            last: RwLock::new((read, made)),
        })
    }

    /// What is good now.
    pub(crate) fn now(&self) -> Arc<F::Made> {
        let last = self.last.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&last.1)
    }

    /// Makes it anew whenever the files change; for ever. What is bad is told once
    /// and changes nothing.
    pub(crate) async fn keep_fresh(&self) {
        let mut hangup = signal(SignalKind::hangup()).ok();
        let mut told = None;
        loop {
            tokio::select! {
                () = tokio::time::sleep(OFTEN) => {}
                () = signals::next(&mut hangup) => told = None,
            }
            match self.renew() {
                Ok(false) => {}
                Ok(true) => {
                    told = None;
                    tracing::info!("{}", F::RENEWED);
                }
                Err(error) => {
                    let error = error.to_string();
                    if told.as_ref() != Some(&error) {
                        tracing::error!(%error, "{}", F::KEPT);
                        told = Some(error);
                    }
                }
            }
        }
    }

    /// Whether something else is good now.
    fn renew(&self) -> Result<bool, F::Error> {
        let read = self.files.read()?;
        let is_same = {
            let last = self.last.read().unwrap_or_else(PoisonError::into_inner);
            last.0 == read
        };
        if is_same {
            return Ok(false);
        }
        let made = Arc::new(self.files.make(&read)?);
        let mut last = self.last.write().unwrap_or_else(PoisonError::into_inner);
        *last = (read, made);
        Ok(true)
    }
}
