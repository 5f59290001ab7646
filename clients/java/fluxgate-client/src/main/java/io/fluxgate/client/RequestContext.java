package io.fluxgate.client;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Objects;
import java.util.OptionalLong;

/**
 * What is known of a request: the fields that rules match and count by. All are optional.
 *
 * <pre>{@code
 * RequestContext.builder().user("ann").path("/api/x").build()
 * }</pre>
 */
public final class RequestContext {
    private final Builder fields;

    private RequestContext(Builder fields) {
        this.fields = fields;
    }

    public static Builder builder() {
        return new Builder();
    }

    /** Returns a builder with the fields of this context. */
    public Builder toBuilder() {
        return new Builder(fields);
    }

    public String ip() {
        return fields.ip;
    }

    public String user() {
        return fields.user;
    }

    public String apiKey() {
        return fields.apiKey;
    }

    public String method() {
        return fields.method;
    }

    public String path() {
        return fields.path;
    }

    public Map<String, String> headers() {
        return Map.copyOf(fields.headers);
    }

    public Map<String, String> attributes() {
        return Map.copyOf(fields.attributes);
    }

    public OptionalLong cost() {
        return fields.cost == null ? OptionalLong.empty() : OptionalLong.of(fields.cost);
    }

    /** Appends the fields as members of a JSON object. */
    void write(Json.Writer json) {
        json.optional("ip", fields.ip);
        json.optional("user", fields.user);
        json.optional("api_key", fields.apiKey);
        json.optional("method", fields.method);
        json.optional("path", fields.path);
        json.optional("normal_path", fields.normalPath);
        json.optional("headers", fields.headers);
        json.optional("attributes", fields.attributes);
        json.optional("cost", fields.cost);
    }

    /** Builds a context. A field that is null is absent. */
    public static final class Builder {
        private String ip;
        private String user;
        private String apiKey;
        private String method;
        private String path;
        private String normalPath;
        private final Map<String, String> headers = new LinkedHashMap<>();
        private final Map<String, String> attributes = new LinkedHashMap<>();
        private Long cost;

        private Builder() {}

        private Builder(Builder other) {
            ip = other.ip;
            user = other.user;
            apiKey = other.apiKey;
            method = other.method;
            path = other.path;
            normalPath = other.normalPath;
            headers.putAll(other.headers);
            attributes.putAll(other.attributes);
            cost = other.cost;
        }

        /** Sets the address of the client. */
        public Builder ip(String value) {
            ip = value;
            return this;
        }

        public Builder user(String value) {
            user = value;
            return this;
        }

        public Builder apiKey(String value) {
            apiKey = value;
            return this;
        }

        public Builder method(String value) {
            method = value;
            return this;
        }

        /** Sets the path, without the query. Rules compare it as it is. */
        public Builder path(String value) {
            path = value;
            normalPath = null;
            return this;
        }

        /**
         * Sets the path in two forms, as sent and normalized: rules match if either does. Filters
         * know both.
         */
        public Builder path(String raw, String normal) {
            path = raw;
            normalPath = normal;
            return this;
        }

        public Builder header(String name, String value) {
            return put(headers, name, value);
        }

        public Builder headers(Map<String, String> values) {
            values.forEach(this::header);
            return this;
        }

        public Builder attribute(String name, String value) {
            return put(attributes, name, value);
        }

        public Builder attributes(Map<String, String> values) {
            values.forEach(this::attribute);
            return this;
        }

        /** Sets the cost, in place of that of every rule. */
        public Builder cost(long units) {
            cost = units;
            return this;
        }

        public String ip() {
            return ip;
        }

        public String user() {
            return user;
        }

        public String apiKey() {
            return apiKey;
        }

        public String method() {
            return method;
        }

        public String path() {
            return path;
        }

        public Map<String, String> headers() {
            return Map.copyOf(headers);
        }

        public Map<String, String> attributes() {
            return Map.copyOf(attributes);
        }

        public RequestContext build() {
            return new RequestContext(new Builder(this));
        }

        private Builder put(Map<String, String> map, String name, String value) {
            Objects.requireNonNull(name, "name");
            if (value == null) {
                map.remove(name);
            } else {
                map.put(name, value);
            }
            return this;
        }
    }
}
