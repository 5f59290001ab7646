//! The log of events that all instances share, the shares that have been reported, and the queues
//! that send events.
//!
//! | key | value |
//! |---|---|
//! | `<prefix>:1:{events}:log` | a stream with the JSON of each event under `e` |
//! | `<prefix>:1:{events}:topic:<name>` | the last value of a topic, for events that several instances notice |
//! | `<prefix>:1:{events}:queue:<name>` | a hash: who sends the events of a queue, until when, and the last that was sent |
//! | `<prefix>:2:told:{...}` | a hash, in the hash slot of an identity's counters: the shares of its bands that were reported |
//!
//! Nothing of it is on the path of a decision. Every key expires: the log after a week without
//! events, what was reported once the use is below it, and queues after a month without a sender.

mod shares;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use fluxgate_core::StoreError;
use redis::{Cmd, FromRedisValue};

pub use shares::{ShareReport, ShareState};

use crate::decider::Decider;
use crate::error::unexpected;
use crate::servers::Servers;

/// About how many events are kept.
pub const MAX_EVENTS: usize = 100_000;
/// How long events are kept if no other comes.
const KEEP_EVENTS: Duration = Duration::from_secs(7 * 86_400);
/// How long a queue is kept without a sender.
const KEEP_QUEUE: Duration = Duration::from_secs(30 * 86_400);
const APPEND: &str = include_str!("lua/append_events.lua");
const QUEUE: &str = include_str!("lua/event_queue.lua");

/// The log of events of all instances that share a store.
#[derive(Clone, Debug)]
pub struct EventLog {
    decider: Arc<Decider>,
    log: String,
    topic: String,
    queue: String,
}

/// The id of an event: when it was appended, in milliseconds, and its number within that. Later
/// events have greater ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId {
    /// Milliseconds since 1970 by the server's clock, or later if the clock went back.
    pub ms: u64,
    /// Tells apart the events of one millisecond.
    pub number: u64,
}

/// A text that is not an [`EventId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the id of an event is two whole numbers, such as 1700000000000-0")]
pub struct InvalidEventId;

impl EventId {
    /// Returns the least id after this one.
    pub fn next(self) -> Self {
        match self.number.checked_add(1) {
            Some(number) => Self { number, ..self },
            None => Self {
                ms: self.ms.saturating_add(1),
                number: 0,
            },
        }
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.number)
    }
}

impl FromStr for EventId {
    type Err = InvalidEventId;

    fn from_str(text: &str) -> Result<Self, InvalidEventId> {
        let number = |digits: &str| {
            let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
            digits.parse().ok().filter(|_| is_number)
        };
        let (ms, of_ms) = text.split_once('-').ok_or(InvalidEventId)?;
        match (number(ms), number(of_ms)) {
            (Some(ms), Some(number)) => Ok(Self { ms, number }),
            _ => Err(InvalidEventId),
        }
    }
}

/// An event of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedEvent {
    /// Its id.
    pub id: EventId,
    /// Its text, as it was appended.
    pub text: String,
}

/// An entry of a stream: its id, and fields with values.
type StreamEntry = (String, Vec<String>);

impl EventLog {
    pub(crate) fn new(decider: Arc<Decider>) -> Self {
        let prefix = &decider.naming.prefix;
        Self {
            log: format!("{prefix}:1:{{events}}:log"),
            topic: format!("{prefix}:1:{{events}}:topic:"),
            queue: format!("{prefix}:1:{{events}}:queue:"),
            decider,
        }
    }

    /// Appends events together. Returns their ids.
    pub async fn append(&self, events: &[String]) -> Result<Vec<EventId>, StoreError> {
        self.append_with_topic(None, "", events).await
    }

    /// Appends an event that several instances notice, or that may be appended a second time: only
    /// if `value` differs from that of the last event of the topic. Returns whether it was appended.
    pub async fn append_once(
        &self,
        topic: &str,
        value: &str,
        event: String,
    ) -> Result<bool, StoreError> {
        let ids = self.append_with_topic(Some(topic), value, &[event]).await?;
        Ok(!ids.is_empty())
    }

    async fn append_with_topic(
        &self,
        topic: Option<&str>,
        value: &str,
        events: &[String],
    ) -> Result<Vec<EventId>, StoreError> {
        let mut append = redis::cmd("EVAL");
        append.arg(APPEND).arg(1 + usize::from(topic.is_some()));
        append.arg(&self.log);
        append.arg(topic.map(|topic| format!("{}{topic}", self.topic)));
        append.arg(MAX_EVENTS).arg(millis(KEEP_EVENTS));
        append.arg(value).arg(events);
        let ids: Vec<String> = self.run(&append).await?;
        ids.iter().map(|id| read_id(id)).collect()
    }

    /// Returns up to `most` of the events after an id, the oldest first.
    pub async fn read_after(
        &self,
        after: EventId,
        most: usize,
    ) -> Result<Vec<LoggedEvent>, StoreError> {
        let mut read = redis::cmd("XRANGE");
        read.arg(&self.log).arg(after.next().to_string());
        read.arg("+").arg("COUNT").arg(most);
        events_of(self.run(&read).await?)
    }

    /// Returns the last `most` events, the oldest first.
    pub async fn last(&self, most: usize) -> Result<Vec<LoggedEvent>, StoreError> {
        let mut read = redis::cmd("XREVRANGE");
        read.arg(&self.log).arg("+").arg("-").arg("COUNT").arg(most);
        let mut events = events_of(self.run(&read).await?)?;
        events.reverse();
        Ok(events)
    }

    /// Claims a queue for `holder`, or extends its claim, for `span`. Returns the id of the last
    /// event that was sent, or `None` while another holder has the queue. A new queue begins
    /// `age` before now.
    pub async fn claim_queue(
        &self,
        name: &str,
        holder: &str,
        span: Duration,
        age: Duration,
    ) -> Result<Option<EventId>, StoreError> {
        let age = millis(age).to_string();
        self.queue(name, ["claim", holder], span, &age).await
    }

    /// Records the last event that was sent, and extends the claim. Returns whether `holder` still
    /// has the queue; otherwise nothing is recorded.
    pub async fn advance_queue(
        &self,
        name: &str,
        holder: &str,
        span: Duration,
        sent: EventId,
    ) -> Result<bool, StoreError> {
        let sent = sent.to_string();
        let advanced = self.queue(name, ["advance", holder], span, &sent).await?;
        Ok(advanced.is_some())
    }

    /// Ends a claim, so that another instance can take over at once.
    pub async fn release_queue(&self, name: &str, holder: &str) -> Result<(), StoreError> {
        let release = self.queue_command(name, ["release", holder], Duration::ZERO, "");
        self.run::<redis::Value>(&release).await.map(drop)
    }

    async fn queue(
        &self,
        name: &str,
        operation: [&str; 2],
        span: Duration,
        argument: &str,
    ) -> Result<Option<EventId>, StoreError> {
        let command = self.queue_command(name, operation, span, argument);
        let position: Option<String> = self.run(&command).await?;
        position.map(|id| read_id(&id)).transpose()
    }

    fn queue_command(
        &self,
        name: &str,
        [operation, holder]: [&str; 2],
        span: Duration,
        argument: &str,
    ) -> Cmd {
        let mut command = redis::cmd("EVAL");
        command
            .arg(QUEUE)
            .arg(1)
            .arg(format!("{}{name}", self.queue));
        command.arg(operation).arg(holder).arg(millis(span));
        command.arg(millis(KEEP_QUEUE)).arg(argument);
        command
    }

    fn servers(&self) -> &Servers {
        &self.decider.servers
    }

    async fn run<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, StoreError> {
        self.servers().command(command, &self.log, WHAT).await
    }
}

const WHAT: &str = "a command on the event log";

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn read_id(id: &str) -> Result<EventId, StoreError> {
    id.parse().map_err(|_| unexpected(WHAT))
}

fn events_of(entries: Vec<StreamEntry>) -> Result<Vec<LoggedEvent>, StoreError> {
    let events = entries.into_iter().map(|(id, fields)| {
        let id = read_id(&id)?;
        let mut fields = fields.into_iter();
        // Another version may write other fields, too.
        while let (Some(name), Some(text)) = (fields.next(), fields.next()) {
            if name == "e" {
                return Ok(LoggedEvent { id, text });
            }
        }
        Err(unexpected(WHAT))
    });
    events.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_ordered_and_read_as_they_are_written() {
        let id = |ms, number| EventId { ms, number };
        for id in [id(0, 0), id(1_700_000_000_000, 12), id(u64::MAX, u64::MAX)] {
            assert_eq!(id.to_string().parse(), Ok(id));
        }
        for bad in [
            "",
            "1",
            "1-",
            "-1",
            "1-2-3",
            "+1-0",
            "1-0x",
            "99999999999999999999-0",
        ] {
            assert_eq!(bad.parse::<EventId>(), Err(InvalidEventId), "{bad:?}");
        }
        assert!(id(2, 0) > id(1, 9) && id(1, 9) < id(1, 10));
        assert_eq!(id(1, 9).next(), id(1, 10));
        assert_eq!(id(1, u64::MAX).next(), id(2, 0));
    }
}
