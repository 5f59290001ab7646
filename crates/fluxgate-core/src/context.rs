//! What is known of a request.

use std::borrow::Cow;
use std::net::IpAddr;

/// What is known of a request. Anything may be missing; an empty text counts
/// as missing where a key is built from it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestContext<'a> {
    pub(crate) ip: Option<IpAddr>,
    pub(crate) user: Option<Cow<'a, str>>,
    pub(crate) api_key: Option<Cow<'a, str>>,
    pub(crate) method: Option<Cow<'a, str>>,
    pub(crate) path: Option<Cow<'a, str>>,
    pub(crate) headers: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    pub(crate) attributes: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    pub(crate) cost: Option<u64>,
    pub(crate) whole_keys: bool,
}

impl<'a> RequestContext<'a> {
    /// Starts with nothing known.
    pub fn builder() -> RequestContextBuilder<'a> {
        RequestContextBuilder::default()
    }

    /// The client's address.
    pub fn ip(&self) -> Option<IpAddr> {
        self.ip
    }

    /// The user.
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// The API key.
    pub fn api_key(&self) -> Option<&str> {
        self.api_key.as_deref()
    }

    /// The method, as it was sent.
    pub fn method(&self) -> Option<&str> {
        self.method.as_deref()
    }

    /// The path, without the query.
    pub fn path(&self) -> Option<&str> {
        self.path.as_deref()
    }

    /// The cost that this request itself names.
    pub fn cost(&self) -> Option<u64> {
        self.cost
    }

    /// The first header of this name, whatever its case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_ref())
    }

    /// All headers, in order.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        let headers = self.headers.iter();
        headers.map(|(name, value)| (name.as_ref(), value.as_ref()))
    }

    /// All attributes, as they were set: of two of one name the last counts.
    pub fn attributes(&self) -> impl Iterator<Item = (&str, &str)> {
        let attributes = self.attributes.iter();
        attributes.map(|(name, value)| (name.as_ref(), value.as_ref()))
    }

    /// The attribute of this name.
    pub fn attribute(&self, name: &str) -> Option<&str> {
        // Of two, the one that was set last.
        let mut attributes = self.attributes.iter().rev();
        attributes
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_ref())
    }
}

impl RequestContext<'_> {
    /// The same, of texts of its own.
    pub fn into_owned(self) -> RequestContext<'static> {
        fn own(text: Cow<'_, str>) -> Cow<'static, str> {
            Cow::Owned(text.into_owned())
        }
        let own_all = |pairs: Vec<(Cow<'_, str>, Cow<'_, str>)>| {
            let pairs = pairs.into_iter();
            pairs.map(|(name, value)| (own(name), own(value))).collect()
        };
        RequestContext {
            ip: self.ip,
            user: self.user.map(own),
            api_key: self.api_key.map(own),
            method: self.method.map(own),
            path: self.path.map(own),
            headers: own_all(self.headers),
            attributes: own_all(self.attributes),
            cost: self.cost,
            whole_keys: self.whole_keys,
        }
    }
}

/// Builds a [`RequestContext`].
#[derive(Clone, Debug, Default)]
pub struct RequestContextBuilder<'a>(RequestContext<'a>);

impl<'a> RequestContextBuilder<'a> {
    /// Sets the client's address.
    pub fn ip(mut self, ip: impl Into<IpAddr>) -> Self {
        self.0.ip = Some(ip.into());
        self
    }

    /// Sets the user.
    pub fn user(mut self, user: impl Into<Cow<'a, str>>) -> Self {
        self.0.user = Some(user.into());
        self
    }

    /// Sets the API key.
    pub fn api_key(mut self, api_key: impl Into<Cow<'a, str>>) -> Self {
        self.0.api_key = Some(api_key.into());
        self
    }

    /// Sets the method.
    pub fn method(mut self, method: impl Into<Cow<'a, str>>) -> Self {
        self.0.method = Some(method.into());
        self
    }

    /// Sets the path, which should not contain the query.
    pub fn path(mut self, path: impl Into<Cow<'a, str>>) -> Self {
        self.0.path = Some(path.into());
        self
    }

    /// Adds a header.
    pub fn header(mut self, name: impl Into<Cow<'a, str>>, value: impl Into<Cow<'a, str>>) -> Self {
        self.0.headers.push((name.into(), value.into()));
        self
    }

    /// Sets all headers at once, in place of those before.
    pub fn headers(mut self, headers: Vec<(Cow<'a, str>, Cow<'a, str>)>) -> Self {
        self.0.headers = headers;
        self
    }

    /// Sets an attribute; one of the same name is replaced.
    pub fn attribute(
        mut self,
        name: impl Into<Cow<'a, str>>,
        value: impl Into<Cow<'a, str>>,
    ) -> Self {
        self.0.attributes.push((name.into(), value.into()));
        self
    }

    /// Sets all attributes at once, in place of those before.
    pub fn attributes(mut self, attributes: Vec<(Cow<'a, str>, Cow<'a, str>)>) -> Self {
        self.0.attributes = attributes;
        self
    }

    /// Sets the cost, which then replaces that of every rule.
    pub fn cost(mut self, cost: u64) -> Self {
        self.0.cost = Some(cost);
        self
    }

    /// Rules match only where every part of their key is there, whatever they
    /// say of missing ones.
    pub fn whole_keys_only(mut self) -> Self {
        self.0.whole_keys = true;
        self
    }

    /// The finished context.
    pub fn build(self) -> RequestContext<'a> {
        self.0
    }
}
