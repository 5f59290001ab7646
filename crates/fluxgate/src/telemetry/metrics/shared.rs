//! Rare events, which all threads count together: refused admin calls, and calls to language models
//! with their tokens.

use std::sync::atomic::{AtomicU64, Ordering};

use fluxgate_gateway::CallEnd;

use super::exposition::Exposition;
use super::family::Kind;

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

/// Counted by all threads together: a call takes far longer than a count.
#[derive(Debug, Default)]
pub(in crate::telemetry) struct LlmCounts {
    calls: [AtomicU64; CallEnd::ALL.len()],
    prompt_tokens: AtomicU64,
    completion_tokens: AtomicU64,
}

impl LlmCounts {
    pub(in crate::telemetry) fn count(&self, end: CallEnd, prompt: u64, completion: u64) {
        self.calls[end as usize].fetch_add(1, Ordering::Relaxed);
        self.prompt_tokens.fetch_add(prompt, Ordering::Relaxed);
        self.completion_tokens
            .fetch_add(completion, Ordering::Relaxed);
    }

    pub(super) fn render(&self, out: &mut Exposition) {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let help = "Calls to language models by the source of their token counts.";
        let mut family = out.family("fluxgate_llm_calls_total", Kind::Counter, help);
        for end in CallEnd::ALL {
            let calls = get(&self.calls[end as usize]);
            family.sample(&[("end", end.name())], calls);
        }
        let help = "Tokens charged to calls to language models.";
        let mut family = out.family("fluxgate_llm_tokens_total", Kind::Counter, help);
        family.sample(&[("kind", "prompt")], get(&self.prompt_tokens));
        family.sample(&[("kind", "completion")], get(&self.completion_tokens));
    }
}
