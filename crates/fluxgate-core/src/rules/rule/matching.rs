//! The conditions of a rule, in Rust.

use super::Rule;
use crate::matcher::ValueMatch;

impl Rule {
    /// Requires the path to match this pattern, or another one that is added like this.
    /// `?` is one character, `*` any characters of a segment, `{name}` one segment that is not
    /// empty, `**` zero or more segments.
    pub fn match_path(mut self, pattern: impl Into<Box<str>>) -> Self {
        self.paths.push(pattern.into());
        self
    }

    /// Excepts the paths that match this pattern.
    pub fn match_not_path(mut self, pattern: impl Into<Box<str>>) -> Self {
        self.not_paths.push(pattern.into());
        self
    }

    /// Requires this method, or another one that is added like this.
    pub fn match_method(mut self, method: impl Into<Box<str>>) -> Self {
        self.methods.push(method.into());
        self
    }

    /// Requires a header to have this value, one of several, or any other [`ValueMatch`].
    ///
    /// ```
    /// use fluxgate_core::{Quota, Rule, ValueMatch};
    ///
    /// let rule = Rule::new("apps")
    ///     .match_header("x-client", ["ios", "android"])
    ///     .match_header("x-debug", ValueMatch::absent())
    ///     .per_user()
    ///     .band(Quota::per_second(10));
    /// ```
    pub fn match_header(mut self, name: impl Into<Box<str>>, value: impl Into<ValueMatch>) -> Self {
        self.match_headers.push((name.into(), value.into()));
        self
    }

    /// Requires an attribute of the request to have this value, one of several, or any
    /// other [`ValueMatch`].
    pub fn match_attribute(
        mut self,
        name: impl Into<Box<str>>,
        value: impl Into<ValueMatch>,
    ) -> Self {
        self.match_attributes.push((name.into(), value.into()));
        self
    }

    /// Requires the user to be this one, one of several, or any other [`ValueMatch`].
    pub fn match_user(mut self, user: impl Into<ValueMatch>) -> Self {
        self.match_user = Some(user.into());
        self
    }

    /// Requires the API key to be this one, one of several, or any other [`ValueMatch`]. A value
    /// may be written as `sha256:` and the 64 hexadecimal digits of the key's SHA-256, so that
    /// the rules do not reveal the key.
    pub fn match_api_key(mut self, key: impl Into<ValueMatch>) -> Self {
        self.match_api_key = Some(key.into());
        self
    }

    /// Requires the client's address to be in this network, or in another one that is added
    /// like this: `10.0.0.0/8`, `2001:db8::/32` or a single address.
    pub fn match_ip(mut self, network: impl Into<Box<str>>) -> Self {
        self.ips.push(network.into());
        self
    }

    /// Requires the client's address to be in a [list](crate::RuleSetBuilder::list) of addresses
    /// and networks, instead of networks of the rule itself.
    pub fn match_ip_in(mut self, list: impl Into<Box<str>>) -> Self {
        self.ip_list = Some(list.into());
        self
    }

    /// Excepts the clients in a [list](crate::RuleSetBuilder::list) of addresses and networks.
    pub fn match_not_ip_in(mut self, list: impl Into<Box<str>>) -> Self {
        self.not_ip_list = Some(list.into());
        self
    }

    /// Excepts the clients in this network.
    pub fn match_not_ip(mut self, network: impl Into<Box<str>>) -> Self {
        self.not_ips.push(network.into());
        self
    }
}
