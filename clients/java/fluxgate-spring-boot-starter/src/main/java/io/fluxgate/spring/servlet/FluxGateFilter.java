package io.fluxgate.spring.servlet;

import io.fluxgate.client.RequestContext;
import io.fluxgate.client.web.Admission;
import io.fluxgate.client.web.RequestLimiter;
import io.fluxgate.spring.RequestContextCustomizer;
import jakarta.servlet.AsyncEvent;
import jakarta.servlet.AsyncListener;
import jakarta.servlet.Filter;
import jakarta.servlet.FilterChain;
import jakarta.servlet.ServletException;
import jakarta.servlet.ServletRequest;
import jakarta.servlet.ServletResponse;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;

/**
 * Limits the requests of a servlet program.
 *
 * <p>A request that waits blocks its thread. The container does not report a client that leaves, so
 * the wait goes on.
 */
public final class FluxGateFilter implements Filter {
    private final RequestLimiter limiter;
    private final List<RequestContextCustomizer> customizers;

    public FluxGateFilter(RequestLimiter limiter, List<RequestContextCustomizer> customizers) {
        this.limiter = limiter;
        this.customizers = List.copyOf(customizers);
    }

    @Override
    public void doFilter(ServletRequest request, ServletResponse response, FilterChain chain)
            throws IOException, ServletException {
        if (request instanceof HttpServletRequest http && response instanceof HttpServletResponse answer) {
            limit(http, answer, chain);
        } else {
            chain.doFilter(request, response);
        }
    }

    private void limit(HttpServletRequest request, HttpServletResponse response, FilterChain chain)
            throws IOException, ServletException {
        RequestLimiter.Reading reading = limiter.read(ServletRequests.head(request));
        if (reading.refusal().isPresent()) {
            ServletRequests.write(reading.refusal().get(), response);
            return;
        }
        if (reading.context().isEmpty()) {
            chain.doFilter(request, response);
            return;
        }
        RequestContext.Builder context = reading.context().get();
        for (RequestContextCustomizer customizer : customizers) {
            context = customizer.customize(context, request);
        }
        Admission admission = get(limiter.admit(reading, context.build()));
        if (admission.refusal().isPresent()) {
            ServletRequests.write(admission.refusal().get(), response);
            return;
        }
        admission.headers().forEach(response::setHeader);
        try {
            chain.doFilter(request, response);
        } finally {
            closeAtEnd(admission, request);
        }
    }

    static Admission get(CompletableFuture<Admission> admitted) throws ServletException {
        try {
            return admitted.get();
        } catch (InterruptedException e) {
            admitted.cancel(false);
            Thread.currentThread().interrupt();
            throw new ServletException("interrupted while waiting for a decision", e);
        } catch (ExecutionException e) {
            throw new ServletException("no decision on the request", e.getCause());
        }
    }

    /** Closes an admission when the response has ended, which may be later than the filter. */
    private static void closeAtEnd(Admission admission, HttpServletRequest request) {
        if (admission.hold().isEmpty()) {
            return;
        }
        try {
            if (request.isAsyncStarted()) {
                request.getAsyncContext().addListener(new CloseOnComplete(admission));
                return;
            }
        } catch (IllegalStateException e) {
            // The response ended between the two calls.
        }
        admission.close();
    }

    private record CloseOnComplete(Admission admission) implements AsyncListener {
        @Override
        public void onComplete(AsyncEvent event) {
            admission.close();
        }

        @Override
        public void onTimeout(AsyncEvent event) {
            // The container completes the response.
        }

        @Override
        public void onError(AsyncEvent event) {
            admission.close();
        }

        @Override
        public void onStartAsync(AsyncEvent event) {
            // A dispatch that starts again loses its listeners.
            event.getAsyncContext().addListener(this);
        }
    }
}
