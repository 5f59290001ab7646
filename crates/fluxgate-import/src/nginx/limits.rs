//! The zones and the limits of `limit_req`.

use fluxgate_core::internals::yaml::Faults;

use super::parse::{Directive, Word};
use crate::draft::{Algorithm, Band, MAX_UNITS, MAX_WINDOW_MS, Remark, Rule, largest_capacity};

/// A zone: what requests are counted by, and how fast.
#[derive(Debug)]
pub(super) struct Zone {
    pub(super) line: usize,
    pub(super) name: String,
    /// The key, as it is written.
    pub(super) key: String,
    pub(super) requests: u64,
    /// In milliseconds.
    pub(super) period: u64,
}

/// A use of a zone. Uses that are equal count together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Limit {
    pub(super) zone: String,
    pub(super) burst: u64,
    /// How many excess requests are not delayed.
    pub(super) undelayed: u64,
    pub(super) is_dry_run: bool,
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
        "r/s" => Some(1_000),
        "r/m" => Some(60_000),
        _ => None,
    };
    let requests = digits.parse::<u64>().ok();
    let requests = requests.filter(|it| (1..=MAX_UNITS).contains(it));
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
        requests,
        period,
    })
}

/// Reads `limit_req zone=NAME [burst=N] [nodelay | delay=N]`.
pub(super) fn limit(directive: &Directive, faults: &mut Faults) -> Option<Limit> {
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
    Some(Limit {
        zone: zone.to_owned(),
        burst,
        undelayed: delay.map_or(burst, |delay| delay.min(burst)),
        is_dry_run: false,
    })
}

fn count(word: &Word, digits: &str, faults: &mut Faults) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.parse().ok().filter(|_| is_number);
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

/// Returns the rule of a limit, without its conditions and its key.
///
/// nginx admits a request if at most `burst` requests are in excess before it, so `burst` + 1
/// requests pass at once.
pub(super) fn rule(id: String, zone: &Zone, limit: &Limit) -> Rule {
    let bucket = |allowed: u64| allowed.saturating_add(1);
    let mut rule = if limit.undelayed >= limit.burst {
        Rule::new(id, Algorithm::TokenBucket)
    } else if limit.undelayed == 0 {
        Rule::new(id, Algorithm::ShapingBucket)
    } else {
        // The bucket holds what is not delayed; the rest waits for its turn.
        let mut rule = Rule::new(id, Algorithm::TokenBucket);
        let waiting = limit.burst - limit.undelayed;
        let wait = waiting.saturating_mul(zone.period).div_ceil(zone.requests);
        rule.max_wait_ms = Some(wait.clamp(1, MAX_WINDOW_MS));
        rule
    };
    let wanted = match rule.max_wait_ms {
        Some(_) => bucket(limit.undelayed),
        None => bucket(limit.burst),
    };
    let most = largest_capacity(zone.requests, zone.period);
    let capacity = wanted.min(most);
    if capacity < wanted {
        let text = format!(
            "a burst of {} is reduced to {}, the maximum",
            limit.burst,
            most - 1
        );
        rule.remarks.push(Remark::changed(zone.line, text));
    }
    let mut band = Band::new(capacity, zone.period);
    if capacity != zone.requests {
        band.refill = Some((zone.requests, zone.period));
    }
    rule.bands.push(band);
    rule.shadow = limit.is_dry_run;
    rule
}
