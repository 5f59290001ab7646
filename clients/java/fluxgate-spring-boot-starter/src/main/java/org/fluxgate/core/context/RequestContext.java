package org.fluxgate.core.context;

import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;

/** What is known of a request, in the terms of OpenFluxGate. */
public final class RequestContext {
    private final Builder fields;

    private RequestContext(Builder fields) {
        this.fields = fields;
    }

    public static Builder builder() {
        return new Builder();
    }

    public String getClientIp() {
        return fields.clientIp;
    }

    public String getUserId() {
        return fields.userId;
    }

    public String getApiKey() {
        return fields.apiKey;
    }

    /** Returns the path. */
    public String getEndpoint() {
        return fields.endpoint;
    }

    public String getMethod() {
        return fields.method;
    }

    public Map<String, String> getHeaders() {
        return fields.getHeaders();
    }

    public String getHeader(String name) {
        return fields.getHeader(name);
    }

    public Map<String, Object> getAttributes() {
        return fields.getAttributes();
    }

    public Object getAttribute(String key) {
        return fields.getAttribute(key);
    }

    /** Builds a context. */
    public static final class Builder {
        private String clientIp;
        private String userId;
        private String apiKey;
        private String endpoint;
        private String method;
        private final Map<String, String> headers = new LinkedHashMap<>();
        private final Map<String, Object> attributes = new LinkedHashMap<>();

        public Builder clientIp(String value) {
            clientIp = value;
            return this;
        }

        public Builder userId(String value) {
            userId = value;
            return this;
        }

        public Builder apiKey(String value) {
            apiKey = value;
            return this;
        }

        public Builder endpoint(String value) {
            endpoint = value;
            return this;
        }

        public Builder method(String value) {
            method = value;
            return this;
        }

        public Builder header(String name, String value) {
            if (name != null && value != null) {
                headers.put(name, value);
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
                attributes.put(key, value);
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
            return clientIp;
        }

        public String getUserId() {
            return userId;
        }

        public String getApiKey() {
            return apiKey;
        }

        public String getEndpoint() {
            return endpoint;
        }

        public String getMethod() {
            return method;
        }

        public Map<String, String> getHeaders() {
            return new HashMap<>(headers);
        }

        public String getHeader(String name) {
            return headers.get(name);
        }

        public Map<String, Object> getAttributes() {
            return new HashMap<>(attributes);
        }

        public Object getAttribute(String key) {
            return attributes.get(key);
        }

        public RequestContext build() {
            Builder copy = new Builder().clientIp(clientIp).userId(userId).apiKey(apiKey);
            return new RequestContext(copy.endpoint(endpoint).method(method).headers(headers).attributes(attributes));
        }
    }
}
