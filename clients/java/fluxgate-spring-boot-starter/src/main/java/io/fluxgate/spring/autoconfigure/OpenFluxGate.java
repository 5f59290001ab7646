package io.fluxgate.spring.autoconfigure;

import io.fluxgate.client.RequestContext;
import io.fluxgate.spring.RequestContextCustomizer;
import java.util.Map;

/** Adapts beans of programs that were written for OpenFluxGate. */
final class OpenFluxGate {
    private OpenFluxGate() {}

    static RequestContextCustomizer customizer(org.fluxgate.spring.filter.RequestContextCustomizer theirs) {
        return (context, request) -> {
            org.fluxgate.core.context.RequestContext.Builder builder = org.fluxgate.core.context.RequestContext.builder()
                    .clientIp(context.ip())
                    .userId(context.user())
                    .apiKey(context.apiKey())
                    .endpoint(context.path())
                    .method(context.method())
                    .headers(context.headers());
            context.attributes().forEach(builder::attribute);
            org.fluxgate.core.context.RequestContext customized = theirs.customize(builder, request).build();
            return copy(customized, context);
        };
    }

    private static RequestContext.Builder copy(
            org.fluxgate.core.context.RequestContext from, RequestContext.Builder to) {
        to.ip(from.getClientIp()).user(from.getUserId()).apiKey(from.getApiKey()).method(from.getMethod());
        // Setting the path would drop its normal form.
        if (from.getEndpoint() == null || !from.getEndpoint().equals(to.path())) {
            to.path(from.getEndpoint());
        }
        to.headers(from.getHeaders());
        for (Map.Entry<String, Object> attribute : from.getAttributes().entrySet()) {
            to.attribute(attribute.getKey(), String.valueOf(attribute.getValue()));
        }
        return to;
    }
}
