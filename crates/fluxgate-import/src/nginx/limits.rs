//! The zones and the limits of `limit_req` and `limit_conn`.

use std::time::Duration;

use fluxgate_core::Algorithm;
use fluxgate_core::yaml::Faults;

use super::parse::{Directive, Word};
use crate::draft::{BandDraft, MAX_UNITS, MAX_WINDOW, Remark, RuleDraft, largest_capacity};
use crate::fields::parse_digits;

/// A zone: the key that requests are counted by.
#[derive(Debug)]
pub(super) struct Zone {
    pub(super) line: usize,
    pub(super) name: String,
    /// The key, as it is written.
    pub(super) key: String,
    /// The rate of a zone of `limit_req`.
    pub(super) rate: Option<Rate>,
}

/// The rate of a zone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    requests: u64,
    period: Duration,
}

/// A use of a zone. Uses that are equal count together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ZoneUse {
    pub(super) zone: String,
    pub(super) kind: UseKind,
    pub(super) is_dry_run: bool,
}

/// What a use of a zone limits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum UseKind {
    /// The rate of requests.
    Requests {
        burst: u64,
        /// How many excess requests are not delayed.
        undelayed: u64,
    },
    /// The requests in progress.
    Connections { most: u64 },
}

/// Reads `limit_req_zone KEY zone=NAME:SIZE rate=RATE`.
pub(super) fn zone(directive: &Directive, faults: &mut Faults) -> Option<Zone> {
    let (mut name, mut rate) = (None, None);
    let mut arguments = directive.arguments.iter();
    let key = arguments.next();
    for word in arguments {
        match word.text.split_once('=') {
            Some(("zone", value)) => name = value.split_once(':').map(|(name, _)| name),
            Some(("rate", value)) => rate = Some((word, value)),
            _ if word.text == "sync" => {}
            _ => unknown(directive, word, faults),
        }
    }
    let (Some(key), Some(name), Some((word, rate))) = (key, name.filter(|it| !it.is_empty()), rate)
    else {
        faults.add(
            directive.position,
            "`limit_req_zone` needs a key, `zone=NAME:SIZE` and `rate=RATE`",
        );
        return None;
    };
    let (digits, unit) = rate.split_at(rate.bytes().take_while(u8::is_ascii_digit).count());
    let period = match unit {
        "r/s" => Some(Duration::from_secs(1)),
        "r/m" => Some(Duration::from_secs(60)),
        _ => None,
    };
    let requests = parse_digits(digits).filter(|it| (1..=MAX_UNITS).contains(it));
    let (Some(requests), Some(period)) = (requests, period) else {
        faults.add(
            word.position,
            format!(
                "`{}` must be a whole number of requests from 1 to {MAX_UNITS} per second or \
                 minute, such as rate=10r/s or rate=30r/m",
                word.text
            ),
        );
        return None;
    };
    Some(Zone {
        line: directive.line(),
        name: name.to_owned(),
        key: key.text.clone(),
        rate: Some(Rate { requests, period }),
    })
}

/// Reads `limit_conn_zone KEY zone=NAME:SIZE`.
pub(super) fn connection_zone(directive: &Directive, faults: &mut Faults) -> Option<Zone> {
    let (key, zone) = match directive.arguments.as_slice() {
        [key, zone] => (Some(key), zone.text.strip_prefix("zone=")),
        _ => (None, None),
    };
    let name = zone.and_then(|it| it.split_once(':')).map(|(name, _)| name);
    let (Some(key), Some(name)) = (key, name.filter(|it| !it.is_empty())) else {
        let text = "`limit_conn_zone` needs a key and `zone=NAME:SIZE`";
        faults.add(directive.position, text);
        return None;
    };
    Some(Zone {
        line: directive.line(),
        name: name.to_owned(),
        key: key.text.clone(),
        rate: None,
    })
}

/// Reads `limit_conn NAME NUMBER`.
pub(super) fn connections(directive: &Directive, faults: &mut Faults) -> Option<ZoneUse> {
    let most = match directive.arguments.as_slice() {
        [_, most] => parse_digits(&most.text).filter(|it| (1..=65_535).contains(it)),
        _ => None,
    };
    let Some(most) = most else {
        let text = "`limit_conn` needs a zone and a number of connections from 1 to 65535";
        faults.add(directive.position, text);
        return None;
    };
    Some(ZoneUse {
        zone: directive.argument(0).to_owned(),
        kind: UseKind::Connections { most },
        is_dry_run: false,
    })
}

/// Reads `limit_req zone=NAME [burst=N] [nodelay | delay=N]`.
pub(super) fn zone_use(directive: &Directive, faults: &mut Faults) -> Option<ZoneUse> {
    let (mut zone, mut burst, mut delay) = (None, 0, Some(0));
    for word in &directive.arguments {
        match word.text.split_once('=') {
            Some(("zone", name)) => zone = Some(name),
            Some(("burst", number)) => burst = count(word, number, faults)?,
            Some(("delay", number)) => delay = Some(count(word, number, faults)?),
            _ if word.text == "nodelay" => delay = None,
            _ => unknown(directive, word, faults),
        }
    }
    let Some(zone) = zone.filter(|zone| !zone.is_empty()) else {
        faults.add(directive.position, "`limit_req` needs `zone=NAME`");
        return None;
    };
    Some(ZoneUse {
        zone: zone.to_owned(),
        kind: UseKind::Requests {
            burst,
            undelayed: delay.map_or(burst, |delay| delay.min(burst)),
        },
        is_dry_run: false,
    })
}

fn count(word: &Word, digits: &str, faults: &mut Faults) -> Option<u64> {
    let number = parse_digits(digits);
    if number.is_none() {
        let text = format!("`{}` must have a whole number after `=`", word.text);
        faults.add(word.position, text);
    }
    number
}

fn unknown(directive: &Directive, word: &Word, faults: &mut Faults) {
    let text = format!("`{}` is not a parameter of `{}`", word.text, directive.name);
    faults.add(word.position, text);
}

/// Returns the rule of a limit, without its conditions and its key, if the zone is of its kind.
pub(super) fn rule(id: String, zone: &Zone, limit: &ZoneUse) -> Option<RuleDraft> {
    let mut rule = match (&limit.kind, zone.rate) {
        (UseKind::Requests { burst, undelayed }, Some(rate)) => {
            bucket(id, zone.line, rate, *burst, *undelayed)
        }
        (UseKind::Connections { most }, None) => {
            let mut rule = RuleDraft::new(id, Algorithm::Concurrency);
            rule.bands.push(BandDraft::slots(*most));
            rule
        }
        _ => return None,
    };
    rule.shadow = limit.is_dry_run;
    Some(rule)
}

/// Returns the rule of a rate.
///
/// nginx admits a request if at most `burst` requests are in excess before it, so `burst` + 1
/// requests pass at once. If only a part of the burst is delayed, the bucket holds the
/// undelayed part, and the other requests wait.
fn bucket(id: String, line: usize, rate: Rate, burst: u64, undelayed: u64) -> RuleDraft {
    let Rate { requests, period } = rate;
    let is_shaped = undelayed == 0 && burst > 0;
    let algorithm = if is_shaped {
        Algorithm::LeakyBucket
    } else {
        Algorithm::TokenBucket
    };
    let mut rule = RuleDraft::new(id, algorithm);
    let mut at_once = burst;
    if !is_shaped && undelayed < burst {
        at_once = undelayed;
        let waiting = u128::from(burst - undelayed);
        let millis = (waiting * period.as_millis()).div_ceil(requests.into());
        let wait = u64::try_from(millis).map_or(MAX_WINDOW, Duration::from_millis);
        rule.max_wait = Some(wait.min(MAX_WINDOW));
    }
    let wanted = at_once.saturating_add(1);
    let most = largest_capacity(requests, period);
    let capacity = wanted.min(most);
    if capacity < wanted {
        let most = most - 1;
        let text = format!("a burst of {burst} is reduced to {most}, the maximum");
        rule.remarks.push(Remark::changed(line, text));
    }
    let mut band = BandDraft::new(capacity, period);
    band.refill = (capacity != requests).then_some(requests);
    rule.bands.push(band);
    rule
}
