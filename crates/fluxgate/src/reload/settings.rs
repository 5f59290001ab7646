//! What follows the config file beside the rules: filters, the routes of the gateway, and
//! certificates.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::error::ReloadError;
use crate::config::{Config, Filter, RawConfig};

/// The settings that change while the service runs.
pub(crate) trait Settings: fmt::Debug + Send + Sync {
    /// Prepares the settings of a valid config; `None` if nothing has changed. May read files.
    ///
    /// # Errors
    /// If the config needs files that cannot be used, or seems to be truncated.
    fn prepare(
        self: Arc<Self>,
        raw: &RawConfig,
        config: Config,
    ) -> Result<Option<Box<dyn PreparedSettings>>, ReloadError>;

    /// Returns the active filters.
    fn filters(&self) -> Vec<Filter>;
}

/// Settings that can be applied.
pub(crate) trait PreparedSettings: fmt::Debug + Send {
    /// Fetches what the settings need from servers, for a limited time.
    fn load(&self) -> BoxFuture<'_, ()>;

    /// Applies the settings.
    fn apply(self: Box<Self>);
}
