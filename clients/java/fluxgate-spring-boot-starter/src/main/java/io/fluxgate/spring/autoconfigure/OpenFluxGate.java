package io.fluxgate.spring.autoconfigure;

import io.fluxgate.spring.RequestContextCustomizer;
import org.fluxgate.core.context.RequestContext;

/** Adapts beans of programs that were written for OpenFluxGate. */
final class OpenFluxGate {
    private OpenFluxGate() {}

    static RequestContextCustomizer customizer(org.fluxgate.spring.filter.RequestContextCustomizer theirs) {
        return (context, request) ->
                theirs.customize(RequestContext.Builder.of(context), request).fields();
    }
}
