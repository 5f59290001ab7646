//! Replays what instances recorded of their leases against the specification.
//!
//! Instances write a line for each action of `spec/tla/Leases.tla` (`fluxgate_redis`, feature
//! `lease-trace`), with their grants after it. The replay checks for each line that the action was
//! enabled and led to these grants, and for each answer of the server that the units that it has
//! as out can be: at least those that instances hold, at most those that were granted, and never
//! more than the share. What no instance can see, it allows: units may be lost at any time, and a
//! call without an answer may have been handled or not.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::Path;

use crate::dir::Dir;

/// A directory in which instances record their leases: the value of `FLUXGATE_LEASE_TRACE`.
#[derive(Debug)]
pub struct LeaseRecorder(Dir);

impl LeaseRecorder {
    /// Creates an empty directory, which is removed when dropped.
    #[expect(clippy::new_without_default, reason = "it creates a directory")]
    pub fn new() -> Self {
        Self(Dir::new())
    }

    /// Returns the directory.
    pub fn directory(&self) -> &Path {
        self.0.path()
    }

    /// Reads what has been recorded. No instance may ask for more units while it reads.
    ///
    /// # Panics
    /// If it cannot be read.
    pub fn traces(&self) -> LeaseTraces {
        let files = fs::read_dir(self.directory()).expect("a directory of traces");
        let read = |file: Result<fs::DirEntry, _>| {
            let text = fs::read_to_string(file.expect("a trace").path()).expect("a trace");
            // An instance that is killed may have written a part of its last line.
            let complete = text.rfind('\n').map_or("", |end| &text[..end]);
            complete.lines().map(str::to_owned).collect()
        };
        LeaseTraces {
            instances: files.map(read).collect(),
        }
    }
}

/// The traces of some instances on one server.
#[derive(Clone, Debug)]
pub struct LeaseTraces {
    /// The lines of each instance.
    pub instances: Vec<Vec<String>>,
}

/// What a replay has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplayedLeases {
    /// Units spent.
    pub spent: u64,
    /// Calls for units.
    pub calls: u64,
    /// Calls that were answered.
    pub answers: u64,
    /// Units granted.
    pub granted: u64,
    /// Units given back.
    pub returned: u64,
}

/// Units that an instance has on lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Grant {
    ends: u64,
    until: u64,
    left: u64,
    spent: u64,
}

/// A call for units, as the instance made it.
#[derive(Clone, Debug, Default)]
struct Call {
    want: u64,
    /// When the grant ends, and the units spent and returned.
    reports: Vec<[u64; 3]>,
    /// What the server answered, if it did.
    answer: Option<ServerAnswer>,
}

/// What the server granted and what was out after it, and when, by its clock.
#[derive(Clone, Copy, Debug)]
struct ServerAnswer {
    units: u64,
    ends: u64,
    out: u64,
    at: u64,
}

/// The leases of one key in one instance.
#[derive(Debug, Default)]
struct Holder {
    grants: Vec<Grant>,
    /// The call that it waits for.
    pending: Option<Call>,
}

impl LeaseTraces {
    /// Replays all traces. `share` is the most units that may be out. Returns what is wrong with
    /// the first line that the specification does not allow.
    pub fn replay(&self, share: u64) -> Result<ReplayedLeases, String> {
        let mut replayed = ReplayedLeases::default();
        let mut calls = BTreeMap::<&str, Vec<Call>>::new();
        for lines in &self.instances {
            let mut holders = BTreeMap::<&str, Holder>::new();
            for line in lines {
                let step = Step::parse(line).ok_or_else(|| format!("no step: {line}"))?;
                let holder = holders.entry(step.key).or_default();
                let done = holder.step(&step, &mut replayed);
                let done = done.map_err(|wrong| format!("{wrong}: {line}"))?;
                calls.entry(step.key).or_default().extend(done);
            }
            for (key, holder) in holders {
                calls.entry(key).or_default().extend(holder.pending);
            }
        }
        for (key, calls) in calls {
            check_server(&calls, share).map_err(|wrong| format!("{wrong}: key {key}"))?;
        }
        Ok(replayed)
    }
}

/// A line of a trace.
struct Step<'l> {
    key: &'l str,
    now: u64,
    action: &'l str,
    arguments: Vec<Vec<u64>>,
    after: Vec<Grant>,
}

impl<'l> Step<'l> {
    fn parse(line: &'l str) -> Option<Self> {
        let (event, grants) = line.split_once(" |")?;
        let numbers = |text: &str| -> Option<Vec<u64>> {
            text.split(':').map(|number| number.parse().ok()).collect()
        };
        let mut words = event.split(' ');
        let (key, now, action) = (words.next()?, words.next()?, words.next()?);
        let grant = |text| match numbers(text)?[..] {
            [ends, until, left, spent] => Some(Grant {
                ends,
                until,
                left,
                spent,
            }),
            _ => None,
        };
        Some(Self {
            key,
            now: now.parse().ok()?,
            action,
            arguments: words.map(numbers).collect::<Option<_>>()?,
            after: grants
                .split_whitespace()
                .map(grant)
                .collect::<Option<_>>()?,
        })
    }
}

impl Holder {
    /// Takes a step. Returns the call that it ends, if any.
    fn step(
        &mut self,
        step: &Step<'_>,
        replayed: &mut ReplayedLeases,
    ) -> Result<Option<Call>, String> {
        let arguments: Vec<&[u64]> = step.arguments.iter().map(Vec::as_slice).collect();
        let mut ended = None;
        match (step.action, &arguments[..]) {
            ("spend", [[units]]) => {
                self.spend(*units, step)?;
                replayed.spent += units;
            }
            ("ask", [[want], reports @ ..]) => {
                let reports = reports.iter().map(|report| (*report).try_into());
                let reports = reports.collect::<Result<Vec<[u64; 3]>, _>>();
                let reports = reports.map_err(|_| "no report")?;
                replayed.returned += reports.iter().map(|report| report[2]).sum::<u64>();
                replayed.calls += 1;
                self.ask(*want, reports, step)?;
            }
            ("receive", [[units], [ends], [out], [at]]) => {
                let answer = ServerAnswer {
                    units: *units,
                    ends: *ends,
                    out: *out,
                    at: *at,
                };
                replayed.granted += units;
                replayed.answers += 1;
                ended = Some(self.receive(answer, step)?);
            }
            ("give-up", []) => {
                let call = self.pending.take();
                ended = Some(call.ok_or("no call to give up")?);
                kept(&self.grants, &step.after)?;
            }
            _ => return Err("no action".into()),
        }
        self.grants.clone_from(&step.after);
        Ok(ended)
    }

    fn spend(&self, units: u64, step: &Step<'_>) -> Result<(), String> {
        let mut spent = 0;
        for (before, after) in pairs(&self.grants, &step.after)? {
            let used = before.left.checked_sub(after.left);
            if used.is_none() || used != after.spent.checked_sub(before.spent) {
                return Err("units come from nowhere".into());
            }
            if used > Some(0) && step.now >= before.until {
                return Err("units are spent after their end".into());
            }
            spent += used.unwrap_or_default();
        }
        if spent != units {
            return Err(format!("{spent} units are spent instead of {units}"));
        }
        Ok(())
    }

    /// Each unit is reported once: as spent, or as returned with all others of its grant.
    fn ask(&mut self, want: u64, reports: Vec<[u64; 3]>, step: &Step<'_>) -> Result<(), String> {
        if self.pending.is_some() {
            return Err("a call is on its way".into());
        }
        let mut open: VecDeque<_> = reports.iter().copied().collect();
        let mut after = step.after.iter().peekable();
        for grant in &self.grants {
            let report = open.front().copied().filter(|[ends, spent, returned]| {
                *ends == grant.ends && *spent == grant.spent && [0, grant.left].contains(returned)
            });
            let returned = report.map_or(0, |[_, _, returned]| returned);
            if report.is_some() && grant.spent + returned > 0 {
                open.pop_front();
            }
            let rest = Grant {
                left: grant.left - returned,
                spent: 0,
                ..*grant
            };
            let is_kept = after.next_if(|next| **next == rest).is_some();
            if is_kept && report.is_none() && grant.spent > 0 {
                return Err("spent units are not reported".into());
            }
        }
        if !open.is_empty() {
            return Err("units are reported that it does not have".into());
        }
        if after.next().is_some() {
            return Err("a grant comes from nowhere".into());
        }
        self.pending = Some(Call {
            want,
            reports,
            answer: None,
        });
        Ok(())
    }

    fn receive(&mut self, answer: ServerAnswer, step: &Step<'_>) -> Result<Call, String> {
        let mut call = self.pending.take().ok_or("no call to answer")?;
        if answer.units > call.want {
            return Err(format!("{} are granted of {}", answer.units, call.want));
        }
        let mut before = step.after.clone();
        if answer.units > 0 {
            let granted = before.pop().ok_or("the grant is missing")?;
            if (granted.ends, granted.left, granted.spent) != (answer.ends, answer.units, 0) {
                return Err("the grant is not that of the answer".into());
            }
        }
        kept(&self.grants, &before)?;
        call.answer = Some(answer);
        Ok(call)
    }
}

/// Returns each grant that is still there with what it was before. Others have ended or are lost.
fn pairs(before: &[Grant], after: &[Grant]) -> Result<Vec<(Grant, Grant)>, String> {
    let mut earlier = before.iter();
    let found = after.iter().map(|grant| {
        let was = earlier.find(|was| was.ends == grant.ends && was.until == grant.until);
        was.map(|was| (*was, *grant))
    });
    let pairs = found.collect::<Option<_>>();
    pairs.ok_or_else(|| "a grant comes from nowhere".into())
}

/// Checks that no grant has changed, though some may be gone.
fn kept(before: &[Grant], after: &[Grant]) -> Result<(), String> {
    let pairs = pairs(before, after)?;
    if pairs.iter().all(|(before, after)| before == after) {
        Ok(())
    } else {
        Err("a grant has changed".into())
    }
}

/// Checks what the server answered about one key, in the order of its clock.
///
/// At an answer, units are out that were granted up to then, end later, and were not reported by
/// calls that were handled. A call with a later answer was handled later; one without may have been
/// handled at any time, or never. Calls of the same instant may come in any order.
fn check_server(calls: &[Call], share: u64) -> Result<(), String> {
    for this in calls.iter().filter_map(|call| call.answer) {
        let (mut least, mut most) = (BTreeMap::<u64, u64>::new(), 0);
        let mut reported = BTreeMap::<u64, u64>::new();
        for call in calls {
            let granted = call.answer.filter(|answer| answer.at <= this.at);
            let is_before = call.answer.is_none_or(|answer| answer.at <= this.at);
            if let Some(answer) = granted.filter(|answer| answer.ends > this.at) {
                *least.entry(answer.ends).or_default() += answer.units;
                most += answer.units;
            } else if call.answer.is_none() {
                most += call.want;
            }
            for [ends, spent, returned] in call.reports.iter().filter(|_| is_before) {
                *reported.entry(*ends).or_default() += spent + returned;
            }
        }
        let known = |(ends, units): (&u64, &u64)| {
            units.saturating_sub(reported.get(ends).copied().unwrap_or_default())
        };
        let least: u64 = least.iter().map(known).sum();
        if this.out < least || this.out > most {
            let out = this.out;
            return Err(format!(
                "{out} units are out, not {least} to {most}, at {}",
                this.at
            ));
        }
        if this.out > share {
            return Err(format!("{} units are out of {share}", this.out));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two instances. The first spends 3 of 8 units and gives the others back; a call of the second
    /// one has no answer.
    fn traces() -> LeaseTraces {
        let lines = |text: &str| text.lines().map(str::to_owned).collect();
        LeaseTraces {
            instances: vec![
                lines(
                    "k 10 ask 8 |
k 20 receive 8 1000 8 500 | 1000:400:8:0
k 30 spend 2 | 1000:400:6:2
k 40 spend 1 | 1000:400:5:3
k 50 ask 4 1000:3:5 |
k 60 receive 2 1100 6 540 | 1100:450:2:0",
                ),
                lines(
                    "k 11 ask 4 |
k 22 receive 4 1000 12 502 | 1000:411:4:0
k 33 spend 4 | 1000:411:0:4
k 44 ask 3 1000:4:0 |
k 0 give-up |",
                ),
            ],
        }
    }

    #[test]
    fn a_trace_of_the_protocol_is_replayed() {
        let expected = ReplayedLeases {
            spent: 7,
            calls: 4,
            answers: 3,
            granted: 14,
            returned: 5,
        };
        assert_eq!(traces().replay(12), Ok(expected));
    }

    #[test]
    fn a_planted_event_is_found() {
        for (instance, line, planted, wrong) in [
            (
                0,
                2,
                "k 30 spend 3 | 1000:400:6:2",
                "2 units are spent instead of 3",
            ),
            (
                0,
                2,
                "k 30 spend 2 | 1000:400:7:2",
                "units come from nowhere",
            ),
            (
                0,
                2,
                "k 400 spend 2 | 1000:400:6:2",
                "units are spent after their end",
            ),
            (
                0,
                4,
                "k 50 ask 4 1000:3:4 |",
                "units are reported that it does not have",
            ),
            (
                0,
                4,
                "k 50 ask 4 1000:2:5 |",
                "units are reported that it does not have",
            ),
            (
                0,
                4,
                "k 50 ask 4 | 1000:400:5:0",
                "spent units are not reported",
            ),
            (0, 5, "k 60 ask 4 |", "a call is on its way"),
            (
                0,
                5,
                "k 60 receive 5 1100 9 540 | 1100:450:5:0",
                "5 are granted of 4",
            ),
            (
                0,
                5,
                "k 60 receive 2 1100 6 540 | 1100:450:3:0",
                "the grant is not that",
            ),
            (
                0,
                5,
                "k 60 receive 2 1100 1 540 | 1100:450:2:0",
                "1 units are out, not 2 to",
            ),
            (
                1,
                1,
                "k 22 receive 4 1000 13 502 | 1000:411:4:0",
                "13 units are out of 12",
            ),
            (
                1,
                1,
                "k 22 receive 4 1000 16 502 | 1000:411:4:0",
                "16 units are out, not 8 to",
            ),
            (
                1,
                4,
                "k 0 give-up | 1000:411:4:0",
                "a grant comes from nowhere",
            ),
            (1, 4, "k 0 forget |", "no action"),
        ] {
            let mut traces = traces();
            traces.instances[instance][line] = planted.into();
            let found = traces.replay(12).unwrap_err();
            assert!(found.starts_with(wrong), "{planted}: {found}");
        }
    }
}
