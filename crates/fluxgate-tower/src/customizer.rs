//! Changes to what is known of a request, before it is decided.

use std::fmt;
use std::sync::Arc;

use fluxgate_core::RequestContextBuilder;
use http::request::Parts;

use crate::filter::Customize;

/// Changes what is known of a request before it is decided: the tenant from a
/// header, the address from `CF-Connecting-IP`, the user of a verified token.
pub trait Customizer: Send + Sync {
    /// What is known then.
    fn customize<'a>(
        &self,
        context: RequestContextBuilder<'a>,
        request: &'a Parts,
    ) -> RequestContextBuilder<'a>;
}

impl<F> Customizer for F
where
    F: for<'a> Fn(RequestContextBuilder<'a>, &'a Parts) -> RequestContextBuilder<'a> + Send + Sync,
{
    fn customize<'a>(
        &self,
        context: RequestContextBuilder<'a>,
        request: &'a Parts,
    ) -> RequestContextBuilder<'a> {
        self(context, request)
    }
}

/// Customizers, one after another.
#[derive(Clone, Default)]
pub(crate) struct Chain(Vec<Arc<dyn Customizer>>);

impl Chain {
    pub(crate) fn push(&mut self, customizer: impl Customizer + 'static) {
        self.0.push(Arc::new(customizer));
    }
}

impl Customize<Parts> for Chain {
    fn customize<'a>(
        &self,
        context: RequestContextBuilder<'a>,
        head: &'a Parts,
    ) -> RequestContextBuilder<'a> {
        let customizers = self.0.iter();
        customizers.fold(context, |context, next| next.customize(context, head))
    }
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Chain({})", self.0.len())
    }
}
