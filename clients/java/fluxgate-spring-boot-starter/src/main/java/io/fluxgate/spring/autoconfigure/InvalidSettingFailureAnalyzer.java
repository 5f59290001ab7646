package io.fluxgate.spring.autoconfigure;

import io.fluxgate.spring.InvalidSettingException;
import org.springframework.boot.diagnostics.AbstractFailureAnalyzer;
import org.springframework.boot.diagnostics.FailureAnalysis;

/** Says why a program does not start. */
final class InvalidSettingFailureAnalyzer extends AbstractFailureAnalyzer<InvalidSettingException> {
    @Override
    protected FailureAnalysis analyze(Throwable rootFailure, InvalidSettingException cause) {
        String action = "Change the property " + cause.property() + ", for example in application.yml.";
        return new FailureAnalysis(cause.getMessage(), action, cause);
    }
}
