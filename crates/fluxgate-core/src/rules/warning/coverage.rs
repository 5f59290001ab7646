//! Whether one rule matches every request that another one matches.

use crate::key::OnMissingKey;
use crate::matcher::{ValueMatch, Values};
use crate::network::IpNetwork;
use crate::rules::rule::{Key, Rule, ValueMatches};

/// Which requests lack parts of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyPresence {
    /// Rules may be limited to requests with whole keys, as Envoy's descriptors do.
    Unknown,
    /// Missing parts are replaced as `on_missing_key` says.
    Replaced,
}

/// Returns whether `earlier` matches every request that `later` matches. `false` if that is
/// not certain.
pub(super) fn always_matches_with(earlier: &Rule, later: &Rule, keys: KeyPresence) -> bool {
    key_covers(earlier, later, keys)
        && texts_cover(&earlier.methods, &later.methods, str::eq)
        && texts_cover(&earlier.paths, &later.paths, pattern_covers)
        // A path is excepted if both its forms match, so with more patterns more are.
        && earlier.not_paths.iter().all(|path| later.not_paths.contains(path))
        && values_cover(&earlier.match_headers, &later.match_headers, str::eq_ignore_ascii_case)
        && values_cover(&earlier.match_attributes, &later.match_attributes, str::eq)
        && identity_covers(earlier.match_user.as_ref(), later.match_user.as_ref())
        && identity_covers(earlier.match_api_key.as_ref(), later.match_api_key.as_ref())
        && earlier.ip_list.as_ref().is_none_or(|list| later.ip_list.as_ref() == Some(list))
        && earlier.not_ip_list.as_ref().is_none_or(|list| later.not_ip_list.as_ref() == Some(list))
        && texts_cover(&earlier.ips, &later.ips, network_covers)
        && earlier.not_ips.iter().all(|ip| {
            later.not_ips.iter().any(|excepted| network_covers(excepted, ip))
        })
}

fn key_covers(earlier: &Rule, later: &Rule, keys: KeyPresence) -> bool {
    let parts = |rule: &Rule| match &rule.key {
        Key::Parts(parts) => parts.clone(),
        Key::Missing | Key::Faulty | Key::Global => Vec::new(),
    };
    let (parts, later_parts) = (parts(earlier), parts(later));
    let has_same_parts = parts.iter().all(|part| later_parts.contains(part));
    let is_skipped = |rule: &Rule| rule.on_missing_key == OnMissingKey::Skip;
    match (is_skipped(earlier), keys) {
        (false, KeyPresence::Replaced) => true,
        (false, KeyPresence::Unknown) => has_same_parts,
        (true, _) => has_same_parts && (is_skipped(later) || parts.is_empty()),
    }
}

/// An empty list matches everything, including requests without a value.
fn texts_cover(
    earlier: &[Box<str>],
    later: &[Box<str>],
    covers: impl Fn(&str, &str) -> bool,
) -> bool {
    let is_covered = |text: &str| earlier.iter().any(|earlier| covers(earlier, text));
    earlier.is_empty() || (!later.is_empty() && later.iter().all(|text| is_covered(text)))
}

/// `/api/**` matches everything that a pattern with the same start, such as `/api/*/x`, matches.
fn pattern_covers(earlier: &str, later: &str) -> bool {
    let is_below = |start: &str| {
        let rest = later.strip_prefix(start);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    earlier == later || earlier.strip_suffix("/**").is_some_and(is_below)
}

fn network_covers(earlier: &str, later: &str) -> bool {
    match (earlier.parse::<IpNetwork>(), later.parse::<IpNetwork>()) {
        (Ok(earlier), Ok(later)) => earlier.includes(&later),
        _ => false,
    }
}

fn values_cover(
    earlier: &ValueMatches,
    later: &ValueMatches,
    is_same: impl Fn(&str, &str) -> bool,
) -> bool {
    earlier.iter().all(|(name, value)| {
        let mut of_field = later.iter().filter(|(other, _)| is_same(name, other));
        of_field.any(|(_, later)| value_covers(value, later))
    })
}

fn value_covers(ValueMatch(earlier): &ValueMatch, ValueMatch(later): &ValueMatch) -> bool {
    use Values::{In, NoneOf, NotIn, OneOf, Present};
    match (earlier, later) {
        (OneOf(earlier), OneOf(later)) => later.iter().all(|value| earlier.contains(value)),
        (NoneOf(except), OneOf(later)) => !later.iter().any(|value| except.contains(value)),
        (NoneOf(except), NoneOf(later)) => except.iter().all(|value| later.contains(value)),
        (NoneOf(_), Present(false)) => true,
        (Present(true), OneOf(_)) => true,
        (Present(true), In(_)) | (NotIn(_), Present(false)) => true,
        (Present(earlier), Present(later)) => earlier == later,
        (In(earlier), In(later)) | (NotIn(earlier), NotIn(later)) => earlier == later,
        // The items of a list are not compared.
        (OneOf(_), NoneOf(_) | Present(_) | In(_) | NotIn(_))
        | (NoneOf(_), Present(true) | In(_) | NotIn(_))
        | (Present(_), OneOf(_) | NoneOf(_) | In(_) | NotIn(_))
        | (In(_), OneOf(_) | NoneOf(_) | Present(_) | NotIn(_))
        | (NotIn(_), OneOf(_) | NoneOf(_) | Present(true) | In(_)) => false,
    }
}

/// An identity that is not tested matches everything.
fn identity_covers(earlier: Option<&ValueMatch>, later: Option<&ValueMatch>) -> bool {
    earlier.is_none_or(|earlier| later.is_some_and(|later| value_covers(earlier, later)))
}
