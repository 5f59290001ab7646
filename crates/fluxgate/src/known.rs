//! What an interface may know of a request, besides headers and attributes.

use std::borrow::Cow;
use std::net::IpAddr;

use fluxgate_core::{RequestContext, RequestContextBuilder};

/// What is known of a request; anything may be missing.
#[derive(Default)]
pub(crate) struct Known<'a> {
    pub(crate) ip: Option<IpAddr>,
    pub(crate) user: Option<Cow<'a, str>>,
    pub(crate) api_key: Option<Cow<'a, str>>,
    pub(crate) method: Option<Cow<'a, str>>,
    pub(crate) path: Option<Cow<'a, str>>,
    pub(crate) cost: Option<u64>,
}

impl<'a> Known<'a> {
    /// A context with all that is known.
    pub(crate) fn builder(self) -> RequestContextBuilder<'a> {
        let mut context = RequestContext::builder();
        if let Some(ip) = self.ip {
            context = context.ip(ip);
        }
        if let Some(user) = self.user {
            context = context.user(user);
        }
        if let Some(api_key) = self.api_key {
            context = context.api_key(api_key);
        }
        if let Some(method) = self.method {
            context = context.method(method);
        }
        if let Some(path) = self.path {
            context = context.path(path);
        }
        if let Some(cost) = self.cost {
            context = context.cost(cost);
        }
        context
    }
}
