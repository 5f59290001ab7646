//! Waits that are refused.

/// Why a request that its rules let wait was denied instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitRefusal {
    /// It would have had to wait longer than `max_wait`.
    TooLong,
    /// Too many requests are waiting already, in this process (`max_concurrent_waits`) or in
    /// all together (`max_cluster_waits`).
    TooMany,
}

impl WaitRefusal {
    /// Both, in the order of their declaration.
    pub const ALL: [Self; 2] = [Self::TooLong, Self::TooMany];

    /// Returns its name in logs, metrics and explanations.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TooLong => "too_long",
            Self::TooMany => "too_many",
        }
    }
}

/// Why a request does not wait, beyond its verdicts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum WaitStatus {
    /// Nothing: the verdicts tell.
    #[default]
    None,
    /// The caller asked for a decision without a wait.
    NotRequested,
    /// The wait was refused after the decision.
    Refused(WaitRefusal),
}
