package head

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// isPlainName returns whether a name has only letters, digits and, between them, hyphens. If two
// names of this form are alike, they differ at most by case. Nearly all headers are of this form.
func isPlainName(name string) bool {
	for i := 0; i < len(name); i++ {
		if !isAlphanumeric(name[i]) && (name[i] != '-' || i == 0 || i == len(name)-1) {
			return false
		}
	}
	return true
}

// folded returns a name as the most careless server reads it: characters other than letters and
// digits dropped at both ends and written "_" elsewhere, in lower case. Servers may take two names
// for one another if they are equal in this form.
func folded(name string) string {
	isOther := func(r rune) bool {
		return r == utf8.RuneError || !unicode.IsLetter(r) && !unicode.IsNumber(r)
	}
	return strings.Map(func(r rune) rune {
		if isOther(r) {
			return '_'
		}
		return unicode.ToLower(r)
	}, strings.TrimFunc(name, isOther))
}

// withheld are hop-by-hop headers, and secrets that no rule should read.
var withheld = setOf(`authorization connection cookie keep-alive proxy-authenticate
	proxy-authorization proxy-connection te trailer transfer-encoding upgrade`)

// lists are headers whose lines form one list, so clients and proxies may repeat them.
var lists = setOf(`accept accept-charset accept-encoding accept-language
	access-control-request-headers baggage cache-control cdn-loop content-encoding
	content-language expect forwarded grpc-accept-encoding if-match if-none-match link pragma
	prefer sec-websocket-extensions sec-websocket-protocol tracestate vary via warning
	x-forwarded-for x-forwarded-host x-forwarded-port x-forwarded-proto`)

// registeredMethods are those of IANA's registry, and PURGE, which is widely used to clear caches.
var registeredMethods = setOf(`ACL BASELINE-CONTROL BIND CHECKIN CHECKOUT CONNECT COPY DELETE GET
	HEAD LABEL LINK LOCK MERGE MKACTIVITY MKCALENDAR MKCOL MKREDIRECTREF MKWORKSPACE MOVE OPTIONS
	ORDERPATCH PATCH POST PRI PROPFIND PROPPATCH PUT QUERY REBIND REPORT SEARCH TRACE UNBIND
	UNCHECKOUT UNLINK UNLOCK UPDATE UPDATEREDIRECTREF VERSION-CONTROL PURGE`)

func setOf(names string) map[string]bool {
	set := make(map[string]bool)
	for _, name := range strings.Fields(names) {
		set[name] = true
	}
	return set
}

// CheckMethod rejects a method that differs from a registered one only by case: some servers do
// not distinguish "post" from "POST", and rules do.
func CheckMethod(method string) error {
	upper := strings.ToUpper(method)
	if upper != method && registeredMethods[upper] {
		return errMethod
	}
	return nil
}
