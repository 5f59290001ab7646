//! Why the record cannot be read.

use fluxgate_core::StoreError;

/// Why the record cannot be read.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum HistoryError {
    /// The request asks for something that there is not, or for too much.
    #[error("{0}")]
    Request(String),
    /// Redis failed.
    #[error("the record cannot be read: {0}")]
    Store(#[from] StoreError),
    /// The service ends.
    #[error("the service is shutting down")]
    Closing,
}
