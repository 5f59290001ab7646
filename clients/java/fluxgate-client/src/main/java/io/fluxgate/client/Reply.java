package io.fluxgate.client;

import java.net.http.HttpHeaders;
import java.util.Map;

/** An HTTP response of the service. */
record Reply(int status, HttpHeaders headers, byte[] body) {
    private static final int OK = 200;
    private static final int NOT_FOUND = 404;

    /** Returns whether a check names a rule set that does not exist. */
    boolean isRuleSetMissing() {
        return headers.firstValue("X-FluxGate-Rule-Set").filter(Decision.MISSING::equals).isPresent();
    }

    boolean isNotFound() {
        return status == NOT_FOUND;
    }

    /**
     * Returns the JSON of a success or of a denial.
     *
     * @throws InvalidCallException if the service refused the call as wrong
     * @throws UnavailableException if the service failed, or its answer is not JSON
     */
    Map<String, Object> decided() {
        Map<String, Object> json;
        try {
            json = Json.parseObject(body);
        } catch (Json.FormatException e) {
            throw status >= 400 && status < 500
                    ? new InvalidCallException(status, "no reason was given")
                    : new UnavailableException("the service answers " + status + " without JSON", e);
        }
        // Denials have the status of the gateway's refusal, which a rule may choose.
        if (status == OK || json.containsKey("outcome")) {
            return json;
        }
        String detail = String.valueOf(json.getOrDefault("detail", json.get("title")));
        if (status >= 400 && status < 500) {
            throw new InvalidCallException(status, detail);
        }
        throw new UnavailableException("the service answers " + status + ": " + detail);
    }
}
