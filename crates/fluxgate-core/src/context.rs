//! The context of a request: everything that rules match or count by.

use std::borrow::Cow;
use std::net::IpAddr;
use std::time::Duration;

use crate::request_path::RequestPath;
use crate::time::Micros;

/// A name and a value, which need not be text.
type BytePair<'a> = (Cow<'a, [u8]>, Cow<'a, [u8]>);

/// The context of a request. Anything may be missing; an empty text counts as missing
/// in a key.
///
/// ```
/// use fluxgate_core::RequestContext;
///
/// let context = RequestContext::builder()
///     .ip([192, 0, 2, 7])
///     .user("ann")
///     .method("GET")
///     .path("/api/items")
///     .header("x-client", "app/3")
///     .attribute("plan", "free")
///     .cost(2)
///     .build();
/// assert_eq!(context.attribute("plan"), Some("free"));
/// ```
///
/// It borrows what it can. Set only what the rules match or count by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestContext<'a> {
    pub(crate) ip: Option<IpAddr>,
    pub(crate) user: Option<Cow<'a, str>>,
    pub(crate) api_key: Option<Cow<'a, str>>,
    pub(crate) method: Option<Cow<'a, str>>,
    pub(crate) path: Option<RequestPath<'a>>,
    pub(crate) headers: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// Nearly always text, but a descriptor of Envoy may hold any bytes.
    pub(crate) attributes: Vec<BytePair<'a>>,
    pub(crate) cost: Option<u64>,
    /// Whether rules that count tokens of language models count none.
    pub(crate) has_no_tokens: bool,
    /// Whether only rules whose charge can be returned apply.
    pub(crate) is_provisional: bool,
    /// Whether only rules that read nothing of a call apply.
    pub(crate) lacks_call: bool,
    /// Whether the charge is held.
    pub(crate) holds: bool,
    /// The requested lifetime of the hold; of slots even if the charge is not held.
    pub(crate) hold_for: Option<Micros>,
    pub(crate) whole_keys: bool,
    /// Whether the rules that charge denied requests have charged this one already.
    pub(crate) is_decided_again: bool,
}

impl<'a> RequestContext<'a> {
    /// Starts an empty context.
    pub fn builder() -> RequestContextBuilder<'a> {
        RequestContextBuilder::default()
    }

    /// Returns the client's address.
    pub fn ip(&self) -> Option<IpAddr> {
        self.ip
    }

    /// Returns the user.
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// Returns the API key.
    pub fn api_key(&self) -> Option<&str> {
        self.api_key.as_deref()
    }

    /// Returns the method, as it was sent.
    pub fn method(&self) -> Option<&str> {
        self.method.as_deref()
    }

    /// Returns the path as it was sent, without the query.
    pub fn path(&self) -> Option<&str> {
        self.path.as_ref().map(RequestPath::raw)
    }

    /// Returns the path with its normal form.
    pub fn request_path(&self) -> Option<&RequestPath<'a>> {
        self.path.as_ref()
    }

    /// Replaces the normal form of the path, if there is a path.
    pub fn with_normal_path(mut self, normal: impl Into<Cow<'a, str>>) -> Self {
        let path = self.path.take();
        self.path = path.map(|path| path.with_normal(normal).with_host_form());
        self
    }

    /// Compares path patterns without ASCII case.
    pub fn ignoring_case(mut self) -> Self {
        self.path = self.path.map(RequestPath::ignoring_case);
        self
    }

    /// Returns the cost that the request itself names.
    pub fn cost(&self) -> Option<u64> {
        self.cost
    }

    /// Returns whether the charge of the request is held.
    pub fn is_held(&self) -> bool {
        self.holds
    }

    /// Returns the requested lifetime of the hold, if the request names one.
    pub fn hold_for(&self) -> Option<Duration> {
        self.hold_for.map(Duration::from)
    }

    /// Returns whether this is the second decision on the request, after a denial.
    pub fn is_decided_again(&self) -> bool {
        self.is_decided_again
    }

    /// Returns the context for a second decision after a denial. Rules that charge denied
    /// requests have charged it already, and do not charge it again.
    pub fn decided_again(&self) -> Self {
        Self {
            is_decided_again: true,
            ..self.clone()
        }
    }

    /// Returns the first header of this name, in any case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_ref())
    }

    /// Returns all headers, in order.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        let headers = self.headers.iter();
        headers.map(|(name, value)| (name.as_ref(), value.as_ref()))
    }

    /// Returns all attributes that are text, in the order in which they were set. If
    /// two have the same name, the last one counts.
    pub fn attributes(&self) -> impl Iterator<Item = (&str, &str)> {
        let attributes = self.attributes.iter();
        attributes.filter_map(|(name, value)| {
            Some((str::from_utf8(name).ok()?, str::from_utf8(value).ok()?))
        })
    }

    /// Returns the attribute of this name, if it is text.
    pub fn attribute(&self, name: &str) -> Option<&str> {
        str::from_utf8(self.attribute_bytes(name)?).ok()
    }

    /// Returns the attribute of this name, text or not.
    pub(crate) fn attribute_bytes(&self, name: &str) -> Option<&[u8]> {
        // The last one with this name counts.
        let mut attributes = self.attributes.iter().rev();
        attributes
            .find(|(known, _)| **known == *name.as_bytes())
            .map(|(_, value)| value.as_ref())
    }
}

impl RequestContext<'_> {
    /// Converts to a context that owns its texts.
    pub fn into_owned(self) -> RequestContext<'static> {
        fn own<T: ToOwned + ?Sized>(value: Cow<'_, T>) -> Cow<'static, T> {
            Cow::Owned(value.into_owned())
        }
        let (headers, attributes) = (self.headers.into_iter(), self.attributes.into_iter());
        RequestContext {
            ip: self.ip,
            user: self.user.map(own),
            api_key: self.api_key.map(own),
            method: self.method.map(own),
            path: self.path.map(RequestPath::into_owned),
            headers: headers.map(|(k, v)| (own(k), own(v))).collect(),
            attributes: attributes.map(|(k, v)| (own(k), own(v))).collect(),
            cost: self.cost,
            has_no_tokens: self.has_no_tokens,
            is_provisional: self.is_provisional,
            lacks_call: self.lacks_call,
            holds: self.holds,
            hold_for: self.hold_for,
            whole_keys: self.whole_keys,
            is_decided_again: self.is_decided_again,
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

    /// Sets the path, without the query, as it is. For a path that came over HTTP, see
    /// [`RequestContextBuilder::request_path`].
    pub fn path(self, path: impl Into<Cow<'a, str>>) -> Self {
        self.request_path(RequestPath::as_given(path))
    }

    /// Sets a path that came over HTTP, as [`RequestPath::read`] reads it. Servers read
    /// `/a/../b` and `/%62` as `/b`, so a rule applies if either the path as it was sent or its
    /// normal form matches.
    pub fn request_path(mut self, path: RequestPath<'a>) -> Self {
        self.0.path = Some(path);
        self
    }

    /// Adds a header.
    pub fn header(mut self, name: impl Into<Cow<'a, str>>, value: impl Into<Cow<'a, str>>) -> Self {
        self.0.headers.push((name.into(), value.into()));
        self
    }

    /// Sets all headers, in place of those before.
    pub fn headers(mut self, headers: Vec<(Cow<'a, str>, Cow<'a, str>)>) -> Self {
        self.0.headers = headers;
        self
    }

    /// Sets an attribute, in place of one with the same name.
    pub fn attribute(
        mut self,
        name: impl Into<Cow<'a, str>>,
        value: impl Into<Cow<'a, str>>,
    ) -> Self {
        let pair = (into_bytes(name.into()), into_bytes(value.into()));
        self.0.attributes.push(pair);
        self
    }

    /// Sets all attributes, in place of those before.
    pub fn attributes(mut self, attributes: Vec<(Cow<'a, str>, Cow<'a, str>)>) -> Self {
        let pairs = attributes
            .into_iter()
            .map(|(name, value)| (into_bytes(name), into_bytes(value)));
        self.0.attributes = pairs.collect();
        self
    }

    /// Sets all attributes, text or not. They are compared by their bytes, without any
    /// conversion to UTF-8.
    pub fn attributes_bytes(mut self, attributes: Vec<BytePair<'a>>) -> Self {
        self.0.attributes = attributes;
        self
    }

    /// Sets the cost, which replaces that of every rule.
    pub fn cost(mut self, cost: u64) -> Self {
        self.0.cost = Some(cost);
        self
    }

    /// Makes rules that count tokens of language models cost nothing: the request uses none,
    /// or it is not known yet how many. Their keys are still required.
    pub fn without_tokens(mut self) -> Self {
        self.0.has_no_tokens = true;
        self
    }

    /// Restricts the rules to those that need nothing but the head of a request, and whose charge
    /// can be returned without a trace: enforced ones that neither count tokens, nor delay
    /// requests, nor charge denied ones. Such a charge is released before the real one is made.
    pub fn provisional(mut self) -> Self {
        self.0.is_provisional = true;
        self
    }

    /// Restricts the rules to those that decide the same whatever call of the Model Context
    /// Protocol the request makes, because it is not known yet. If a set
    /// [exempts calls](crate::rules::RuleSet::exempts_calls), no denial by the others is final.
    pub fn without_call(mut self) -> Self {
        self.0.lacks_call = true;
        self
    }

    /// Holds the charge: [`Decision::hold`](crate::Decision::hold) has an id, by which it can
    /// be settled with the real cost for this long.
    pub fn hold(self, span: Duration) -> Self {
        self.hold_for(Micros::from_duration(span)).held()
    }

    /// Holds the charge for as long as its slots may be held, or for a minute without slots.
    pub fn held(mut self) -> Self {
        self.0.holds = true;
        self
    }

    /// Sets the lifetime of the hold, if the charge is held, and of slots even if it is not.
    pub fn hold_for(mut self, span: Micros) -> Self {
        self.0.hold_for = Some(span);
        self
    }

    /// Restricts matching to rules whose key has all its parts in this request, whatever
    /// their `on_missing_key`.
    pub fn whole_keys_only(mut self) -> Self {
        self.0.whole_keys = true;
        self
    }

    /// Builds the context.
    pub fn build(self) -> RequestContext<'a> {
        self.0
    }
}

/// The single-valued fields that a protocol may carry. Any of them may be missing.
#[derive(Clone, Debug, Default)]
pub struct RequestFields<'a> {
    /// The client's address.
    pub ip: Option<IpAddr>,
    /// The user.
    pub user: Option<Cow<'a, str>>,
    /// The API key.
    pub api_key: Option<Cow<'a, str>>,
    /// The method.
    pub method: Option<Cow<'a, str>>,
    /// The path, without the query; see [`RequestContextBuilder::path`].
    pub path: Option<Cow<'a, str>>,
    /// The cost, which replaces that of every rule.
    pub cost: Option<u64>,
}

impl<'a> From<RequestContext<'a>> for RequestContextBuilder<'a> {
    fn from(context: RequestContext<'a>) -> Self {
        Self(context)
    }
}

impl<'a> From<RequestFields<'a>> for RequestContextBuilder<'a> {
    fn from(fields: RequestFields<'a>) -> Self {
        Self(RequestContext {
            ip: fields.ip,
            user: fields.user,
            api_key: fields.api_key,
            method: fields.method,
            path: fields.path.map(RequestPath::as_given),
            cost: fields.cost,
            ..RequestContext::default()
        })
    }
}

fn into_bytes(text: Cow<'_, str>) -> Cow<'_, [u8]> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}
