package io.fluxgate.spring;

import io.fluxgate.client.RequestContext;
import jakarta.servlet.http.HttpServletRequest;

/**
 * Changes what rules see of a request of a servlet program: a bean of this type adds a tenant, takes
 * the user from a verified token, or sets a cost. Several are applied in their order.
 *
 * <pre>{@code
 * @Bean
 * RequestContextCustomizer tenant() {
 *     return (context, request) -> context.attribute("tenant", request.getHeader("X-Tenant-Id"));
 * }
 * }</pre>
 */
@FunctionalInterface
public interface RequestContextCustomizer {
    RequestContext.Builder customize(RequestContext.Builder context, HttpServletRequest request);
}
