//! Sorted sets.

use std::cmp::Ordering;

/// A sorted set: members with scores, in order. Small ones only: most operations look at all
/// members.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SortedSet(Vec<(f64, Vec<u8>)>);

fn order(a: (f64, &[u8]), b: (f64, &[u8])) -> Ordering {
    // No score is NaN.
    a.0.total_cmp(&b.0).then_with(|| a.1.cmp(b.1))
}

/// A bound of scores.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScoreBound {
    score: f64,
    is_exclusive: bool,
}

impl ScoreBound {
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let (is_exclusive, text) = match text.strip_prefix(b"(") {
            Some(text) => (true, text),
            None => (false, text),
        };
        Some(Self {
            score: parse_score(text)?,
            is_exclusive,
        })
    }

    fn is_below(self, score: f64) -> bool {
        score > self.score || score == self.score && !self.is_exclusive
    }

    fn is_above(self, score: f64) -> bool {
        score < self.score || score == self.score && !self.is_exclusive
    }
}

pub(super) fn parse_score(text: &[u8]) -> Option<f64> {
    let score: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    // -0 and 0 are one score.
    (!score.is_nan()).then_some(if score == 0.0 { 0.0 } else { score })
}

/// Writes a score as Redis does.
pub(super) fn score_text(score: f64) -> String {
    if score.is_infinite() {
        return if score > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    // The shortest text that reads as the same number, without an exponent for whole ones.
    format!("{score}")
}

impl SortedSet {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn score(&self, member: &[u8]) -> Option<f64> {
        let found = self.0.iter().find(|(_, known)| known == member);
        found.map(|(score, _)| *score)
    }

    /// Adds a member or changes its score. Returns whether it is new.
    pub(super) fn insert(&mut self, score: f64, member: &[u8]) -> bool {
        let is_new = !self.remove(member);
        let at = self
            .0
            .partition_point(|(known, other)| order((*known, other), (score, member)).is_lt());
        self.0.insert(at, (score, member.to_vec()));
        is_new
    }

    pub(super) fn remove(&mut self, member: &[u8]) -> bool {
        let at = self.0.iter().position(|(_, known)| known == member);
        at.map(|at| self.0.remove(at)).is_some()
    }

    /// Returns the members of a range of ranks; negative ones count from the end.
    pub(super) fn range(&self, first: i64, last: i64) -> &[(f64, Vec<u8>)] {
        let (from, to) = ranks(first, last, self.0.len());
        &self.0[from..to]
    }

    pub(super) fn remove_range(&mut self, first: i64, last: i64) -> usize {
        let (from, to) = ranks(first, last, self.0.len());
        self.0.drain(from..to).count()
    }

    pub(super) fn count(&self, least: ScoreBound, most: ScoreBound) -> usize {
        let is_in = |score: f64| least.is_below(score) && most.is_above(score);
        self.0.iter().filter(|(score, _)| is_in(*score)).count()
    }

    pub(super) fn remove_scores(&mut self, least: ScoreBound, most: ScoreBound) -> usize {
        let before = self.0.len();
        self.0
            .retain(|(score, _)| !(least.is_below(*score) && most.is_above(*score)));
        before - self.0.len()
    }
}

/// Returns the range of indices of a range of ranks.
pub(super) fn ranks(first: i64, last: i64, len: usize) -> (usize, usize) {
    let len = len as i64;
    let index = |rank: i64| if rank < 0 { rank + len } else { rank };
    let (first, last) = (index(first).max(0), index(last).min(len - 1));
    if first > last {
        return (0, 0);
    }
    (first as usize, last as usize + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_in_order_and_ranks_count_from_both_ends() {
        let mut set = SortedSet::default();
        for (score, member) in [(2.0, "b"), (f64::NEG_INFINITY, "h"), (2.0, "a"), (7.5, "z")] {
            assert!(set.insert(score, member.as_bytes()));
        }
        assert!(!set.insert(1.0, b"z"));
        let members = |range: &[(f64, Vec<u8>)]| {
            let members = range.iter().map(|(_, member)| member.clone());
            String::from_utf8(members.flatten().collect()).unwrap()
        };
        assert_eq!(members(set.range(0, -1)), "hzab");
        assert_eq!(members(set.range(-2, 9)), "ab");
        assert_eq!(members(set.range(3, 1)), "");
        let bound = |text: &str| ScoreBound::parse(text.as_bytes()).unwrap();
        assert_eq!(set.count(bound("-inf"), bound("(2")), 2);
        assert_eq!(set.count(bound("1"), bound("2")), 3);
        assert_eq!(set.remove_scores(bound("(1"), bound("2")), 2);
        assert_eq!(set.remove_range(0, 0), 1);
        assert_eq!(members(set.range(0, -1)), "z");
    }

    #[test]
    fn scores_are_written_without_an_exponent() {
        assert_eq!(score_text(1_700_000_000_000_000.0), "1700000000000000");
        assert_eq!(score_text(0.5), "0.5");
        assert_eq!(score_text(f64::NEG_INFINITY), "-inf");
    }
}
