//! `CL.THROTTLE key max_burst count period [quantity]`, compatible with redis-cell.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use fluxgate_core::store::Retry;
use fluxgate_core::{AdHocDecision, AdHocKey, Band};
use fluxgate_http::server::{Listener, Origin};

use super::reply::{CommandError, Replies};
use super::request::parse_integer;
use crate::engine::{Engine, ThrottleParameters};

/// How many calls run at once.
const MAX_CALLS: usize = 64;

/// A parsed command.
#[derive(Clone, Debug)]
pub(super) struct Throttle<'a> {
    /// The key that is charged.
    key: &'a [u8],
    band: Arc<Band>,
    quantity: u64,
}

/// The decision about a [`Throttle`].
#[derive(Clone, Copy, Debug)]
pub(super) struct ThrottleDecision {
    limit: u64,
    decision: AdHocDecision,
}

impl<'a> Throttle<'a> {
    /// Parses the arguments. The first is the command's name.
    pub(super) fn parse(
        arguments: &[&'a [u8]],
        limits: &mut LimitCache,
    ) -> Result<Self, CommandError> {
        let (key, numbers, quantity) = match *arguments {
            [_, key, max_burst, count, period] => (key, [max_burst, count, period], None),
            [_, key, max_burst, count, period, quantity] => {
                (key, [max_burst, count, period], Some(quantity))
            }
            _ => return Err(CommandError::arguments("cl.throttle")),
        };
        let [max_burst, count, period] = numbers;
        let numbers = ThrottleParameters {
            max_burst: number("max_burst", max_burst)?,
            count: number("count", count)?,
            period: number("period", period)?,
        };
        let quantity = match quantity {
            None => 1,
            Some(quantity) => {
                let quantity = number("quantity", quantity)?;
                u64::try_from(quantity)
                    .map_err(|_| CommandError::new("ERR quantity must not be negative"))?
            }
        };
        Ok(Self {
            key,
            band: limits.band(numbers)?,
            quantity,
        })
    }

    #[inline]
    pub(super) async fn decide(&self, engine: &Engine) -> ThrottleDecision {
        let key = AdHocKey::key(self.key);
        let origin = Origin::of(Listener::Resp);
        let decision = engine.take(&key, &self.band, self.quantity, &origin);
        ThrottleDecision {
            limit: self.band.limit().capacity(),
            decision: decision.await,
        }
    }
}

impl ThrottleDecision {
    /// Writes whether the command was limited, the limit, the remaining units, the seconds
    /// until the same command would be allowed (-1 if it was allowed or never will be), and
    /// the seconds until the limit is full.
    ///
    /// If the store failed, the remaining units and the last number are unknown: -1. This
    /// is better than an error reply: clients of redis-cell that read only the first number
    /// still follow `on_error`.
    #[inline]
    pub(super) fn write(&self, replies: &mut Replies<'_>) {
        let decision = &self.decision;
        replies.array(5);
        replies.integer(u8::from(!decision.allowed));
        replies.integer(self.limit);
        match decision.remaining {
            Some(remaining) => replies.integer(remaining),
            None => replies.integer(-1),
        }
        match decision.retry_after {
            Retry::After(wait) if !decision.allowed => replies.integer(wait.ceil_secs()),
            Retry::After(_) | Retry::Never => replies.integer(-1),
        }
        match decision.remaining {
            Some(_) => replies.integer(decision.reset_after.ceil_secs()),
            None => replies.integer(-1),
        }
    }
}

/// Decisions that are not yet written, in the order of the commands.
///
/// Calls with different keys are independent, so they run concurrently. A call whose key is in use
/// waits for the earlier calls, so each key is charged in the order of the commands.
#[derive(Default)]
pub(super) struct PendingDecisions<'a>(Vec<PendingEntry<'a>>);

struct PendingEntry<'a> {
    key: &'a [u8],
    decision: DecisionState<'a>,
}

enum DecisionState<'a> {
    Pending(Pin<Box<dyn Future<Output = ThrottleDecision> + Send + 'a>>),
    Ready(ThrottleDecision),
}

impl<'a> PendingDecisions<'a> {
    /// Adds a command. Its call starts with the next [`finish`](Self::finish).
    pub(super) async fn push(
        &mut self,
        throttle: Throttle<'a>,
        engine: &'a Engine,
        replies: &mut Replies<'_>,
    ) {
        let key = throttle.key;
        if self.0.len() == MAX_CALLS || self.0.iter().any(|other| other.key == key) {
            self.finish(replies).await;
        }
        let decision = Box::pin(async move { throttle.decide(engine).await });
        self.0.push(PendingEntry {
            key,
            decision: DecisionState::Pending(decision),
        });
    }

    /// Waits for all decisions and writes them.
    pub(super) async fn finish(&mut self, replies: &mut Replies<'_>) {
        if self.0.is_empty() {
            return;
        }
        poll_fn(|cx| {
            let mut all_ready = true;
            for PendingEntry { decision, .. } in &mut self.0 {
                if let DecisionState::Pending(pending) = decision {
                    match pending.as_mut().poll(cx) {
                        Poll::Ready(decided) => *decision = DecisionState::Ready(decided),
                        Poll::Pending => all_ready = false,
                    }
                }
            }
            if all_ready {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
        for PendingEntry { decision, .. } in self.0.drain(..) {
            if let DecisionState::Ready(decided) = decision {
                decided.write(replies);
            }
        }
    }
}

/// The limits that a connection used recently. Creating one takes longer than using it.
#[derive(Debug, Default)]
pub(super) struct LimitCache {
    entries: Vec<(ThrottleParameters, Arc<Band>)>,
    /// The entry that the next new limit replaces.
    oldest: usize,
}

impl LimitCache {
    const CAPACITY: usize = 8;

    #[inline]
    fn band(&mut self, numbers: ThrottleParameters) -> Result<Arc<Band>, CommandError> {
        let mut entries = self.entries.iter();
        match entries.find(|(cached, _)| *cached == numbers) {
            Some((_, band)) => Ok(Arc::clone(band)),
            None => self.add(numbers),
        }
    }

    #[cold]
    fn add(&mut self, numbers: ThrottleParameters) -> Result<Arc<Band>, CommandError> {
        let band = numbers.band();
        let band = Arc::new(band.map_err(|error| CommandError::new(format!("ERR {error}")))?);
        let entry = (numbers, Arc::clone(&band));
        if self.entries.len() < Self::CAPACITY {
            self.entries.push(entry);
        } else {
            self.entries[self.oldest] = entry;
            self.oldest = (self.oldest + 1) % Self::CAPACITY;
        }
        Ok(band)
    }
}

#[inline]
fn number(name: &str, text: &[u8]) -> Result<i64, CommandError> {
    parse_integer(text).ok_or_else(|| not_an_integer(name))
}

#[cold]
fn not_an_integer(name: &str) -> CommandError {
    CommandError::new(format!(
        "ERR value is not an integer or out of range: {name}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<(u64, u64), String> {
        let arguments: Vec<_> = text.split(' ').map(str::as_bytes).collect();
        let throttle = Throttle::parse(&arguments, &mut LimitCache::default())
            .map_err(|error| error.to_string())?;
        Ok((throttle.band.limit().capacity(), throttle.quantity))
    }

    #[test]
    fn arguments_are_parsed() {
        assert_eq!(parse("t k 15 30 60"), Ok((16, 1)));
        assert_eq!(parse("t k 0 1 1 0"), Ok((1, 0)));
        assert_eq!(
            parse("t k 999999999 1000000000 31622400 7"),
            Ok((1_000_000_000, 7))
        );
    }

    #[test]
    fn errors_name_the_argument() {
        for (text, error) in [
            ("t k -1 1 1", "ERR max_burst must be from 0 to 999999999"),
            (
                "t k 1000000000 1 1",
                "ERR max_burst must be from 0 to 999999999",
            ),
            ("t k 1 0 1", "ERR count must be from 1 to 1000000000"),
            ("t k 1 1 0", "ERR period must be from 1 to 31622400"),
            ("t k 1 1 31622401", "ERR period must be from 1 to 31622400"),
            ("t k 1 1 1 -1", "ERR quantity must not be negative"),
            (
                "t k 1 x 1",
                "ERR value is not an integer or out of range: count",
            ),
            (
                "t k 1 1 99999999999999999999",
                "ERR value is not an integer or out of range: period",
            ),
            (
                "t k 10 1 31622400",
                "ERR (max_burst + 1) * period / count must be at most 316224000 seconds",
            ),
            (
                "t k 1 1 1 1 1",
                "ERR wrong number of arguments for 'cl.throttle' command",
            ),
        ] {
            assert_eq!(parse(text), Err(error.to_owned()), "{text}");
        }
    }

    #[test]
    fn the_cache_is_bounded_and_returns_the_right_limit() {
        let mut limits = LimitCache::default();
        for round in 0..3 {
            for max_burst in 0..20 {
                let numbers = ThrottleParameters {
                    max_burst,
                    count: 1,
                    period: 1,
                };
                let band = limits.band(numbers).unwrap();
                let capacity = u64::try_from(max_burst).unwrap() + 1;
                assert_eq!(band.limit().capacity(), capacity, "{round}");
            }
        }
        assert_eq!(limits.entries.len(), LimitCache::CAPACITY);
    }
}
