package io.fluxgate.spring.method;

import io.fluxgate.client.RequestContext;
import io.fluxgate.client.web.RequestLimiter;
import java.util.Map;

/** The HTTP request that the current thread serves, if it serves one. */
public interface CurrentRequest {
    /** Reads the request for a limiter. */
    RequestLimiter.Reading read(RequestLimiter limiter);

    /** Applies the program's customizers. */
    RequestContext.Builder customize(RequestContext.Builder context);

    /** Adds limit headers to the response, if it has not begun. */
    void addHeaders(Map<String, String> headers);

    /** Stands for a call outside of a request. */
    CurrentRequest NONE = new CurrentRequest() {
        @Override
        public RequestLimiter.Reading read(RequestLimiter limiter) {
            return RequestLimiter.Reading.none();
        }

        @Override
        public RequestContext.Builder customize(RequestContext.Builder context) {
            return context;
        }

        @Override
        public void addHeaders(Map<String, String> headers) {}
    };
}
