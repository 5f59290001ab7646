package io.fluxgate.spring.servlet;

import io.fluxgate.spring.RateLimitExceededException;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.io.UncheckedIOException;
import org.springframework.core.Ordered;
import org.springframework.web.servlet.HandlerExceptionResolver;
import org.springframework.web.servlet.ModelAndView;

/** Answers a request whose handler called a limited method and was denied. */
public final class RefusalResolver implements HandlerExceptionResolver, Ordered {
    @Override
    public ModelAndView resolveException(
            HttpServletRequest request, HttpServletResponse response, Object handler, Exception error) {
        if (!(error instanceof RateLimitExceededException refused) || response.isCommitted()) {
            return null;
        }
        try {
            ServletRequests.write(refused.refusal(), response);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        return new ModelAndView();
    }

    /** A program that answers all exceptions with 500 must not catch this one. */
    @Override
    public int getOrder() {
        return HIGHEST_PRECEDENCE;
    }
}
