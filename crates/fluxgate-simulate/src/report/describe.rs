//! Rules and limits in a few words.

use fluxgate_core::{ActiveRule, Algorithm, Limit, RuleAction};

use super::conversion::{algorithm_name, has_own_refill};
use super::humanize::{duration, grouped};

/// Describes a rule: `token_bucket, 10 per 1 s and 100 per 1 min`.
pub(super) fn rule(rule: &ActiveRule) -> String {
    let text = if rule.action() == RuleAction::Limit {
        let first = rule.bands().first();
        let algorithm = first.map_or("", |band| algorithm_name(band.algorithm()));
        let bands = rule.bands().iter();
        let bands: Vec<_> = bands.map(|band| limit(band.limit())).collect();
        format!("{algorithm}, {}", bands.join(" and "))
    } else {
        format!("action: {}", rule.action().name())
    };
    match rule.name() {
        Some(name) => format!("{name}: {text}"),
        None => text,
    }
}

/// Describes a limit: `10 per 1 s`, `50 at once, 10 per 1 s` or
/// `10,000 a month (Asia/Seoul)`.
pub(super) fn limit(limit: &Limit) -> String {
    let (capacity, rate) = (grouped(limit.capacity()), limit.rate());
    if limit.algorithm() == Algorithm::Concurrency {
        return format!("{capacity} at the same time");
    }
    if has_own_refill(limit) {
        let (refill, period) = (grouped(rate.refill()), duration(rate.period().get()));
        return format!("{capacity} at once, {refill} per {period}");
    }
    if let Some(calendar) = limit.windows() {
        let (unit, zone) = (calendar.unit().name(), calendar.time_zone());
        let article = if unit == "hour" { "an" } else { "a" };
        return format!("{capacity} {article} {unit} ({})", zone.name());
    }
    format!("{capacity} per {}", duration(limit.window().get()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fluxgate_core::{Calendar, CalendarUnit};
    use std::time::Duration;

    #[test]
    fn a_limit_is_described_by_its_window_its_refill_or_its_calendar() {
        let minute = Duration::from_secs(60);
        let bucket = || Limit::builder(Algorithm::TokenBucket, 5_000, minute);
        assert_eq!(limit(&bucket().build().unwrap()), "5,000 per 1 min");
        let refilled = bucket().refill(7).period(minute).build().unwrap();
        assert_eq!(limit(&refilled), "5,000 at once, 7 per 1 min");
        let of = |unit| {
            Limit::calendar(10_000, Calendar::new(unit))
                .build()
                .unwrap()
        };
        assert_eq!(limit(&of(CalendarUnit::Month)), "10,000 a month (UTC)");
        let slots = Limit::concurrency(10).build().unwrap();
        assert_eq!(limit(&slots), "10 at the same time");
        assert_eq!(limit(&of(CalendarUnit::Hour)), "10,000 an hour (UTC)");
    }
}
