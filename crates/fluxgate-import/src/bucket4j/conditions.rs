//! Conditions that are added to those that a rule already has.

use fluxgate_core::ValueMatch;

use super::expressions::Condition;
use crate::draft::Conditions;

/// The result of adding a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AddOutcome {
    /// The rule has both.
    Both,
    /// A condition on another path takes precedence: a rule needs only one of its paths.
    OtherPath,
    /// The rule has another condition of this kind.
    Conflict,
}

impl Condition {
    /// Adds the condition to a rule, if the rule can have it as well.
    pub(super) fn add_to(self, conditions: &mut Conditions) -> AddOutcome {
        match self {
            Self::Methods(methods) if conditions.methods.is_empty() => {
                conditions.methods = methods;
            }
            Self::Path(pattern) => return add_path(pattern, &mut conditions.path),
            Self::NotPath(pattern) => conditions.not_path.push(pattern),
            Self::Header(name, value) if !has(&conditions.headers, &name) => {
                conditions.headers.push((name, value));
            }
            _ => return AddOutcome::Conflict,
        }
        AddOutcome::Both
    }
}

/// Narrows the paths down to those that the pattern matches too.
fn add_path(pattern: String, paths: &mut Vec<String>) -> AddOutcome {
    if paths.iter().all(|path| covers(&pattern, path)) && !paths.is_empty() {
        return AddOutcome::Both;
    }
    if paths.is_empty() || paths.iter().any(|path| covers(path, &pattern)) {
        *paths = vec![pattern];
        return AddOutcome::Both;
    }
    AddOutcome::OtherPath
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

fn has(headers: &[(String, ValueMatch)], name: &str) -> bool {
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
            ("", "/a/**", "/a/**", AddOutcome::Both),
            (
                "/api/*/**",
                "/api/users/**",
                "/api/users/**",
                AddOutcome::Both,
            ),
            (
                "/api/users/x",
                "/api/users/**",
                "/api/users/x",
                AddOutcome::Both,
            ),
            ("/a*/** /b", "/b", "/b", AddOutcome::Both),
            ("/a /b", "/a/**", "/a /b", AddOutcome::OtherPath),
            ("/a", "/b", "/a", AddOutcome::OtherPath),
        ] {
            let mut conditions = Conditions {
                path: paths.split_whitespace().map(str::to_owned).collect(),
                ..Conditions::default()
            };
            let found = Condition::Path(pattern.into()).add_to(&mut conditions);
            assert_eq!(
                (conditions.path.join(" ").as_str(), found),
                (expected, added),
                "{paths} and {pattern}"
            );
        }
    }
}
