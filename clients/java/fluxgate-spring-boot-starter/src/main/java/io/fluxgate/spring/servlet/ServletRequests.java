package io.fluxgate.spring.servlet;

import io.fluxgate.client.web.Refusal;
import io.fluxgate.client.web.RequestHead;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Enumeration;
import java.util.List;
import java.util.Map;

/** Reads requests and writes refusals. */
public final class ServletRequests {
    private ServletRequests() {}

    public static RequestHead head(HttpServletRequest request) {
        List<Map.Entry<String, String>> headers = new ArrayList<>();
        for (Enumeration<String> names = request.getHeaderNames(); names.hasMoreElements(); ) {
            String name = names.nextElement();
            for (Enumeration<String> lines = request.getHeaders(name); lines.hasMoreElements(); ) {
                headers.add(Map.entry(name, lines.nextElement()));
            }
        }
        return new RequestHead(request.getMethod(), request.getRequestURI(), headers, request.getRemoteAddr());
    }

    public static void write(Refusal refusal, HttpServletResponse response) throws IOException {
        response.setStatus(refusal.status());
        refusal.headers().forEach(response::setHeader);
        byte[] body = refusal.body().getBytes(StandardCharsets.UTF_8);
        response.setContentLength(body.length);
        response.getOutputStream().write(body);
    }
}
