//! What happened, as it is logged and sent.

use std::fmt;
use std::time::Duration;

use fluxgate_core::Percent;
use fluxgate_redis::{EventId, LoggedEvent};
use serde::Serialize;

use crate::config::EventKind;

/// What happened.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Happening {
    Threshold(Threshold),
    Rules(RulesChange),
    Settings(SettingsChange),
    Store(StoreChange),
    Upstream(UpstreamChange),
    Login(WrongTokens),
}

/// An identity has used a share of a limit.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Threshold {
    pub(crate) rule_set: Box<str>,
    pub(crate) rule: Box<str>,
    pub(crate) band: Box<str>,
    /// As logs show it.
    pub(crate) identity: String,
    pub(crate) handle: Option<String>,
    /// In percent.
    pub(crate) share: Share,
    pub(crate) limit: u64,
    pub(crate) reset_after_ms: u64,
}

/// A share in percent, as a number in JSON.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share(pub(crate) Percent);

/// The rules of an instance or of all have changed, or new ones were refused.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RulesChange {
    pub(crate) action: RulesAction,
    /// The set, if only one has changed.
    pub(crate) rule_set: Option<String>,
    /// The name of the token; `None` if the change did not come through the API.
    pub(crate) who: Option<String>,
    /// Of the rules that are active afterwards, if it is known.
    pub(crate) revision: Option<String>,
    /// What has changed, or why it was refused.
    pub(crate) details: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RulesAction {
    Applied,
    Refused,
    RolledBack,
}

/// The settings of the config that change with the rules have changed.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SettingsChange {
    pub(crate) action: RulesAction,
    /// What has changed.
    pub(crate) details: String,
}

/// The store of an instance has failed, or answers again.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct StoreChange {
    pub(crate) state: StoreState,
    /// Why it failed, as in `fluxgate_store_errors_total`.
    pub(crate) reason: Option<&'static str>,
    /// For how long it has failed.
    pub(crate) failed_for_ms: Option<u64>,
    /// The instance that noticed it.
    pub(crate) instance: String,
    pub(crate) hostname: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StoreState {
    Failed,
    Back,
}

/// An upstream of the gateway is out, or back.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct UpstreamChange {
    pub(crate) state: UpstreamState,
    pub(crate) route: String,
    pub(crate) upstream: String,
    pub(crate) reason: Option<String>,
    pub(crate) instance: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum UpstreamState {
    Out,
    Back,
}

/// An address has sent too many wrong tokens.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct WrongTokens {
    /// The address, or its network.
    pub(crate) address: String,
    pub(crate) instance: String,
}

/// An event as JSON, without its id.
#[derive(Serialize)]
struct Entry<'e> {
    at_ms: u64,
    kind: &'static str,
    text: String,
    #[serde(flatten)]
    happening: &'e Happening,
}

impl Happening {
    pub(crate) fn kind(&self) -> EventKind {
        match self {
            Self::Threshold(_) => EventKind::Threshold,
            Self::Rules(_) | Self::Settings(_) => EventKind::Rules,
            Self::Store(_) => EventKind::Store,
            Self::Upstream(_) => EventKind::Upstream,
            Self::Login(_) => EventKind::Login,
        }
    }

    /// Returns the event as JSON, without its id, which the log assigns.
    pub(crate) fn to_json(&self, at: Duration) -> String {
        let entry = Entry {
            at_ms: at.as_millis() as u64,
            kind: self.kind().name(),
            text: self.to_string(),
            happening: self,
        };
        // Texts and numbers can always be written.
        serde_json::to_string(&entry).unwrap_or_default()
    }
}

/// Returns an event of the log with its id as the first field.
pub(crate) fn with_id(event: &LoggedEvent) -> String {
    json_with_id(Some(event.id), &event.text)
}

/// Returns the JSON of an event with its id as the first field; `null` if the log has none for it
/// yet.
pub(crate) fn json_with_id(id: Option<EventId>, text: &str) -> String {
    let fields = text.strip_prefix('{').unwrap_or(text);
    match id {
        Some(id) => format!("{{\"id\":\"{id}\",{fields}"),
        None => format!("{{\"id\":null,{fields}"),
    }
}

/// Returns the kind of an event of the log. Newer instances may write kinds that this one does not
/// know.
pub(crate) fn kind_of(text: &str) -> Option<EventKind> {
    #[derive(serde::Deserialize)]
    struct Kind<'k> {
        kind: &'k str,
    }
    let kind: Kind<'_> = serde_json::from_str(text).ok()?;
    EventKind::ALL.into_iter().find(|it| it.name() == kind.kind)
}

impl Serialize for Share {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let hundredths = self.0.hundredths();
        if hundredths.is_multiple_of(100) {
            return serializer.serialize_u16(hundredths / 100);
        }
        // Exact to two decimals.
        let text = self.0.to_string();
        let number = text.trim_end_matches('%').parse();
        serializer.serialize_f64(number.unwrap_or_default())
    }
}

impl fmt::Display for Happening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Threshold(it) => it.fmt(f),
            Self::Rules(it) => it.fmt(f),
            Self::Settings(it) => write!(f, "the config was changed: {}", it.details),
            Self::Store(it) => it.fmt(f),
            Self::Upstream(it) => it.fmt(f),
            Self::Login(it) => write!(
                f,
                "{} sent 10 wrong tokens within a minute, and is refused for a minute",
                it.address
            ),
        }
    }
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            rule_set,
            rule,
            band,
            identity,
            share: Share(share),
            limit,
            reset_after_ms,
            ..
        } = self;
        let resets = InWords(Duration::from_millis(*reset_after_ms));
        write!(
            f,
            "{identity} has used {share} of the limit of {limit} of rule {rule_set}/{rule} \
             (band {band}), which resets in {resets}"
        )
    }
}

impl fmt::Display for RulesChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.rule_set {
            Some(set) => write!(f, "rule set {set} ")?,
            None => f.write_str("the rules ")?,
        }
        let is_one = self.rule_set.is_some();
        f.write_str(match (self.action, is_one) {
            (RulesAction::Applied, true) => "was changed",
            (RulesAction::Applied, false) => "were changed",
            (RulesAction::RolledBack, true) => "was rolled back",
            (RulesAction::RolledBack, false) => "were rolled back",
            (RulesAction::Refused, true) => "was not changed",
            (RulesAction::Refused, false) => "were not changed",
        })?;
        match (&self.who, self.action) {
            (Some(who), RulesAction::Refused) => {
                write!(f, ", because a change by {who} was refused")?;
            }
            (None, RulesAction::Refused) => f.write_str(", because new rules were refused")?,
            (Some(who), _) => write!(f, " by {who}")?,
            (None, _) => {}
        }
        if self.details.is_empty() {
            return Ok(());
        }
        write!(f, ": {}", self.details)
    }
}

impl fmt::Display for StoreChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let instance = format_args!("instance {} on {}", self.instance, self.hostname);
        match (self.state, self.reason) {
            (StoreState::Failed, reason) => {
                let reason = reason.unwrap_or("unknown");
                write!(f, "the store fails for {instance} ({reason})")
            }
            (StoreState::Back, _) => {
                let failed = Duration::from_millis(self.failed_for_ms.unwrap_or_default());
                write!(
                    f,
                    "the store answers {instance} again, after {}",
                    InWords(failed)
                )
            }
        }
    }
}

impl fmt::Display for UpstreamChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            route, upstream, ..
        } = self;
        match self.state {
            UpstreamState::Out => write!(f, "upstream {upstream} of route {route} is out")?,
            UpstreamState::Back => write!(f, "upstream {upstream} of route {route} is back")?,
        }
        match &self.reason {
            Some(reason) => write!(f, ": {reason}"),
            None => Ok(()),
        }
    }
}

/// A span in at most two units, rounded up: `2 hours 24 minutes`.
struct InWords(Duration);

impl fmt::Display for InWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 4] = [
            (86_400, "day"),
            (3_600, "hour"),
            (60, "minute"),
            (1, "second"),
        ];
        let mut seconds = self.0.as_secs() + u64::from(self.0.subsec_nanos() > 0);
        let large = UNITS.iter().position(|(unit, _)| seconds >= *unit);
        let Some(large) = large else {
            return f.write_str("0 seconds");
        };
        // Rounded up to the smaller unit that is shown.
        let least = UNITS.get(large + 1).map_or(1, |(unit, _)| *unit);
        seconds = seconds.next_multiple_of(least);
        let mut separator = "";
        for (unit, name) in &UNITS[large.saturating_sub(1)..UNITS.len().min(large + 2)] {
            let count = seconds / unit;
            seconds %= unit;
            if count > 0 {
                let plural = if count == 1 { "" } else { "s" };
                write!(f, "{separator}{count} {name}{plural}")?;
                separator = " ";
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use fluxgate_core::store::Micros;

    use super::*;

    fn threshold(share: &str) -> Happening {
        Happening::Threshold(Threshold {
            rule_set: "api".into(),
            rule: "per-user".into(),
            band: "daily".into(),
            identity: "user=ann \"x\"".into(),
            handle: None,
            share: Share(share.parse().unwrap()),
            limit: 1000,
            reset_after_ms: Micros::new(8_640_000_001).ceil_millis(),
        })
    }

    #[test]
    fn an_event_is_one_object_with_a_sentence() {
        let json = threshold("80%").to_json(Duration::from_millis(1_700_000_000_123));
        let id = EventId { ms: 5, number: 1 };
        let json = json_with_id(Some(id), &json);
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        let expected = serde_json::json!({
            "id": "5-1",
            "at_ms": 1_700_000_000_123_u64,
            "kind": "threshold",
            "text": "user=ann \"x\" has used 80% of the limit of 1000 of rule api/per-user (band daily), which resets in 2 hours 25 minutes",
            "rule_set": "api",
            "rule": "per-user",
            "band": "daily",
            "identity": "user=ann \"x\"",
            "handle": null,
            "share": 80,
            "limit": 1000,
            "reset_after_ms": 8_640_001,
        });
        assert_eq!(value, expected);
        assert!(json.starts_with("{\"id\":\"5-1\",\"at_ms\":"));
        assert_eq!(kind_of(&json), Some(EventKind::Threshold));
        let share = |share| serde_json::to_value(threshold(share)).unwrap()["share"].clone();
        assert_eq!(share("99.5%"), 99.5);
        assert_eq!(share("0.01%"), 0.01);
    }

    #[test]
    fn a_change_of_rules_is_told_with_who_made_it_and_why_it_was_refused() {
        let text = |action, rule_set: Option<&str>, who: Option<&str>, details: &str| {
            let change = RulesChange {
                action,
                rule_set: rule_set.map(str::to_owned),
                who: who.map(str::to_owned),
                revision: None,
                details: details.into(),
            };
            change.to_string()
        };
        use RulesAction::{Applied, Refused, RolledBack};
        let (api, ops) = (Some("api"), Some("ops"));
        for (told, expected) in [
            (
                text(Applied, api, ops, "api/r added"),
                "rule set api was changed by ops: api/r added",
            ),
            (text(Applied, None, None, ""), "the rules were changed"),
            (
                text(RolledBack, api, ops, ""),
                "rule set api was rolled back by ops",
            ),
            (
                text(Refused, api, ops, "1:2: what is wrong"),
                "rule set api was not changed, because a change by ops was refused: \
                 1:2: what is wrong",
            ),
            (
                text(Refused, None, None, "a.yaml:1:2: what is wrong"),
                "the rules were not changed, because new rules were refused: \
                 a.yaml:1:2: what is wrong",
            ),
        ] {
            assert_eq!(told, expected);
        }
    }

    #[test]
    fn spans_have_at_most_two_units_and_are_rounded_up() {
        for (ms, words) in [
            (0, "0 seconds"),
            (1, "1 second"),
            (59_001, "1 minute"),
            (61_000, "1 minute 1 second"),
            (3_599_999, "1 hour"),
            (3_600_001, "1 hour 1 minute"),
            (86_399_000, "1 day"),
            (86_400_000 * 31 - 1, "31 days"),
            (86_400_000 + 3_600_000, "1 day 1 hour"),
        ] {
            let shown = InWords(Duration::from_millis(ms)).to_string();
            assert_eq!(shown, words, "{ms}");
        }
    }
}
