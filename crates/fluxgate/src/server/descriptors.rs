//! How many files and connections the process may have open.

/// Raises the bound as far as the system lets everybody: connections are files,
/// and the usual bound of 1024 is that of programs that know no better.
pub(super) fn allow_as_many_as_may_be() {
    if let Err(error) = rlimit::increase_nofile_limit(u64::MAX) {
        tracing::warn!(%error, "the bound on open files cannot be raised");
    }
}
