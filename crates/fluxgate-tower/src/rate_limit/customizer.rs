//! Customizers: changes to the context of a request before it is decided.

use std::fmt;
use std::sync::Arc;

use fluxgate_core::RequestContextBuilder;
use http::request::Parts;

/// Changes the context of a request before it is decided. It may add the tenant from a header,
/// the address from `CF-Connecting-IP` or the user of a verified token.
///
/// ```
/// use fluxgate_core::RequestContextBuilder;
/// use fluxgate_tower::Customizer;
/// use http::request::Parts;
///
/// /// Counts requests by the region of the server.
/// struct Region(&'static str);
///
/// impl Customizer for Region {
///     fn customize<'a>(
///         &self,
///         context: RequestContextBuilder<'a>,
///         _: &'a Parts,
///     ) -> RequestContextBuilder<'a> {
///         context.attribute("region", self.0)
///     }
/// }
/// ```
///
/// A closure needs no type: [`RateLimitLayer::customize`](crate::RateLimitLayer::customize).
pub trait Customizer: Send + Sync {
    /// Returns the changed context.
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

/// Applies customizers one after another.
#[derive(Clone, Default)]
pub(super) struct CustomizerChain(Vec<Arc<dyn Customizer>>);

impl CustomizerChain {
    pub(super) fn push(&mut self, customizer: impl Customizer + 'static) {
        self.0.push(Arc::new(customizer));
    }
}

impl Customizer for CustomizerChain {
    fn customize<'a>(
        &self,
        context: RequestContextBuilder<'a>,
        request: &'a Parts,
    ) -> RequestContextBuilder<'a> {
        let customizers = self.0.iter();
        customizers.fold(context, |context, next| next.customize(context, request))
    }
}

impl fmt::Debug for CustomizerChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CustomizerChain({})", self.0.len())
    }
}
