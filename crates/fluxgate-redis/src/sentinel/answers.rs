//! Decides which primary to trust when sentinels disagree.
//!
//! Sentinel gives every failover a new, higher *config epoch*, and a sentinel that learns of a
//! higher one adopts that configuration. So does the client:
//!
//! 1. The answer with the highest config epoch wins, even if only one sentinel gives it. A
//!    sentinel that was cut off during the failover still names the old primary, but with a
//!    lower epoch, so it cannot bring that primary back.
//! 2. Among addresses with the same epoch, the one that most sentinels give wins; a tie changes
//!    nothing. Epochs are the same if a sentinel changes its answer during the query, or if its
//!    user may not read the epoch, which then counts as 0.
//! 3. An answer counts until the sentinel gives another one. After [`LAPSE`] without one, it
//!    counts only while no majority of the sentinels answers. So a sentinel that is unreachable
//!    for a moment changes nothing, and a minority that was cut off together with the old primary
//!    cannot bring it back. A sentinel that is gone for good does not outvote the others if they
//!    start again at a lower epoch, as after `SENTINEL REMOVE` and `SENTINEL MONITOR`.

use std::time::Duration;

use tokio::time::Instant;

use crate::error::Address;

/// How long an answer counts unconditionally.
const LAPSE: Duration = Duration::from_secs(10);

/// A sentinel's answer about the primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SentinelAnswer {
    pub(super) address: Address,
    pub(super) epoch: u64,
}

/// The last answer of each sentinel.
#[derive(Debug)]
pub(super) struct SentinelAnswers(Vec<Option<(SentinelAnswer, Instant)>>);

impl SentinelAnswers {
    pub(super) fn new(sentinels: usize) -> Self {
        Self(vec![None; sentinels])
    }

    /// Records an answer; `None` if the sentinel does not know the primary.
    pub(super) fn set(&mut self, sentinel: usize, answer: Option<SentinelAnswer>, now: Instant) {
        self.0[sentinel] = answer.map(|answer| (answer, now));
    }

    /// Returns the address to trust, if any answer counts.
    pub(super) fn trusted(&self, current: Option<&Address>, now: Instant) -> Option<&Address> {
        let is_live = |given: Instant| now.saturating_duration_since(given) < LAPSE;
        let all = self.0.iter().flatten();
        let live = all.clone().filter(|(_, given)| is_live(*given)).count();
        let has_majority = 2 * live > self.0.len();
        let counting = all
            .filter(|(_, given)| !has_majority || is_live(*given))
            .map(|(answer, _)| answer);
        let highest = counting.clone().map(|answer| answer.epoch).max()?;
        let newest = counting
            .filter(|answer| answer.epoch == highest)
            .map(|answer| &answer.address);
        let votes = |address: &Address| newest.clone().filter(|it| *it == address).count();
        let most = newest.clone().map(votes).max()?;
        let mut winners = newest.clone().filter(|address| votes(address) == most);
        let kept = winners.clone().find(|address| Some(*address) == current);
        kept.or_else(|| winners.next())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The port that is trusted after these answers (port and epoch), given one
    /// after the other, each by the next sentinel.
    fn trusted<const N: usize>(answers: [(u16, u64); N], current: Option<u16>) -> Option<u16> {
        let now = Instant::now();
        let mut all = SentinelAnswers::new(N);
        for (sentinel, (port, epoch)) in answers.into_iter().enumerate() {
            all.set(sentinel, Some(answer(port, epoch)), now);
        }
        port_of(&all, current, now)
    }

    fn answer(port: u16, epoch: u64) -> SentinelAnswer {
        SentinelAnswer {
            address: address(port),
            epoch,
        }
    }

    fn address(port: u16) -> Address {
        ("10.0.0.1".to_owned(), port)
    }

    fn port_of(answers: &SentinelAnswers, current: Option<u16>, now: Instant) -> Option<u16> {
        let current = current.map(address);
        answers
            .trusted(current.as_ref(), now)
            .map(|(_, port)| *port)
    }

    #[test]
    fn the_highest_epoch_wins_even_if_one_sentinel_gives_it() {
        assert_eq!(trusted([(1, 4), (2, 5), (1, 4)], Some(1)), Some(2));
        assert_eq!(trusted([(1, 4), (2, 5), (1, 4)], Some(2)), Some(2));
        assert_eq!(trusted([(1, 4), (2, 5), (1, 4)], None), Some(2));
    }

    #[test]
    fn within_an_epoch_the_majority_wins_and_a_tie_changes_nothing() {
        assert_eq!(trusted([(1, 0), (2, 0), (2, 0)], Some(1)), Some(2));
        assert_eq!(trusted([(1, 0), (2, 0), (1, 0)], Some(1)), Some(1));
        for current in [1, 2] {
            assert_eq!(trusted([(1, 3), (2, 3)], Some(current)), Some(current));
        }
        assert_eq!(trusted([(1, 3), (2, 3)], None), Some(1));
        assert_eq!(trusted([(1, 3), (2, 3)], Some(9)), Some(1));
    }

    #[test]
    fn an_answer_that_is_not_repeated_lapses_while_a_majority_answers() {
        let start = Instant::now();
        let mut answers = SentinelAnswers::new(3);
        answers.set(0, Some(answer(2, 5)), start);
        answers.set(1, Some(answer(1, 0)), start);
        answers.set(2, Some(answer(1, 0)), start);
        assert_eq!(port_of(&answers, Some(2), start), Some(2));
        let later = start + LAPSE;
        answers.set(1, Some(answer(1, 0)), later);
        assert_eq!(port_of(&answers, Some(2), later), Some(2));
        answers.set(2, Some(answer(1, 0)), later);
        assert_eq!(port_of(&answers, Some(2), later), Some(1));
        // When none answers, the last answers stand.
        assert_eq!(port_of(&answers, Some(2), later + LAPSE), Some(2));
    }

    #[test]
    fn a_sentinel_that_does_not_know_the_primary_has_no_vote() {
        let now = Instant::now();
        let mut answers = SentinelAnswers::new(2);
        assert_eq!(port_of(&answers, None, now), None);
        answers.set(0, Some(answer(1, 5)), now);
        answers.set(1, Some(answer(2, 0)), now);
        answers.set(0, None, now);
        assert_eq!(port_of(&answers, Some(1), now), Some(2));
    }
}
