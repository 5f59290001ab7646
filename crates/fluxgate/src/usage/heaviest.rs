//! The identities that each rule has charged most, within this hour and the one before.
//!
//! A rule keeps a bounded number of them. When there are twice as many, those with the fewest units
//! are forgotten, and later ones take over the count of the last one that was, as their error. So no
//! count is too high by more than its error, and what is reported is the count without it.

use std::collections::HashMap;
use std::time::Duration;

use fluxgate_core::StoredIdentity;

/// In seconds.
pub(super) const HOUR: u64 = 3600;
/// How many identities of a rule are written at once, those with the most units to write first.
const MAX_WRITTEN: usize = 200;

/// The heaviest identities of all rules.
#[derive(Debug)]
pub(super) struct Heaviest {
    /// How many identities of a rule are kept.
    most: usize,
    /// The number of this hour since 1970.
    hour: u64,
    rules: HashMap<(Box<str>, Box<str>), RuleUse>,
}

/// Units to write: all that this instance counted within an hour.
#[derive(Debug)]
pub(super) struct Unsent {
    pub(super) rule_set: Box<str>,
    pub(super) rule: Box<str>,
    pub(super) hour: u64,
    pub(super) units: Vec<(StoredIdentity, u64)>,
}

/// The use of a rule in this hour and the one before.
#[derive(Debug, Default)]
struct RuleUse {
    current: HourUse,
    previous: HourUse,
}

#[derive(Debug, Default)]
struct HourUse {
    identities: HashMap<StoredIdentity, Units>,
    /// The most that an identity that is not here may have.
    floor: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Units {
    count: u64,
    error: u64,
    /// What of `known` is written.
    sent: u64,
}

impl Units {
    /// Returns the units that were counted for sure.
    fn known(self) -> u64 {
        self.count - self.error
    }
}

impl Heaviest {
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            hour: 0,
            rules: HashMap::new(),
        }
    }

    /// Adds units that an identity was charged. `now` is the time since 1970.
    pub(super) fn add(
        &mut self,
        rule_set: &str,
        rule: &str,
        identity: StoredIdentity,
        units: u64,
        now: Duration,
    ) {
        self.begin_hour(now);
        let hour = &mut self
            .rules
            .entry((rule_set.into(), rule.into()))
            .or_default()
            .current;
        let floor = hour.floor;
        let known = hour.identities.entry(identity).or_insert(Units {
            count: floor,
            error: floor,
            sent: 0,
        });
        known.count += units;
    }

    /// Forgets what is no longer among the heaviest.
    pub(super) fn trim(&mut self, now: Duration) {
        self.begin_hour(now);
        for rule in self.rules.values_mut() {
            rule.current.trim(self.most);
        }
    }

    /// Returns the units of the last 60 minutes: those of this hour, and of the one before as many as
    /// if they had been used evenly.
    pub(super) fn last_hour(
        &self,
        rule_set: &str,
        rule: &str,
        now: Duration,
    ) -> impl Iterator<Item = (&StoredIdentity, u64)> {
        let rule = self.rules.get(&(rule_set.into(), rule.into()));
        let hours = rule.map(|rule| {
            [
                (self.hour, &rule.current),
                (self.hour.saturating_sub(1), &rule.previous),
            ]
        });
        hours.into_iter().flatten().flat_map(move |(hour, it)| {
            let units = it.identities.iter();
            units.map(move |(identity, units)| {
                (identity, within_last_hour(units.known(), hour, now))
            })
        })
    }

    /// Returns what is not written yet.
    pub(super) fn unsent(&self) -> Vec<Unsent> {
        let mut all = Vec::new();
        for ((rule_set, rule), hours) in &self.rules {
            let before = self.hour.saturating_sub(1);
            for (hour, it) in [(before, &hours.previous), (self.hour, &hours.current)] {
                let unsent = it.identities.iter().filter(|(_, it)| it.known() > it.sent);
                let mut unsent: Vec<_> = unsent.collect();
                unsent.sort_by_key(|(_, it)| u64::MAX - (it.known() - it.sent));
                unsent.truncate(MAX_WRITTEN);
                if !unsent.is_empty() {
                    let units = unsent.into_iter();
                    all.push(Unsent {
                        rule_set: rule_set.clone(),
                        rule: rule.clone(),
                        hour,
                        units: units.map(|(id, it)| (id.clone(), it.known())).collect(),
                    });
                }
            }
        }
        all
    }

    /// Records that units are written.
    pub(super) fn mark_sent(&mut self, sent: &Unsent) {
        let key = (sent.rule_set.clone(), sent.rule.clone());
        let Some(rule) = self.rules.get_mut(&key) else {
            return;
        };
        let hour = if sent.hour == self.hour {
            &mut rule.current
        } else if sent.hour + 1 == self.hour {
            &mut rule.previous
        } else {
            return;
        };
        for (identity, units) in &sent.units {
            if let Some(known) = hour.identities.get_mut(identity) {
                known.sent = *units;
            }
        }
    }

    /// Begins the hour of `now`, if it is another one.
    fn begin_hour(&mut self, now: Duration) {
        let hour = now.as_secs() / HOUR;
        if hour == self.hour {
            return;
        }
        let is_next = hour == self.hour + 1;
        self.hour = hour;
        for rule in self.rules.values_mut() {
            let ended = std::mem::take(&mut rule.current);
            // A clock that jumps leaves nothing of the hour before.
            rule.previous = if is_next { ended } else { HourUse::default() };
        }
        self.rules
            .retain(|_, rule| !rule.previous.identities.is_empty());
    }
}

impl HourUse {
    fn trim(&mut self, most: usize) {
        if self.identities.len() <= 2 * most {
            return;
        }
        let mut counts: Vec<_> = self.identities.values().map(|it| it.count).collect();
        let (_, lowest_kept, _) = counts.select_nth_unstable_by(most, |a, b| b.cmp(a));
        let floor = *lowest_kept;
        self.identities.retain(|_, it| it.count > floor);
        self.floor = self.floor.max(floor);
    }
}

/// Returns how many of the units of an hour are within the last 60 minutes, if they were used evenly.
pub(super) fn within_last_hour(units: u64, hour: u64, now: Duration) -> u64 {
    let elapsed = now.as_secs().saturating_sub(hour * HOUR);
    let share = HOUR.saturating_sub(elapsed.saturating_sub(HOUR)).min(HOUR);
    // At most `units`.
    (u128::from(units) * u128::from(share)).div_ceil(u128::from(HOUR)) as u64
}

#[cfg(test)]
mod tests {
    use fluxgate_core::KeyPart;
    use fluxgate_core::key::encoded_identity;

    use super::*;

    fn user(number: u64) -> StoredIdentity {
        let name = format!("user-{number}");
        let bytes = encoded_identity(&[KeyPart::User], &[&name], 64).unwrap();
        StoredIdentity::new("s", "r", &bytes, |_| None)
    }

    fn at(hour: u64, minute: u64) -> Duration {
        Duration::from_secs(hour * HOUR + 60 * minute)
    }

    fn units(heaviest: &Heaviest, number: u64, now: Duration) -> u64 {
        let user = user(number);
        let all = heaviest.last_hour("s", "r", now);
        all.filter(|(identity, _)| **identity == user)
            .map(|(_, units)| units)
            .sum()
    }

    #[test]
    fn the_hour_before_counts_by_its_share() {
        let mut heaviest = Heaviest::new(10);
        heaviest.add("s", "r", user(1), 60, at(5, 30));
        assert_eq!(units(&heaviest, 1, at(5, 59)), 60);
        heaviest.add("s", "r", user(1), 7, at(6, 0));
        assert_eq!(units(&heaviest, 1, at(6, 0)), 67);
        assert_eq!(units(&heaviest, 1, at(6, 45)), 22);
        heaviest.trim(at(7, 0));
        assert_eq!(units(&heaviest, 1, at(7, 0)), 7);
        heaviest.trim(at(9, 0));
        assert_eq!(units(&heaviest, 1, at(9, 0)), 0);
        assert!(heaviest.rules.is_empty());
    }

    #[test]
    fn the_heaviest_are_kept_and_no_count_is_too_high() {
        let mut heaviest = Heaviest::new(100);
        let now = at(5, 0);
        for round in 0..50 {
            for number in 0..20 {
                heaviest.add("s", "r", user(number), 10, now);
            }
            for number in 0..150 {
                heaviest.add("s", "r", user(1000 + 150 * round + number), 1, now);
            }
            heaviest.trim(now);
            let kept = heaviest.last_hour("s", "r", now).count();
            assert!(kept <= 200, "{kept}");
        }
        for number in 0..20 {
            assert_eq!(units(&heaviest, number, now), 500);
        }
        for (_, units) in heaviest.last_hour("s", "r", now) {
            assert!(units == 500 || units <= 1, "{units}");
        }
    }

    #[test]
    fn what_is_not_written_is_written_again() {
        let mut heaviest = Heaviest::new(10);
        heaviest.add("s", "r", user(1), 60, at(5, 59));
        let unsent = heaviest.unsent();
        assert_eq!(
            (unsent[0].hour, &unsent[0].units),
            (5, &vec![(user(1), 60)])
        );
        assert_eq!(heaviest.unsent().len(), 1);
        heaviest.add("s", "r", user(1), 1, at(5, 59));
        heaviest.mark_sent(&unsent[0]);
        assert_eq!(heaviest.unsent()[0].units, [(user(1), 61)]);
        heaviest.add("s", "r", user(2), 5, at(6, 0));
        let unsent = heaviest.unsent();
        assert_eq!(unsent.iter().map(|it| it.hour).collect::<Vec<_>>(), [5, 6]);
        unsent.iter().for_each(|unsent| heaviest.mark_sent(unsent));
        assert!(heaviest.unsent().is_empty());
    }
}
