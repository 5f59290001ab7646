package io.fluxgate.spring;

/** A property has a value that cannot be used. Spring Boot shows it without a stack trace. */
public final class InvalidSettingException extends IllegalArgumentException {
    private static final long serialVersionUID = 1;

    private final String property;

    InvalidSettingException(String property, Exception cause) {
        super(property + ": " + cause.getMessage(), cause);
        this.property = property;
    }

    /** Returns the name of the property, such as {@code fluxgate.url}. */
    public String property() {
        return property;
    }
}
