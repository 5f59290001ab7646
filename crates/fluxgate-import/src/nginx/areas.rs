//! Which paths of a server a limit covers.
//!
//! nginx handles a request in one location: an exact one, else the first regular expression
//! that matches (unless the longest prefix has `^~`), else the longest prefix. A rule covers
//! the locations that use its limit, and excludes more specific ones that do not.

use super::limits::ZoneUse;
use crate::path_patterns::{self, Anchors};

/// A location, or the server outside of its locations.
#[derive(Debug)]
pub(super) struct Area {
    pub(super) line: usize,
    pub(super) kind: Kind,
    /// The text after the modifier.
    pub(super) text: String,
    pub(super) patterns: Option<Vec<String>>,
    /// Whether the patterns match more or fewer paths than the location.
    pub(super) is_approximate: bool,
    pub(super) limits: Vec<ZoneUse>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Server,
    Prefix,
    /// A prefix with `^~`, which takes precedence over regular expressions.
    FinalPrefix,
    Exact,
    Regex,
}

impl Area {
    /// Returns the area of a server.
    pub(super) fn server(line: usize, limits: Vec<ZoneUse>) -> Self {
        Self {
            line,
            kind: Kind::Server,
            text: String::new(),
            patterns: None,
            is_approximate: false,
            limits,
        }
    }

    /// Returns the area of `location MODIFIER TEXT`.
    pub(super) fn location(line: usize, arguments: &[&str], limits: Vec<ZoneUse>) -> Option<Self> {
        let (modifier, text) = match *arguments {
            [modifier, text] => (modifier, text),
            [glued] => {
                let modifiers = ["=", "~*", "~", "^~"];
                let modifier = modifiers.into_iter().find(|it| glued.starts_with(it));
                glued.split_at(modifier.unwrap_or_default().len())
            }
            _ => return None,
        };
        let one = |pattern: Option<String>| (pattern.map(|it| vec![it]), false);
        let (kind, (patterns, is_approximate)) = match modifier {
            "" => (Kind::Prefix, one(path_patterns::prefix(text))),
            "^~" => (Kind::FinalPrefix, one(path_patterns::prefix(text))),
            "=" => (Kind::Exact, one(path_patterns::literal(text))),
            "~" => match path_patterns::regex(text, Anchors::None) {
                Some(found) => (Kind::Regex, (Some(found.patterns), !found.is_exact)),
                None => (Kind::Regex, (None, false)),
            },
            "~*" => (Kind::Regex, (None, false)),
            _ => return None,
        };
        Some(Self {
            line,
            kind,
            text: text.to_owned(),
            patterns,
            is_approximate,
            limits,
        })
    }

    /// Returns the area without patterns, so that no rule covers its paths.
    pub(super) fn without_patterns(self) -> Self {
        Self {
            patterns: None,
            is_approximate: false,
            ..self
        }
    }

    /// Returns whether every path of this area begins with the text of a prefix.
    fn is_inside(&self, outer: &Self) -> bool {
        let is_prefix = matches!(outer.kind, Kind::Prefix | Kind::FinalPrefix);
        let has_text = matches!(self.kind, Kind::Prefix | Kind::FinalPrefix | Kind::Exact);
        is_prefix && has_text && self.text.starts_with(&outer.text)
    }
}

/// The paths of a rule.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Coverage<'a> {
    pub(super) path: Vec<String>,
    pub(super) not_path: Vec<String>,
    /// Locations that use the limit and are not covered.
    pub(super) missed: Vec<(usize, &'a str)>,
    /// Locations that do not use the limit and are covered.
    pub(super) extra: Vec<(usize, &'a str)>,
    /// Locations whose patterns are approximate.
    pub(super) approximate: Vec<(usize, &'a str)>,
}

/// Returns the paths of a rule for a limit.
pub(super) fn coverage<'a>(areas: &'a [Area], limit: &ZoneUse) -> Coverage<'a> {
    let (used, others): (Vec<_>, Vec<_>) =
        areas.iter().partition(|area| area.limits.contains(limit));
    let mut coverage = Coverage::default();
    let covers_server = used.iter().any(|area| area.kind == Kind::Server);
    let place = |list: &mut Vec<(usize, &'a str)>, area: &'a Area| {
        list.push((area.line, area.text.as_str()));
    };
    for area in &used {
        if area.is_approximate {
            place(&mut coverage.approximate, area);
        }
        match &area.patterns {
            Some(patterns) if !covers_server => coverage.path.extend(patterns.iter().cloned()),
            None if !covers_server => place(&mut coverage.missed, area),
            _ => {}
        }
    }
    for other in others.iter().filter(|other| other.kind != Kind::Server) {
        if !takes_from(other, &used) {
            continue;
        }
        match &other.patterns {
            Some(patterns) if can_exclude(other, &used) => {
                coverage.not_path.extend(patterns.iter().cloned());
            }
            _ => place(&mut coverage.extra, other),
        }
    }
    coverage
}

/// Returns whether a location handles requests that patterns of the used areas match.
fn takes_from(other: &Area, used: &[&Area]) -> bool {
    used.iter().any(|area| match (other.kind, area.kind) {
        (_, Kind::Server) => true,
        (Kind::Regex, Kind::Prefix | Kind::Regex) => true,
        (Kind::Exact | Kind::FinalPrefix, Kind::Regex) => true,
        _ => other.is_inside(area),
    })
}

/// Returns whether a rule for the used areas may exclude all paths of a location.
fn can_exclude(other: &Area, used: &[&Area]) -> bool {
    !other.is_approximate
        && used.iter().all(|area| match (other.kind, area.kind) {
            (_, Kind::Server) => true,
            (Kind::Regex, Kind::Prefix) => true,
            (Kind::Regex, _) => false,
            (Kind::Exact, _) => true,
            (_, Kind::Regex) => other.kind == Kind::FinalPrefix,
            _ => !area.is_inside(other),
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nginx::limits::UseKind;

    fn limit(zone: &str) -> ZoneUse {
        ZoneUse {
            zone: zone.into(),
            kind: UseKind::Connections { most: 1 },
            is_dry_run: false,
        }
    }

    /// Returns the coverage of the zone `a`. Each location is `ZONE ARGUMENTS`.
    fn covered(server: &str, locations: &[&str]) -> String {
        let mut areas = vec![Area::server(1, vec![limit(server)])];
        for location in locations {
            let words: Vec<_> = location.split(' ').collect();
            areas.push(Area::location(2, &words[1..], vec![limit(words[0])]).unwrap());
        }
        let found = coverage(&areas, &limit("a"));
        let names =
            |list: &[(usize, &str)]| list.iter().map(|it| it.1).collect::<Vec<_>>().join(",");
        format!(
            "{} - {} missed {} extra {}",
            found.path.join(","),
            found.not_path.join(","),
            names(&found.missed),
            names(&found.extra)
        )
    }

    #[test]
    fn a_server_excludes_its_other_locations() {
        assert_eq!(
            covered("a", &["b /api/", "a /x"]),
            " - /api/*/** missed  extra "
        );
        assert_eq!(
            covered("a", &["b = /ping", "b ~ \\.png$"]),
            " - /ping,/**/*.png missed  extra "
        );
    }

    #[test]
    fn a_location_excludes_more_specific_ones() {
        let found = covered(
            "b",
            &["a /api/", "b /api/public/", "b /other/", "b = /api/ping"],
        );
        assert_eq!(
            found,
            "/api/*/** - /api/public/*/**,/api/ping missed  extra "
        );
    }

    #[test]
    fn a_location_that_contains_a_used_one_is_not_excluded() {
        let found = covered("a", &["b /api/", "a /api/public/"]);
        assert_eq!(found, " -  missed  extra /api/");
    }

    #[test]
    fn expressions_are_excluded_from_plain_prefixes_only() {
        assert_eq!(
            covered("b", &["a /x/", "b ~ \\.png$"]),
            "/x/*/** - /**/*.png missed  extra "
        );
        assert_eq!(
            covered("b", &["a ^~ /x/", "b ~ \\.png$"]),
            "/x/*/** -  missed  extra "
        );
        let mixed = covered("b", &["a /x/", "a ^~ /y/", "b ~ \\.png$"]);
        assert_eq!(mixed, "/x/*/**,/y/*/** -  missed  extra \\.png$");
    }

    #[test]
    fn expressions_that_patterns_cannot_express_are_reported() {
        assert_eq!(covered("b", &["a ~* \\.png$"]), " -  missed \\.png$ extra ");
        assert_eq!(covered("a", &["b ~* \\.png$"]), " -  missed  extra \\.png$");
    }
}
