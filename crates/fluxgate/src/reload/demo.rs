//! The rules of the demo, which cannot change.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::error::ReloadError;
use super::snapshot::{CompiledRules, Snapshot, rules_of};
use super::source::{BoxFuture, KnownSnapshots, RuleSource};
use crate::config::{DEFAULT_POLL, RawConfig};

/// A config that is not in a file.
#[derive(Debug)]
pub(super) struct Demo(pub(super) RawConfig);

impl RuleSource for Demo {
    fn kind(&self) -> &'static str {
        "demo"
    }

    fn poll(&self) -> Duration {
        DEFAULT_POLL
    }

    fn read<'a>(
        &'a self,
        _known: &'a KnownSnapshots,
    ) -> BoxFuture<'a, Result<Arc<Snapshot>, ReloadError>> {
        Box::pin(std::future::ready(Ok(Arc::default())))
    }

    fn compile(&self, _snapshot: &Snapshot) -> Result<CompiledRules, ReloadError> {
        rules_of(&self.0, None)
    }
}

impl fmt::Display for Demo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the built-in demo")
    }
}
