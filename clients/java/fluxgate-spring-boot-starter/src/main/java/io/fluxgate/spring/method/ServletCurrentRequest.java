package io.fluxgate.spring.method;

import io.fluxgate.client.RequestContext;
import io.fluxgate.client.web.RequestLimiter;
import io.fluxgate.spring.RequestContextCustomizer;
import io.fluxgate.spring.servlet.ServletRequests;
import java.util.List;
import java.util.Map;
import java.util.function.Supplier;
import org.springframework.web.context.request.RequestContextHolder;
import org.springframework.web.context.request.ServletRequestAttributes;

/** The request of a servlet program, as Spring MVC keeps it for the thread. */
public record ServletCurrentRequest(ServletRequestAttributes attributes, List<RequestContextCustomizer> customizers)
        implements CurrentRequest {

    /** Returns the request of this thread, if it serves one. */
    public static CurrentRequest find(Supplier<List<RequestContextCustomizer>> customizers) {
        return RequestContextHolder.getRequestAttributes() instanceof ServletRequestAttributes attributes
                ? new ServletCurrentRequest(attributes, customizers.get())
                : NONE;
    }

    @Override
    public RequestLimiter.Reading read(RequestLimiter limiter) {
        return limiter.read(ServletRequests.head(attributes.getRequest()));
    }

    @Override
    public RequestContext.Builder customize(RequestContext.Builder context) {
        RequestContext.Builder customized = context;
        for (RequestContextCustomizer customizer : customizers) {
            customized = customizer.customize(customized, attributes.getRequest());
        }
        return customized;
    }

    @Override
    public void addHeaders(Map<String, String> headers) {
        if (attributes.getResponse() != null) {
            headers.forEach(attributes.getResponse()::setHeader);
        }
    }
}
