//! Shares of a limit that identities have reached: each is reported once by all instances together.
//!
//! A store decides all requests on a counter one after the other, so one decision takes the use of a
//! band from below a share to it. Such a decision always reports the share, unless a later one,
//! which found the use there, has already done so: that is what the times of decisions are for.
//! Any other decision reports it only if none has: the use may have come there without a decision,
//! or the report was lost.
//!
//! A report and its event are written together, so that an instance that is killed loses neither
//! without the other. Only on a cluster, where they are in different hash slots, the event follows.
//! A report carries a random token, by which a repeated one is recognized: if its reply was lost,
//! it is repeated.

use std::time::Duration;

use fluxgate_core::store::{Micros, Subject};
use fluxgate_core::{StoreError, Timestamp};
use redis::{Cmd, FromRedisValue, Value};
use tokio::time::Instant;

use super::{EventLog, KEEP_EVENTS, MAX_EVENTS, WHAT, millis};
use crate::error::unexpected;
use crate::keys::KeyNaming;
use crate::servers::COMMAND_TIMEOUT;

const TELL: &str = include_str!("../lua/tell_shares.lua");
/// A report is remembered for at least this long, so that slow writers find it.
const LEAST_KEPT: Duration = Duration::from_secs(2);
/// How many reports one call of the script has at most, so that decisions wait only briefly.
const MAX_REPORTS: usize = 64;

/// What a decision says about a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShareState {
    /// It took the use to the share. If the use was seen there within `gap` before, it has not
    /// fallen in between.
    Reached {
        /// Zero where the use falls only when units are returned or a window ends. A bucket falls
        /// below its limit whenever a unit refills, even if it is hammered.
        gap: Duration,
    },
    /// It found the use there.
    Above,
    /// It found the use below. Nothing is reported, and earlier reports are forgotten.
    Below,
}

/// A share of a band that a decision has reached, or found reached.
#[derive(Clone, Copy, Debug)]
pub struct ShareReport<'a> {
    /// The rule and the identity.
    pub subject: Subject<'a>,
    /// Names the band and the share.
    pub share: &'a str,
    /// What the decision says about it.
    pub state: ShareState,
    /// When the decision was made, by the server's clock.
    pub at: Timestamp,
    /// The time until the band is full again.
    pub reset_after: Micros,
    /// The same if the report is repeated, and different for all others.
    pub token: &'a str,
    /// The event to append.
    pub event: &'a str,
}

impl EventLog {
    /// Reports shares and appends the events of those that have not been reported before. Returns
    /// for each whether its event was appended. Repeat the reports if it fails.
    pub async fn report_shares(
        &self,
        reports: &[ShareReport<'_>],
    ) -> Result<Vec<bool>, StoreError> {
        let deadline = Instant::now() + COMMAND_TIMEOUT;
        let mut told = Vec::with_capacity(reports.len());
        if self.servers().is_cluster(deadline).await? {
            for report in reports {
                told.push(self.report_on_cluster(report).await?);
            }
            return Ok(told);
        }
        for reports in reports.chunks(MAX_REPORTS) {
            let tell = self.tell_command(reports, true);
            let replies: Vec<u8> = self.run(&tell).await?;
            if replies.len() != reports.len() {
                return Err(unexpected(WHAT));
            }
            told.extend(replies.iter().map(|reply| *reply > 0));
        }
        Ok(told)
    }

    async fn report_on_cluster(&self, report: &ShareReport<'_>) -> Result<bool, StoreError> {
        let tell = self.tell_command(&[*report], false);
        let reply: Vec<u8> = self.run_at(&tell, report.subject).await?;
        // It may have been told by an earlier try, whose event was not appended.
        let is_told = reply.first().is_some_and(|reply| *reply > 0);
        if is_told {
            self.append(&[report.event.to_owned()]).await?;
        }
        Ok(is_told)
    }

    /// Forgets what was reported about all identities of a rule.
    pub async fn forget_shares_of_rule(&self, rule: Subject<'_>) -> Result<(), StoreError> {
        let pattern = self.decider.naming.told_pattern(rule);
        self.servers().unlink_matching(&pattern).await.map(drop)
    }

    /// Returns the time of the server that has the counters of an identity.
    pub async fn time_at(&self, subject: Subject<'_>) -> Result<Timestamp, StoreError> {
        let (seconds, micros): (u64, u64) = self.run_at(&redis::cmd("TIME"), subject).await?;
        let micros = seconds.saturating_mul(1_000_000).saturating_add(micros);
        Timestamp::from_micros(micros).ok_or_else(|| unexpected(WHAT))
    }

    fn tell_command(&self, reports: &[ShareReport<'_>], with_log: bool) -> Cmd {
        let mut tell = redis::cmd("EVAL");
        tell.arg(TELL).arg(reports.len() + usize::from(with_log));
        if with_log {
            tell.arg(&self.log);
        }
        for report in reports {
            tell.arg(told_key(&self.decider.naming, report.subject));
        }
        tell.arg(u8::from(with_log));
        tell.arg(MAX_EVENTS).arg(millis(KEEP_EVENTS));
        for report in reports {
            let kept = report.reset_after.as_duration().max(LEAST_KEPT);
            let state = match report.state {
                ShareState::Reached { gap } => gap.as_micros().to_string(),
                ShareState::Above => "above".into(),
                ShareState::Below => "below".into(),
            };
            tell.arg(report.share).arg(state).arg(report.at.micros());
            tell.arg(millis(kept)).arg(report.token).arg(report.event);
        }
        tell
    }

    async fn run_at<T: FromRedisValue>(
        &self,
        command: &Cmd,
        subject: Subject<'_>,
    ) -> Result<T, StoreError> {
        let key = told_key(&self.decider.naming, subject);
        let deadline = Instant::now() + COMMAND_TIMEOUT;
        let operation = crate::node::Operation::Command(command);
        let reply: Value = self.servers().perform(operation, &key, deadline).await?;
        redis::from_redis_value(reply).map_err(|_| unexpected(WHAT))
    }
}

fn told_key(naming: &KeyNaming, subject: Subject<'_>) -> Vec<u8> {
    let mut key = Vec::new();
    naming.write_told_subject(subject, &mut key);
    key
}
