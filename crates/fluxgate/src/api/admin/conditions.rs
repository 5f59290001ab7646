//! `If-Match` and `If-None-Match`.

use http::{HeaderMap, HeaderName, StatusCode, header};

use crate::http::Problem;

/// What must be there for a request to be done.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Condition {
    /// Nothing was said.
    Any,
    /// Something: `If-Match: *`.
    Present,
    /// Nothing: `If-None-Match: *`.
    Absent,
    /// One of these: `If-Match: "…"`.
    OneOf(Vec<String>),
    /// None of these: `If-None-Match: "…"`.
    NoneOf(Vec<String>),
}

impl Condition {
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, Problem> {
        match (
            tags(headers, header::IF_MATCH)?,
            tags(headers, header::IF_NONE_MATCH)?,
        ) {
            (None, None) => Ok(Self::Any),
            (Some(Tags::Every), None) => Ok(Self::Present),
            (Some(Tags::These(tags)), None) => Ok(Self::OneOf(tags)),
            (None, Some(Tags::Every)) => Ok(Self::Absent),
            (None, Some(Tags::These(tags))) => Ok(Self::NoneOf(tags)),
            (Some(_), Some(_)) => Err(Problem::bad_request(
                "`If-Match` and `If-None-Match` exclude each other",
            )),
        }
    }

    /// Whether it holds where `now` is there.
    pub(super) fn holds(&self, now: Option<&str>) -> bool {
        match self {
            Self::Any => true,
            Self::Present => now.is_some(),
            Self::Absent => now.is_none(),
            Self::OneOf(tags) => now.is_some_and(|now| tags.iter().any(|tag| tag == now)),
            Self::NoneOf(tags) => now.is_none_or(|now| tags.iter().all(|tag| tag != now)),
        }
    }

    /// An error if it does not hold.
    pub(super) fn check(&self, now: Option<&str>) -> Result<(), Problem> {
        if self.holds(now) {
            return Ok(());
        }
        let there = match now {
            Some(now) => format!("the ETag is \"{now}\""),
            None => "it does not exist".into(),
        };
        Err(Problem::new(
            StatusCode::PRECONDITION_FAILED,
            format!("somebody else was faster: {there}"),
        ))
    }
}

enum Tags {
    Every,
    /// Without their quotes.
    These(Vec<String>),
}

fn tags(headers: &HeaderMap, name: HeaderName) -> Result<Option<Tags>, Problem> {
    let bad = || Problem::bad_request(format!("`{name}` must be * or a list of ETags in quotes"));
    let mut tags = Vec::new();
    let mut given = false;
    for value in headers.get_all(&name) {
        given = true;
        let value = value.to_str().map_err(|_| bad())?;
        if value.trim() == "*" {
            return Ok(Some(Tags::Every));
        }
        for tag in value
            .split(',')
            .map(str::trim)
            .filter(|tag| !tag.is_empty())
        {
            let weak = tag.starts_with("W/");
            let tag = tag.trim_start_matches("W/");
            let tag = tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"'));
            let tag = tag.ok_or_else(bad)?;
            // To overwrite something, it must be known to the last byte.
            if !(weak && name == header::IF_MATCH) {
                tags.push(tag.to_owned());
            }
        }
    }
    Ok(given.then_some(Tags::These(tags)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(headers: &[(HeaderName, &str)]) -> Result<Condition, Problem> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(name, value.parse().unwrap());
        }
        Condition::of(&map)
    }

    #[test]
    fn conditions_are_read_and_judged() {
        use header::{IF_MATCH, IF_NONE_MATCH};
        let any = of(&[]).unwrap();
        assert!(any.holds(None) && any.holds(Some("a")));
        let present = of(&[(IF_MATCH, "*")]).unwrap();
        assert!(!present.holds(None) && present.holds(Some("a")));
        let absent = of(&[(IF_NONE_MATCH, "*")]).unwrap();
        assert!(absent.holds(None) && !absent.holds(Some("a")));
        let one_of = of(&[(IF_MATCH, "\"a\", \"b\""), (IF_MATCH, "\"c\", W/\"d\"")]).unwrap();
        let held = [Some("a"), Some("b"), Some("c"), Some("d"), None];
        assert_eq!(
            held.map(|now| one_of.holds(now)),
            [true, true, true, false, false]
        );
        let none_of = of(&[(IF_NONE_MATCH, "W/\"a\"")]).unwrap();
        assert!(none_of.holds(None) && none_of.holds(Some("b")) && !none_of.holds(Some("a")));
        for bad in [
            &[(IF_MATCH, "a")][..],
            &[(IF_MATCH, "\"a")],
            &[(IF_MATCH, "*"), (IF_NONE_MATCH, "*")],
        ] {
            assert!(of(bad).is_err(), "{bad:?}");
        }
    }
}
