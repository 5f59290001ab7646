package org.fluxgate.core.handler;

import org.fluxgate.core.context.RequestContext;

/**
 * Decided requests in programs for OpenFluxGate. It is here so that they compile, and is not called:
 * the service decides.
 */
public interface FluxgateRateLimitHandler {
    RateLimitResponse tryConsume(RequestContext context, String ruleSetId);
}
