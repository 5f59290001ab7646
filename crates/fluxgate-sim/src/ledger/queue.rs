//! How many requests wait at once.

use std::collections::BTreeMap;

use super::instant::Instant;

/// A request that waits.
#[derive(Clone, Copy, Debug)]
struct Wait {
    decided: Instant,
    /// By progress of its server.
    until: u64,
}

/// A loss of what a server has written since a virtual time.
#[derive(Clone, Copy, Debug)]
struct Loss {
    at: Instant,
    since: u64,
    /// The server that goes on with the rest.
    heir: usize,
}

/// The requests that wait, or did.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    waits: Vec<Wait>,
    losses: Vec<Loss>,
    /// The most that may; 0 for no bound.
    most: usize,
}

impl Queue {
    pub(super) fn new(most: u32) -> Self {
        Self {
            waits: Vec::new(),
            losses: Vec::new(),
            most: most as usize,
        }
    }

    /// Adds a request that waits for a time. Returns its number.
    pub(super) fn begin(&mut self, decided: Instant, delay: u64) -> usize {
        let until = decided.progress + delay;
        self.waits.push(Wait { decided, until });
        self.waits.len() - 1
    }

    pub(super) fn end(&mut self, number: usize, progress: u64) {
        let until = &mut self.waits[number].until;
        *until = progress.min(*until);
    }

    pub(super) fn lose(&mut self, at: Instant, since: u64, heir: usize) {
        self.losses.push(Loss { at, since, heir });
    }

    /// Returns which server knows that a request waits, and until when. A request goes on waiting
    /// after its server has lost its data, but no server knows of it any more, so as many others
    /// may wait beside it.
    fn known(&self, wait: &Wait) -> (usize, u64) {
        let (mut server, mut until) = (wait.decided.server, wait.until);
        for loss in &self.losses {
            if loss.at.server == server && loss.at.number > wait.decided.number {
                if wait.decided.at < loss.since {
                    server = loss.heir;
                } else {
                    until = loss.at.progress.min(until);
                }
            }
        }
        (server, until)
    }

    /// Returns a moment, in virtual time, at which too many requests waited of those that one server
    /// knows, and what is wrong.
    pub(super) fn violation(&self) -> Option<(u64, String)> {
        if self.most == 0 {
            return None;
        }
        let mut waits: Vec<_> = self.waits.iter().collect();
        waits.sort_by_key(|wait| (wait.decided.progress, wait.decided.number));
        let mut waiting = BTreeMap::<usize, Vec<u64>>::new();
        for wait in waits {
            let (from, (server, until)) = (wait.decided.progress, self.known(wait));
            let waiting = waiting.entry(server).or_default();
            waiting.retain(|ends| *ends > from);
            if until > from {
                waiting.push(until);
            }
            if waiting.len() > self.most {
                let (count, most) = (waiting.len(), self.most);
                let message = format!("{count} requests wait, and at most {most} may");
                return Some((wait.decided.at, message));
            }
        }
        None
    }
}
