//! Conditions that are added to those that a rule already has.

use super::expressions::Condition;
use crate::draft::{Match, Test};

/// What becomes of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Added {
    /// The rule has both.
    Both,
    /// A condition on another path takes precedence: a rule needs only one of its paths.
    OtherPath,
    /// The rule has another condition of this kind.
    Conflict,
}

impl Condition {
    /// Adds the condition to those of a rule, if a rule can have both.
    pub(super) fn add_to(self, matches: &mut Match) -> Added {
        match self {
            Self::Methods(methods) if matches.methods.is_empty() => matches.methods = methods,
            Self::Path(pattern) => return add_path(pattern, &mut matches.path),
            Self::NotPath(pattern) => matches.not_path.push(pattern),
            Self::Header(name, test) if !has(&matches.headers, &name) => {
                matches.headers.push((name, test));
            }
            _ => return Added::Conflict,
        }
        Added::Both
    }
}

/// Narrows the paths down to those that the pattern matches too.
fn add_path(pattern: String, paths: &mut Vec<String>) -> Added {
    if paths.iter().all(|path| covers(&pattern, path)) && !paths.is_empty() {
        return Added::Both;
    }
    if paths.is_empty() || paths.iter().any(|path| covers(path, &pattern)) {
        *paths = vec![pattern];
        return Added::Both;
    }
    Added::OtherPath
}

/// Returns whether a pattern certainly matches every path that the other matches.
fn covers(outer: &str, inner: &str) -> bool {
    if outer == inner || outer == "/**" {
        return true;
    }
    let is_literal = |text: &str| !text.contains(['*', '?']);
    let wildcard = inner.find(['*', '?']);
    let begin = &inner[..wildcard.unwrap_or(inner.len())];
    // `/a/**` matches `/a` too.
    let begin = match wildcard {
        Some(at) if inner[at..].starts_with("**") => begin.trim_end_matches('/'),
        _ => begin,
    };
    // `/a*/**` is everything that begins with `/a`, and `/a/**` is `/a` and what is below it.
    if let Some(prefix) = outer.strip_suffix("*/**").filter(|it| is_literal(it)) {
        return begin.starts_with(prefix);
    }
    let Some(folder) = outer.strip_suffix("/**").filter(|it| is_literal(it)) else {
        return false;
    };
    let below = begin.strip_prefix(folder);
    below.is_some_and(|it| it.starts_with('/') || (it.is_empty() && wildcard.is_none()))
}

fn has(headers: &[(String, Test)], name: &str) -> bool {
    headers
        .iter()
        .any(|(known, _)| known.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_covers_another() {
        for (outer, inner) in [
            ("/**", "/a"),
            ("/a", "/a"),
            ("/a/**", "/a"),
            ("/a/**", "/a/b"),
            ("/a/**", "/a/b/**"),
            ("/a/**", "/a/*/**"),
            ("/a*/**", "/a/**"),
            ("/a*/**", "/ab"),
            ("/a/*/**", "/a/b/**"),
        ] {
            assert!(covers(outer, inner), "{outer} {inner}");
        }
        for (outer, inner) in [
            ("/a", "/**"),
            ("/a", "/b"),
            ("/a/**", "/ab"),
            ("/a/**", "/a*"),
            ("/a/*", "/a/b/c"),
            ("/a/*/**", "/a/**"),
            ("/*/b/**", "/a/b/c"),
            ("/a/b/**", "/a/**"),
        ] {
            assert!(!covers(outer, inner), "{outer} {inner}");
        }
    }

    #[test]
    fn paths_are_narrowed_down() {
        for (paths, pattern, expected, added) in [
            ("", "/a/**", "/a/**", Added::Both),
            ("/api/*/**", "/api/users/**", "/api/users/**", Added::Both),
            ("/api/users/x", "/api/users/**", "/api/users/x", Added::Both),
            ("/a*/** /b", "/b", "/b", Added::Both),
            ("/a /b", "/a/**", "/a /b", Added::OtherPath),
            ("/a", "/b", "/a", Added::OtherPath),
        ] {
            let mut matches = Match {
                path: paths.split_whitespace().map(str::to_owned).collect(),
                ..Match::default()
            };
            let found = Condition::Path(pattern.into()).add_to(&mut matches);
            assert_eq!(
                (matches.path.join(" ").as_str(), found),
                (expected, added),
                "{paths} and {pattern}"
            );
        }
    }
}
