//! Admin calls that failed authentication or authorization.

use std::sync::atomic::{AtomicU64, Ordering};

use super::exposition::{Exposition, Kind};

/// Why a call of the admin API was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AdminDenial {
    /// It had no token.
    NoToken,
    /// Its token is unknown.
    WrongToken,
    /// The role of its token does not suffice.
    Role,
    /// Its address had sent too many wrong tokens.
    Blocked,
}

impl AdminDenial {
    const ALL: [Self; 4] = [Self::NoToken, Self::WrongToken, Self::Role, Self::Blocked];

    const fn name(self) -> &'static str {
        match self {
            Self::NoToken => "no_token",
            Self::WrongToken => "wrong_token",
            Self::Role => "role",
            Self::Blocked => "blocked",
        }
    }
}

/// Counted by all threads together: these calls are rare, or slowed down.
#[derive(Debug, Default)]
pub(in crate::telemetry) struct AdminDenials([AtomicU64; AdminDenial::ALL.len()]);

impl AdminDenials {
    pub(in crate::telemetry) fn count(&self, denial: AdminDenial) {
        self.0[denial as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn render(&self, out: &mut Exposition) {
        let help = "Admin calls that failed authentication or authorization.";
        let mut family = out.family("fluxgate_admin_denied_total", Kind::Counter, help);
        for denial in AdminDenial::ALL {
            let count = self.0[denial as usize].load(Ordering::Relaxed);
            family.sample(&[("reason", denial.name())], count);
        }
    }
}
