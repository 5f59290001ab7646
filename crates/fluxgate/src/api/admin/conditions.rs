//! Preconditions in `If-Match` and `If-None-Match`.

use fluxgate_http::Problem;
use http::{HeaderMap, HeaderName, StatusCode, header};

/// The precondition of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Condition {
    /// No condition.
    Any,
    /// `If-Match: *`: it must exist.
    Present,
    /// `If-None-Match: *`: it must not exist.
    Absent,
    /// `If-Match: "…"`: it must have one of these ETags.
    OneOf(Vec<String>),
    /// `If-None-Match: "…"`: it must have none of these ETags.
    NoneOf(Vec<String>),
}

impl Condition {
    pub(super) fn from_headers(headers: &HeaderMap) -> Result<Self, Problem> {
        match (
            tags(headers, header::IF_MATCH)?,
            tags(headers, header::IF_NONE_MATCH)?,
        ) {
            (None, None) => Ok(Self::Any),
            (Some(EtagList::Any), None) => Ok(Self::Present),
            (Some(EtagList::List(tags)), None) => Ok(Self::OneOf(tags)),
            (None, Some(EtagList::Any)) => Ok(Self::Absent),
            (None, Some(EtagList::List(tags))) => Ok(Self::NoneOf(tags)),
            (Some(_), Some(_)) => Err(Problem::bad_request(
                "`If-Match` and `If-None-Match` exclude each other",
            )),
        }
    }

    /// Returns whether the condition holds for the current ETag.
    pub(super) fn holds(&self, now: Option<&str>) -> bool {
        match self {
            Self::Any => true,
            Self::Present => now.is_some(),
            Self::Absent => now.is_none(),
            Self::OneOf(tags) => now.is_some_and(|now| tags.iter().any(|tag| tag == now)),
            Self::NoneOf(tags) => now.is_none_or(|now| tags.iter().all(|tag| tag != now)),
        }
    }

    /// Returns an error if the condition does not hold for the current ETag.
    pub(super) fn check(&self, now: Option<&str>) -> Result<(), Problem> {
        if self.holds(now) {
            return Ok(());
        }
        let current = match now {
            Some(now) => format!("the ETag is \"{now}\""),
            None => "it does not exist".into(),
        };
        Err(Problem::new(
            StatusCode::PRECONDITION_FAILED,
            format!("the precondition does not hold: {current}"),
        ))
    }
}

enum EtagList {
    Any,
    /// Without their quotes.
    List(Vec<String>),
}

fn tags(headers: &HeaderMap, name: HeaderName) -> Result<Option<EtagList>, Problem> {
    let bad = || Problem::bad_request(format!("`{name}` must be * or a list of ETags in quotes"));
    let mut tags = Vec::new();
    let mut given = false;
    for value in headers.get_all(&name) {
        given = true;
        let value = value.to_str().map_err(|_| bad())?;
        if value.trim() == "*" {
            return Ok(Some(EtagList::Any));
        }
        for tag in value
            .split(',')
            .map(str::trim)
            .filter(|tag| !tag.is_empty())
        {
            let weak = tag.starts_with("W/");
            let tag = tag.trim_start_matches("W/");
            let tag = tag
                .strip_prefix('"')
                .and_then(|tag| tag.strip_suffix('"'))
                .ok_or_else(bad)?;
            // `If-Match` compares strongly, so a weak ETag never matches.
            if !(weak && name == header::IF_MATCH) {
                tags.push(tag.to_owned());
            }
        }
    }
    Ok(given.then_some(EtagList::List(tags)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(headers: &[(HeaderName, &str)]) -> Result<Condition, Problem> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(name, value.parse().unwrap());
        }
        Condition::from_headers(&map)
    }

    #[test]
    fn conditions_are_parsed_and_evaluated() {
        use header::{IF_MATCH, IF_NONE_MATCH};
        let any = condition(&[]).unwrap();
        assert!(any.holds(None) && any.holds(Some("a")));
        let present = condition(&[(IF_MATCH, "*")]).unwrap();
        assert!(!present.holds(None) && present.holds(Some("a")));
        let absent = condition(&[(IF_NONE_MATCH, "*")]).unwrap();
        assert!(absent.holds(None) && !absent.holds(Some("a")));
        let one_of =
            condition(&[(IF_MATCH, "\"a\", \"b\""), (IF_MATCH, "\"c\", W/\"d\"")]).unwrap();
        let held = [Some("a"), Some("b"), Some("c"), Some("d"), None];
        assert_eq!(
            held.map(|now| one_of.holds(now)),
            [true, true, true, false, false]
        );
        let none_of = condition(&[(IF_NONE_MATCH, "W/\"a\"")]).unwrap();
        assert!(none_of.holds(None) && none_of.holds(Some("b")) && !none_of.holds(Some("a")));
        for bad in [
            &[(IF_MATCH, "a")][..],
            &[(IF_MATCH, "\"a")],
            &[(IF_MATCH, "*"), (IF_NONE_MATCH, "*")],
        ] {
            assert!(condition(bad).is_err(), "{bad:?}");
        }
    }
}
