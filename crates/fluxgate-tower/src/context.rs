//! From a request to what the rules ask about.

use std::borrow::Cow;
use std::net::IpAddr;

use fluxgate_core::{RequestContext, RequestContextBuilder};

use crate::handler::Wanted;
use crate::head::Head;

/// The headers that say who a request is from; names in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The user.
    pub user: Box<str>,
    /// The API key.
    pub api_key: Box<str>,
}

impl Default for Identity {
    fn default() -> Self {
        Self {
            user: "x-user-id".into(),
            api_key: "x-api-key".into(),
        }
    }
}

impl Identity {
    /// The user in another header.
    pub fn user_header(mut self, name: &str) -> Self {
        self.user = name.to_ascii_lowercase().into();
        self
    }

    /// The API key in another header.
    pub fn api_key_header(mut self, name: &str) -> Self {
        self.api_key = name.to_ascii_lowercase().into();
        self
    }
}

/// What is known of a request by its head. A header that is not text counts as
/// missing.
pub(crate) fn of_head<'a>(
    head: &'a impl Head,
    ip: Option<IpAddr>,
    identity: &Identity,
    wanted: Wanted<'a>,
) -> RequestContextBuilder<'a> {
    let mut context = RequestContext::builder()
        .method(head.method())
        .path(head.path());
    if let Some(ip) = ip {
        context = context.ip(ip);
    }
    if let Some(user) = head.header(&identity.user) {
        context = context.user(user);
    }
    if let Some(api_key) = head.header(&identity.api_key) {
        context = context.api_key(api_key);
    }
    let pair = |name: &'a str, value: &'a str| (Cow::Borrowed(name), Cow::Borrowed(value));
    match wanted {
        Wanted::Only([]) => context,
        Wanted::Only(names) => {
            let headers = names.iter();
            let headers = headers.filter_map(|name| Some(pair(name, head.header(name)?)));
            context.headers(headers.collect())
        }
        Wanted::All => {
            let mut first: Vec<(&str, &[u8])> = Vec::new();
            for (name, value) in head.all_headers() {
                if !first.iter().any(|(it, _)| it.eq_ignore_ascii_case(name)) {
                    first.push((name, value));
                }
            }
            let text = |value| std::str::from_utf8(value).ok();
            let headers = first.into_iter();
            let headers = headers.filter_map(|(name, value)| Some(pair(name, text(value)?)));
            context.headers(headers.collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderValue, Request};

    #[test]
    fn blanks_around_a_value_do_not_count() {
        let request = Request::get("/x").header("x-user-id", "ann\t ");
        let (head, ()) = request.header("a", " b").body(()).unwrap().into_parts();
        for wanted in [Wanted::All, Wanted::Only(&["a".into()])] {
            let context = of_head(&head, None, &Identity::default(), wanted).build();
            assert_eq!(context.user(), Some("ann"));
            assert!(context.headers().any(|header| header == ("a", "b")));
        }
    }

    /// Of several lines the first counts, and is missing if it is not text:
    /// whether all headers are wanted or some.
    #[test]
    fn the_first_line_of_a_header_counts() {
        let bytes = |value: &[u8]| HeaderValue::from_bytes(value).unwrap();
        let request = Request::get("/x")
            .header("a", bytes(b"x\xff"))
            .header("a", "second")
            .header("b", "first")
            .header("b", "second");
        let (head, ()) = request.body(()).unwrap().into_parts();
        let names: [Box<str>; 2] = ["a".into(), "b".into()];
        for wanted in [Wanted::All, Wanted::Only(&names)] {
            let context = of_head(&head, None, &Identity::default(), wanted).build();
            assert_eq!(context.headers().collect::<Vec<_>>(), [("b", "first")]);
        }
    }
}
