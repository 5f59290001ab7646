package org.fluxgate.spring.filter;

import jakarta.servlet.http.HttpServletRequest;
import org.fluxgate.core.context.RequestContext;

/** {@link io.fluxgate.spring.RequestContextCustomizer} as programs for OpenFluxGate implement it. */
@FunctionalInterface
public interface RequestContextCustomizer {
    RequestContext.Builder customize(RequestContext.Builder builder, HttpServletRequest request);

    static RequestContextCustomizer identity() {
        return (builder, request) -> builder;
    }

    default RequestContextCustomizer andThen(RequestContextCustomizer after) {
        return (builder, request) -> after.customize(customize(builder, request), request);
    }
}
