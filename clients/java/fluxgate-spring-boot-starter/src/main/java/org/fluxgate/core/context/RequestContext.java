package org.fluxgate.core.context;

import java.util.HashMap;
import java.util.Map;

/**
 * What is known of a request, in the terms of OpenFluxGate. Its programs import this class and its
 * builder by name, in their implementations of
 * {@link org.fluxgate.spring.filter.RequestContextCustomizer}, so that a change of the dependency
 * is enough. The fields are those of {@link io.fluxgate.client.RequestContext}.
 */
public final class RequestContext {
    private final io.fluxgate.client.RequestContext fields;

    private RequestContext(io.fluxgate.client.RequestContext fields) {
        this.fields = fields;
    }

    public static Builder builder() {
        return new Builder(io.fluxgate.client.RequestContext.builder());
    }

    public String getClientIp() {
        return fields.ip();
    }

    public String getUserId() {
        return fields.user();
    }

    public String getApiKey() {
        return fields.apiKey();
    }

    /** Returns the path. */
    public String getEndpoint() {
        return fields.path();
    }

    public String getMethod() {
        return fields.method();
    }

    public Map<String, String> getHeaders() {
        return fields.headers();
    }

    public String getHeader(String name) {
        return fields.headers().get(name);
    }

    public Map<String, Object> getAttributes() {
        return new HashMap<>(fields.attributes());
    }

    public Object getAttribute(String key) {
        return fields.attributes().get(key);
    }

    /** Builds a context. Attributes are kept as text, which is what rules compare. */
    public static final class Builder {
        private final io.fluxgate.client.RequestContext.Builder fields;

        private Builder(io.fluxgate.client.RequestContext.Builder fields) {
            this.fields = fields;
        }

        /** Returns a builder that changes these fields. */
        public static Builder of(io.fluxgate.client.RequestContext.Builder fields) {
            return new Builder(fields);
        }

        /** Returns the fields that this builder changes. */
        public io.fluxgate.client.RequestContext.Builder fields() {
            return fields;
        }

        public Builder clientIp(String value) {
            fields.ip(value);
            return this;
        }

        public Builder userId(String value) {
            fields.user(value);
            return this;
        }

        public Builder apiKey(String value) {
            fields.apiKey(value);
            return this;
        }

        public Builder endpoint(String value) {
            fields.path(value);
            return this;
        }

        public Builder method(String value) {
            fields.method(value);
            return this;
        }

        public Builder header(String name, String value) {
            if (name != null && value != null) {
                fields.header(name, value);
            }
            return this;
        }

        public Builder headers(Map<String, String> values) {
            if (values != null) {
                values.forEach(this::header);
            }
            return this;
        }

        public Builder attribute(String key, Object value) {
            if (key != null && value != null) {
                fields.attribute(key, value.toString());
            }
            return this;
        }

        public Builder attributes(Map<String, Object> values) {
            if (values != null) {
                values.forEach(this::attribute);
            }
            return this;
        }

        public String getClientIp() {
            return fields.ip();
        }

        public String getUserId() {
            return fields.user();
        }

        public String getApiKey() {
            return fields.apiKey();
        }

        public String getEndpoint() {
            return fields.path();
        }

        public String getMethod() {
            return fields.method();
        }

        public Map<String, String> getHeaders() {
            return fields.headers();
        }

        public String getHeader(String name) {
            return fields.headers().get(name);
        }

        public Map<String, Object> getAttributes() {
            return new HashMap<>(fields.attributes());
        }

        public Object getAttribute(String key) {
            return fields.attributes().get(key);
        }

        public RequestContext build() {
            return new RequestContext(fields.build());
        }
    }
}
