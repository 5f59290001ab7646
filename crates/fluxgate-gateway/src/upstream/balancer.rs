//! Which upstream of a route a request is forwarded to.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;
use tokio::time::Instant;

use super::health::State;
use super::server::Upstream;

/// The upstreams of a route; at least one.
#[derive(Debug)]
pub(crate) struct Balancer {
    all: Vec<Arc<Upstream>>,
    /// Where the next search begins, so that upstreams with equal load take turns.
    turn: AtomicUsize,
}

/// The numbers of the upstreams that have been tried for a request.
pub(crate) type AttemptedUpstreams = SmallVec<[usize; 4]>;

/// A request that an upstream has. It counts as outstanding until this is dropped.
#[derive(Debug)]
pub(crate) struct Assignment {
    pub(crate) upstream: Arc<Upstream>,
    /// Whether the request probes an upstream that was ejected.
    is_probe: bool,
}

impl Balancer {
    pub(crate) fn new(all: Vec<Arc<Upstream>>) -> Self {
        Self {
            all,
            turn: AtomicUsize::new(0),
        }
    }

    /// Assigns a request to the upstream with the fewest outstanding requests among those that
    /// have not been tried. If all are ejected, to the one whose ejection ends first.
    pub(crate) fn assign(&self, tried: &AttemptedUpstreams) -> Option<Assignment> {
        if let [only] = &self.all[..] {
            let is_new = !tried.contains(&only.number);
            return is_new.then(|| Assignment::new(only, false));
        }
        self.assign_at(uptime_millis(), tried)
    }

    fn assign_at(&self, now: u64, tried: &AttemptedUpstreams) -> Option<Assignment> {
        let start = self.turn.fetch_add(1, Ordering::Relaxed) % self.all.len().max(1);
        let (before, after) = self.all.split_at(start);
        let in_turn = after.iter().chain(before);
        let mut best: Option<&Arc<Upstream>> = None;
        let mut next: Option<(u64, &Arc<Upstream>)> = None;
        for upstream in in_turn.filter(|upstream| !tried.contains(&upstream.number)) {
            match upstream.health.at(now) {
                State::Probing if upstream.health.start_probe(now) => {
                    return Some(Assignment::new(upstream, true));
                }
                State::Healthy => {
                    let count = upstream.outstanding();
                    if best.is_none_or(|best| count < best.outstanding()) {
                        best = Some(upstream);
                    }
                }
                State::Ejected { until } => {
                    if next.is_none_or(|(first, _)| until < first) {
                        next = Some((until, upstream));
                    }
                }
                // Another request has just started the probe.
                State::Probing => {
                    if next.is_none() {
                        next = Some((u64::MAX, upstream));
                    }
                }
            }
        }
        let chosen = best.or(next.map(|(_, upstream)| upstream))?;
        Some(Assignment::new(chosen, false))
    }
}

impl Assignment {
    fn new(upstream: &Arc<Upstream>, is_probe: bool) -> Self {
        upstream.outstanding.fetch_add(1, Ordering::Relaxed);
        Self {
            upstream: Arc::clone(upstream),
            is_probe,
        }
    }

    /// Records that the upstream could not be reached or sent no valid response.
    pub(crate) fn failed(&self) {
        self.upstream.health.failed(uptime_millis(), self.is_probe);
    }

    /// Records a response.
    pub(crate) fn succeeded(&self) {
        self.upstream.health.succeeded();
    }
}

impl Drop for Assignment {
    fn drop(&mut self) {
        self.upstream.outstanding.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns the milliseconds since the first call, by a monotonic clock.
fn uptime_millis() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let uptime = START.get_or_init(Instant::now).elapsed();
    u64::try_from(uptime.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{UpstreamScheme, UpstreamTarget};

    fn balancer(count: u16) -> Balancer {
        let all = (1..=count).map(|port| {
            let target = UpstreamTarget::Http {
                scheme: UpstreamScheme::Http,
                host: "127.0.0.1".into(),
                port,
                ca: None,
            };
            Arc::new(Upstream::new(usize::from(port - 1), target))
        });
        Balancer::new(all.collect())
    }

    fn number(assignment: &Option<Assignment>) -> Option<usize> {
        assignment.as_ref().map(|it| it.upstream.number)
    }

    #[test]
    fn upstreams_with_equal_load_take_turns_and_busy_ones_are_spared() {
        let servers = balancer(3);
        let none = AttemptedUpstreams::new();
        let turns: Vec<_> = (0..6)
            .map(|_| number(&servers.assign_at(0, &none)).unwrap())
            .collect();
        assert_eq!(turns, [0, 1, 2, 0, 1, 2]);
        let held: Vec<_> = (0..2).map(|_| servers.assign_at(0, &none)).collect();
        let free = (0..3).find(|it| !held.iter().any(|held| number(held) == Some(*it)));
        for _ in 0..5 {
            assert_eq!(number(&servers.assign_at(0, &none)), free);
        }
    }

    #[test]
    fn an_upstream_that_fails_is_ejected_probed_once_and_restored_by_success() {
        let servers = balancer(2);
        let none = AttemptedUpstreams::new();
        let first = &servers.all[0];
        first.health.failed(0, false);
        for now in [0, 500, 999] {
            assert_eq!(number(&servers.assign_at(now, &none)), Some(1), "{now}");
        }
        let probe = servers.assign_at(1000, &none);
        assert_eq!(number(&probe), Some(0));
        for _ in 0..4 {
            assert_eq!(number(&servers.assign_at(1000, &none)), Some(1));
        }
        probe.unwrap().succeeded();
        let both: Vec<_> = (0..2)
            .map(|_| number(&servers.assign_at(1001, &none)))
            .collect();
        assert!(both.contains(&Some(0)) && both.contains(&Some(1)));
    }

    #[test]
    fn if_all_are_ejected_each_is_tried_in_the_order_in_which_ejections_end() {
        let servers = balancer(2);
        servers.all[1].health.failed(0, false);
        servers.all[0].health.failed(10, false);
        let mut tried = AttemptedUpstreams::new();
        for expected in [Some(1), Some(0), None] {
            let assigned = servers.assign_at(20, &tried);
            assert_eq!(number(&assigned), expected);
            tried.extend(expected);
        }
    }

    #[test]
    fn a_single_upstream_is_tried_once_even_if_it_failed() {
        let servers = balancer(1);
        let assigned = servers.assign(&AttemptedUpstreams::new()).unwrap();
        assigned.failed();
        assert_eq!(assigned.upstream.outstanding(), 1);
        drop(assigned);
        assert_eq!(servers.all[0].outstanding(), 0);
        assert!(servers.assign(&AttemptedUpstreams::new()).is_some());
        assert!(
            servers
                .assign(&AttemptedUpstreams::from_slice(&[0]))
                .is_none()
        );
    }
}
