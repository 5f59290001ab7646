package io.fluxgate.client.web;

import java.util.Locale;
import java.util.Set;

/** The methods that are registered with IANA. */
final class Methods {
    // `PURGE` is not registered, but widely used to clear caches.
    private static final Set<String> REGISTERED = Set.of(("ACL BASELINE-CONTROL BIND CHECKIN CHECKOUT CONNECT COPY "
                    + "DELETE GET HEAD LABEL LINK LOCK MERGE MKACTIVITY MKCALENDAR MKCOL MKREDIRECTREF MKWORKSPACE "
                    + "MOVE OPTIONS ORDERPATCH PATCH POST PRI PROPFIND PROPPATCH PUT QUERY REBIND REPORT SEARCH TRACE "
                    + "UNBIND UNCHECKOUT UNLINK UNLOCK UPDATE UPDATEREDIRECTREF VERSION-CONTROL PURGE")
            .split(" "));

    private Methods() {}

    /** Refuses a method that differs from a registered one only by case: some servers ignore case. */
    static void check(String method) throws AmbiguousRequestException {
        String capitals = method.toUpperCase(Locale.ROOT);
        if (!method.equals(capitals) && REGISTERED.contains(capitals)) {
            throw new AmbiguousRequestException("the method differs from a registered one only by case");
        }
    }
}
