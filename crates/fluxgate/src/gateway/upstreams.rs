//! Which of several servers a request goes to.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use smallvec::SmallVec;

use super::health::State;
use super::upstream::Upstream;
use crate::telemetry;

/// The servers of a route; one at least.
#[derive(Debug)]
pub(crate) struct Upstreams {
    all: Vec<Arc<Upstream>>,
    /// Where looking begins next, so that equals take turns.
    turn: AtomicUsize,
}

/// The servers that a request has been sent to in vain, by their numbers.
pub(crate) type Tried = SmallVec<[usize; 4]>;

/// A request that a server has. While it is held, it counts as outstanding.
#[derive(Debug)]
pub(crate) struct Lease {
    upstream: Arc<Upstream>,
    /// Whether it shall show that the server is well again.
    is_trial: bool,
}

impl Upstreams {
    pub(super) fn new(all: Vec<Arc<Upstream>>) -> Self {
        Self {
            all,
            turn: AtomicUsize::new(0),
        }
    }

    /// The server with the fewest outstanding requests, among those that have not
    /// been tried. If all are put aside, the one whose time is over first.
    pub(crate) fn lease(&self, tried: &Tried) -> Option<Lease> {
        if let [only] = &self.all[..] {
            let is_new = !tried.contains(&only.number);
            return is_new.then(|| Lease::new(only, false));
        }
        self.lease_at(now(), tried)
    }

    fn lease_at(&self, now: u64, tried: &Tried) -> Option<Lease> {
        let start = self.turn.fetch_add(1, Ordering::Relaxed) % self.all.len().max(1);
        let (before, after) = self.all.split_at(start);
        let in_turn = after.iter().chain(before);
        let mut best: Option<&Arc<Upstream>> = None;
        let mut next: Option<(u64, &Arc<Upstream>)> = None;
        for upstream in in_turn.filter(|upstream| !tried.contains(&upstream.number)) {
            match upstream.health.at(now) {
                State::Due if upstream.health.take_trial(now) => {
                    return Some(Lease::new(upstream, true));
                }
                State::Well => {
                    let count = upstream.outstanding();
                    if best.is_none_or(|best| count < best.outstanding()) {
                        best = Some(upstream);
                    }
                }
                State::Aside { until } => {
                    if next.is_none_or(|(first, _)| until < first) {
                        next = Some((until, upstream));
                    }
                }
                // Another request has just taken the trial.
                State::Due => {
                    if next.is_none() {
                        next = Some((u64::MAX, upstream));
                    }
                }
            }
        }
        let chosen = best.or(next.map(|(_, upstream)| upstream))?;
        Some(Lease::new(chosen, false))
    }
}

impl Lease {
    fn new(upstream: &Arc<Upstream>, is_trial: bool) -> Self {
        upstream.outstanding.fetch_add(1, Ordering::Relaxed);
        Self {
            upstream: Arc::clone(upstream),
            is_trial,
        }
    }

    /// The server.
    pub(crate) fn upstream(&self) -> &Arc<Upstream> {
        &self.upstream
    }

    /// It could not be reached, or gave no answer.
    pub(crate) fn failed(&self) {
        self.upstream.health.failed(now(), self.is_trial);
    }

    /// It answered.
    pub(crate) fn succeeded(&self) {
        self.upstream.health.succeeded();
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.upstream.outstanding.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Milliseconds of a clock that never goes back.
fn now() -> u64 {
    telemetry::uptime_millis()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    fn upstreams(count: u16) -> Upstreams {
        let all = (1..=count).map(|port| {
            let target = config::Upstream::Http {
                tls: false,
                host: "127.0.0.1".into(),
                port,
            };
            Arc::new(Upstream::new(usize::from(port - 1), target))
        });
        Upstreams::new(all.collect())
    }

    fn number(lease: &Option<Lease>) -> Option<usize> {
        lease.as_ref().map(|lease| lease.upstream().number)
    }

    #[test]
    fn equals_take_turns_and_the_busy_are_spared() {
        let servers = upstreams(3);
        let none = Tried::new();
        let turns: Vec<_> = (0..6)
            .map(|_| number(&servers.lease_at(0, &none)).unwrap())
            .collect();
        assert_eq!(turns, [0, 1, 2, 0, 1, 2]);
        let held: Vec<_> = (0..2).map(|_| servers.lease_at(0, &none)).collect();
        let free = (0..3).find(|it| !held.iter().any(|held| number(held) == Some(*it)));
        for _ in 0..5 {
            assert_eq!(number(&servers.lease_at(0, &none)), free);
        }
    }

    #[test]
    fn who_failed_is_put_aside_tried_once_and_cleared_by_success() {
        let servers = upstreams(2);
        let none = Tried::new();
        let first = &servers.all[0];
        first.health.failed(0, false);
        for now in [0, 500, 999] {
            assert_eq!(number(&servers.lease_at(now, &none)), Some(1), "{now}");
        }
        let trial = servers.lease_at(1000, &none);
        assert_eq!(number(&trial), Some(0));
        for _ in 0..4 {
            assert_eq!(number(&servers.lease_at(1000, &none)), Some(1));
        }
        trial.unwrap().succeeded();
        let both: Vec<_> = (0..2)
            .map(|_| number(&servers.lease_at(1001, &none)))
            .collect();
        assert!(both.contains(&Some(0)) && both.contains(&Some(1)));
    }

    #[test]
    fn where_all_are_aside_the_first_to_come_back_is_tried_and_then_the_other() {
        let servers = upstreams(2);
        servers.all[1].health.failed(0, false);
        servers.all[0].health.failed(10, false);
        let mut tried = Tried::new();
        for expected in [Some(1), Some(0), None] {
            let lease = servers.lease_at(20, &tried);
            assert_eq!(number(&lease), expected);
            tried.extend(expected);
        }
    }

    #[test]
    fn the_only_one_is_tried_however_it_fares_and_only_once() {
        let servers = upstreams(1);
        let lease = servers.lease(&Tried::new()).unwrap();
        lease.failed();
        assert_eq!(lease.upstream().outstanding(), 1);
        drop(lease);
        assert_eq!(servers.all[0].outstanding(), 0);
        assert!(servers.lease(&Tried::new()).is_some());
        assert!(servers.lease(&Tried::from_slice(&[0])).is_none());
    }
}
