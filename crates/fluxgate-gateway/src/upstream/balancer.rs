//! Which upstream of a route a request is forwarded to.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;
use tokio::time::Instant;

use super::health::State;
use super::server::Upstream;
use crate::observer::EjectionCause;

/// The upstreams of a route; at least one.
#[derive(Debug)]
pub(crate) struct Balancer {
    all: Vec<Arc<Upstream>>,
    /// Which upstream a search begins with, so that upstreams with equal load take turns, each as
    /// often as its weight says.
    order: Box<[usize]>,
    /// Where in the order the next search begins.
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
        let weights: Vec<_> = all.iter().map(|upstream| upstream.weight).collect();
        Self {
            order: weighted_order(&weights),
            all,
            turn: AtomicUsize::new(0),
        }
    }

    /// Returns all upstreams, in the order of the config.
    pub(crate) fn upstreams(&self) -> &[Arc<Upstream>] {
        &self.all
    }

    /// Assigns a request to the upstream with the fewest outstanding requests for its weight
    /// among those that have not been tried. If all are out, to the one whose ejection ends first.
    pub(crate) fn assign(&self, tried: &AttemptedUpstreams) -> Option<Assignment> {
        if let [only] = &self.all[..] {
            let is_new = !tried.contains(&only.number);
            return is_new.then(|| Assignment::new(only, false));
        }
        self.assign_at(uptime_millis(), tried)
    }

    fn assign_at(&self, now: u64, tried: &AttemptedUpstreams) -> Option<Assignment> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % self.order.len().max(1);
        let start = self.order.get(turn).copied().unwrap_or_default();
        let (before, after) = self.all.split_at(start);
        let in_turn = after.iter().chain(before);
        let mut best: Option<&Arc<Upstream>> = None;
        let mut next: Option<(u64, &Arc<Upstream>)> = None;
        for upstream in in_turn.filter(|upstream| !tried.contains(&upstream.number)) {
            let state = if upstream.of_route.is_failing() {
                State::Ejected { until: u64::MAX }
            } else {
                upstream.server.health.at(now)
            };
            match state {
                State::Probing if upstream.server.health.start_probe(now) => {
                    return Some(Assignment::new(upstream, true));
                }
                State::Healthy => {
                    if best.is_none_or(|best| upstream.is_less_loaded_than(best)) {
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
        upstream.server.outstanding.fetch_add(1, Ordering::Relaxed);
        Self {
            upstream: Arc::clone(upstream),
            is_probe,
        }
    }

    /// Assigns a health check.
    pub(crate) fn of_check(upstream: &Arc<Upstream>) -> Self {
        Self::new(upstream, false)
    }

    /// Records that the upstream could not be reached or sent no valid response, and why.
    pub(crate) fn failed(&self, cause: EjectionCause, why: impl FnOnce() -> String) {
        let Upstream {
            of_route, server, ..
        } = &*self.upstream;
        of_route.failed(server, (uptime_millis(), self.is_probe), cause, why);
    }

    /// Records a response.
    pub(crate) fn succeeded(&self) {
        self.upstream.of_route.succeeded(&self.upstream.server);
    }

    /// Returns the host and port of the upstream.
    pub(crate) fn label(&self) -> &str {
        self.upstream.of_route.label()
    }
}

impl Drop for Assignment {
    fn drop(&mut self) {
        self.upstream
            .server
            .outstanding
            .fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns the indices of the upstreams in an order in which each occurs as often as its weight
/// says, spread evenly.
fn weighted_order(weights: &[u32]) -> Box<[usize]> {
    let divisor = weights
        .iter()
        .fold(0, |divisor, weight| gcd(divisor, *weight));
    let weights = weights
        .iter()
        .map(|weight| i64::from(weight / divisor.max(1)));
    let weights: Vec<_> = weights.collect();
    let total: i64 = weights.iter().sum();
    let mut due = vec![0; weights.len()];
    let turns = (0..total).filter_map(|_| {
        for (due, weight) in due.iter_mut().zip(&weights) {
            *due += weight;
        }
        // Of several, the first.
        let next = (0..due.len()).rev().max_by_key(|index| due[*index])?;
        due[next] -= total;
        Some(next)
    });
    turns.collect()
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
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
    use crate::config::{UpstreamConfig, UpstreamScheme, UpstreamTarget};
    use crate::observer::{UpstreamChange, UpstreamObserver};
    use crate::upstream::UpstreamRegistry;

    fn balancer(count: u16) -> Balancer {
        let mut registry = UpstreamRegistry::new(Arc::new(Unobserved));
        let all = (1..=count).map(|port| {
            let target = UpstreamTarget::Http {
                scheme: UpstreamScheme::Http,
                host: "127.0.0.1".into(),
                port,
                ca: None,
            };
            registry.upstream("r", target.into())
        });
        Balancer::new(all.collect())
    }

    #[derive(Debug)]
    struct Unobserved;

    impl UpstreamObserver for Unobserved {
        fn upstream_changed(&self, _: &UpstreamChange<'_>) {}
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
    fn weights_are_kept_without_and_under_load() {
        assert_eq!(*weighted_order(&[1, 1, 1]), [0, 1, 2]);
        assert_eq!(*weighted_order(&[2, 2]), [0, 1]);
        assert_eq!(*weighted_order(&[5, 1, 1]), [0, 0, 1, 0, 2, 0, 0]);
        let mut registry = UpstreamRegistry::new(Arc::new(Unobserved));
        let weighted = [1, 3].map(|weight| {
            let target = UpstreamTarget::Http {
                scheme: UpstreamScheme::Http,
                host: "127.0.0.1".into(),
                port: weight,
                ca: None,
            };
            let weight = u32::from(weight);
            registry.upstream("r", UpstreamConfig { target, weight })
        });
        let servers = Balancer::new(weighted.into());
        let none = AttemptedUpstreams::new();
        let turns = |held: &mut Vec<_>| {
            let turns = (0..40).map(|_| {
                let assigned = servers.assign_at(0, &none);
                let number = number(&assigned);
                held.extend(assigned);
                number
            });
            turns.filter(|it| *it == Some(1)).count()
        };
        let mut held = Vec::new();
        let idle: usize = (0..4).map(|_| turns(&mut Vec::new())).sum();
        assert_eq!((idle, turns(&mut held)), (120, 30));
        assert_eq!(held.len(), 40);
    }

    #[test]
    fn an_upstream_that_fails_is_ejected_probed_once_and_restored_by_success() {
        let servers = balancer(2);
        let none = AttemptedUpstreams::new();
        let first = &servers.all[0];
        first.server.health.failed(0, false);
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
        servers.all[1].server.health.failed(0, false);
        servers.all[0].server.health.failed(10, false);
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
        assigned.failed(EjectionCause::Connect, String::new);
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
