//! When a server decided something.

/// When a server decided something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Instant {
    /// In virtual time.
    pub(crate) at: u64,
    /// Orders what happens at one virtual time.
    pub(crate) number: u64,
    /// How far the server's clock has moved forwards so far, steps included.
    pub(crate) progress: u64,
    /// What the server's clock shows.
    pub(crate) time: u64,
    /// The server.
    pub(crate) server: usize,
}
