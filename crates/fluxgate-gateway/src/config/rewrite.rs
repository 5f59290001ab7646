//! How requests and responses of a route are changed.

use std::time::Duration;

/// How the target and the host of a request are changed before it is forwarded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RewriteConfig {
    /// Whole segments to remove from the start of the path, such as `/api`.
    pub strip_prefix: Option<Box<str>>,
    /// What is added to the start of the path, such as `/v1`.
    pub add_prefix: Option<Box<str>>,
    /// The host that the upstream gets.
    pub host: HostRewrite,
}

/// The host that an upstream gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HostRewrite {
    /// That of the client.
    #[default]
    Client,
    /// That of the upstream.
    Upstream,
    /// This one, perhaps with a port.
    Name(Box<str>),
}

/// Headers that are set or removed. Names are in lower case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderEdits {
    /// Headers that replace all lines of the same name.
    pub set: Vec<(Box<str>, Box<str>)>,
    /// Headers that are removed.
    pub remove: Vec<Box<str>>,
}

impl HeaderEdits {
    /// Returns whether nothing is changed.
    pub(crate) fn is_empty(&self) -> bool {
        self.set.is_empty() && self.remove.is_empty()
    }

    /// Returns the names of all headers that are set or removed.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let set = self.set.iter().map(|(name, _)| &**name);
        set.chain(self.remove.iter().map(|name| &**name))
    }
}

/// Which pages of other sites may use a route (CORS).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CorsConfig {
    /// Their origins, such as `https://app.example.com`; `*` is any.
    pub origins: Vec<String>,
    /// The methods that they may use.
    pub methods: Vec<String>,
    /// The headers that they may send.
    pub headers: Vec<String>,
    /// Whether they may send cookies and the like.
    pub credentials: bool,
    /// How long browsers remember this.
    pub max_age: Duration,
}

impl CorsConfig {
    /// Returns whether pages of any site may use the route.
    pub(crate) fn allows_any(&self) -> bool {
        self.origins.iter().any(|origin| origin == "*")
    }
}

/// What a route requires of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderTest {
    /// It occurs once, with one of these values.
    AnyOf(Vec<Box<str>>),
    /// It does not occur with any of these values.
    NoneOf(Vec<Box<str>>),
    /// It occurs, or does not.
    Present(bool),
}

impl HeaderTest {
    /// Returns whether these lines of the header are as required.
    pub(crate) fn matches<'a>(&self, mut lines: impl Iterator<Item = &'a [u8]>) -> bool {
        let is_among = |values: &[Box<str>], line: &[u8]| {
            let mut values = values.iter();
            values.any(|value| value.as_bytes() == line)
        };
        match self {
            Self::AnyOf(values) => {
                let first = lines.next();
                first.is_some_and(|line| is_among(values, line)) && lines.next().is_none()
            }
            Self::NoneOf(values) => !lines.any(|line| is_among(values, line)),
            Self::Present(is_present) => lines.next().is_some() == *is_present,
        }
    }
}
