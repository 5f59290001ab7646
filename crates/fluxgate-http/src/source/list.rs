//! Several sources for one value.

use std::borrow::Cow;

use super::Source;
use crate::claims::Claims;
use crate::request_head::{BadRequest, RequestHead};

/// The sources of one value, in order of precedence: the first that a request has counts. An
/// empty value counts as absent.
///
/// ```
/// use fluxgate_http::{Identity, Source};
///
/// let identity = Identity::default().user([Source::bearer(), Source::header("x-user-id")]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceList(Vec<Source>);

impl SourceList {
    /// Returns the sources.
    pub fn iter(&self) -> std::slice::Iter<'_, Source> {
        self.0.iter()
    }

    /// Returns the value of the first source that the request has.
    ///
    /// # Errors
    /// If any of the sources is ambiguous: the server may prefer another one.
    pub(crate) fn value<'a>(
        &self,
        head: &'a impl RequestHead,
        claims: &Claims,
    ) -> Result<Option<Cow<'a, str>>, BadRequest> {
        // Nearly all lists have one source.
        if let [source] = &self.0[..] {
            return source.value(head, claims);
        }
        let mut first = None;
        for source in &self.0 {
            let value = source.value(head, claims)?;
            first = first.or(value.filter(|value| !value.is_empty()));
        }
        Ok(first)
    }
}

impl<'a> IntoIterator for &'a SourceList {
    type Item = &'a Source;
    type IntoIter = std::slice::Iter<'a, Source>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl From<Source> for SourceList {
    fn from(source: Source) -> Self {
        Self(vec![source])
    }
}

impl From<Vec<Source>> for SourceList {
    fn from(sources: Vec<Source>) -> Self {
        Self(sources)
    }
}

impl<const N: usize> From<[Source; N]> for SourceList {
    fn from(sources: [Source; N]) -> Self {
        Self(sources.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    #[test]
    fn the_first_source_that_is_present_counts() {
        let list = SourceList::from([
            Source::bearer(),
            Source::header("x-user-id"),
            Source::query("user"),
        ]);
        let value = |target: &str, headers: &[(&str, &str)]| {
            let request = headers
                .iter()
                .fold(Request::get(target), |request, (name, value)| {
                    request.header(*name, *value)
                });
            let head = request.body(()).unwrap().into_parts().0;
            list.value(&head, &Claims::default())
                .map(|value| value.map(Cow::into_owned))
        };
        let some = |text: &str| Ok(Some(text.to_owned()));
        let bearer = ("authorization", "BEARER  t");
        assert_eq!(value("/", &[]), Ok(None));
        assert_eq!(value("/?user=q", &[]), some("q"));
        assert_eq!(value("/?user=q", &[("x-user-id", "h")]), some("h"));
        assert_eq!(value("/?user=q", &[("x-user-id", "")]), some("q"));
        assert_eq!(value("/?user=q", &[("x-user-id", "h"), bearer]), some("t"));
        let basic = ("authorization", "Basic x");
        assert_eq!(value("/?user=q", &[basic]), some("q"));
        // A server may prefer another source.
        let twice = value("/?user=q&user=r", &[bearer]);
        assert_eq!(twice, Err(BadRequest::ConflictingValues));
    }
}
