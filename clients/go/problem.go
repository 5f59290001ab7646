package fluxgate

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Problem types that are registered with IANA.
const (
	quotaExceeded   = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	reducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
)

// problem is a body of application/problem+json (RFC 9457).
type problem struct {
	Type     string   `json:"type"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Detail   string   `json:"detail,omitempty"`
	Violated []string `json:"violated-policies"`
	Outcome  Outcome  `json:"outcome,omitempty"`
	Retry    *int64   `json:"retry_after_ms"`
}

// WriteRefusal answers a request that a decision refuses as FluxGate's gateway does: with its
// status, the limit headers and a problem that names the violated policies. gRPC requests are
// refused in gRPC's own way.
func WriteRefusal(w http.ResponseWriter, r *http.Request, decision Decision) {
	mergeHeaders(w.Header(), &decision)
	if contentType, isGRPC := grpcContentType(r); isGRPC {
		code, message := decision.grpcStatus()
		writeGRPC(w, contentType, code, message)
		if pushback, ok := decision.pushback(); ok {
			w.Header().Set("Grpc-Retry-Pushback-Ms", pushback)
		}
		w.WriteHeader(http.StatusOK)
		return
	}
	body := problem{Status: decision.Status, Violated: decision.Violated}
	if body.Violated == nil {
		body.Violated = []string{}
	}
	switch {
	case decision.Status == http.StatusServiceUnavailable:
		body.Type, body.Title = reducedCapacity, "Requests cannot be counted at the moment"
		body.Outcome = decision.Outcome
	case decision.Outcome == OutcomeForbidden:
		body.Type, body.Title = "about:blank", http.StatusText(decision.Status)
		body.Detail = "a rule forbids this request"
		if body.Title == "" {
			body.Title = "Forbidden"
		}
	case decision.Outcome == OutcomeNever:
		body.Type, body.Title = quotaExceeded, "This request can never pass the limit"
		body.Detail = "it lacks a part of the key that the rule counts by"
		if decision.Limit >= 0 {
			body.Detail = "its cost is above the capacity of the limit"
		} else if len(decision.Violated) == 0 {
			body.Detail = "it is too large to be counted"
		}
	default:
		body.Type, body.Title = quotaExceeded, "The quota for these requests is used up"
	}
	if decision.RetryAfter != Never {
		millis := ceil(decision.RetryAfter, time.Millisecond)
		body.Retry = &millis
	}
	writeProblem(w, decision.Status, encode(body))
}

// writeBadRequest answers a request that servers may read in different ways.
func writeBadRequest(w http.ResponseWriter, r *http.Request, reason error) {
	if contentType, isGRPC := grpcContentType(r); isGRPC {
		writeGRPC(w, contentType, 3, reason.Error())
		w.WriteHeader(http.StatusOK)
		return
	}
	writeError(w, http.StatusBadRequest, "the request is ambiguous: "+reason.Error())
}

// writeError answers with a problem that is not about a limit.
func writeError(w http.ResponseWriter, status int, detail string) {
	writeProblem(w, status, encode(struct {
		Type   string `json:"type"`
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
	}{"about:blank", http.StatusText(status), status, detail}))
}

func writeProblem(w http.ResponseWriter, status int, body []byte) {
	header := w.Header()
	header.Set("Content-Type", "application/problem+json")
	header.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// grpcContentType returns the content type of a gRPC request. Its client understands gRPC statuses
// only.
func grpcContentType(r *http.Request) (string, bool) {
	const grpc = "application/grpc"
	contentType := r.Header.Get("Content-Type")
	return contentType, len(contentType) >= len(grpc) && strings.EqualFold(contentType[:len(grpc)], grpc)
}

// writeGRPC sets the headers of a response that has trailers only.
func writeGRPC(w http.ResponseWriter, contentType string, code int, message string) {
	header := w.Header()
	header.Set("Content-Type", contentType)
	header.Set("Grpc-Status", strconv.Itoa(code))
	header.Set("Grpc-Message", message)
}

// grpcStatus returns the code and the message of a refusal. Messages hold no characters that gRPC
// escapes.
func (d *Decision) grpcStatus() (int, string) {
	switch {
	case d.Outcome == OutcomeForbidden:
		return 7, "a rule forbids this request"
	case d.Status == http.StatusServiceUnavailable:
		return 14, "requests cannot be counted at the moment (failed_closed)"
	case d.RetryAfter == Never:
		return 8, "the quota can never allow this request"
	}
	millis := ceil(d.RetryAfter, time.Millisecond)
	return 8, "the quota is used up; retry after " + strconv.FormatInt(millis, 10) + " ms"
}

// pushback returns how long a gRPC client with a retry policy waits, or false if the decision says
// nothing about it. A negative number stops its retries.
func (d *Decision) pushback() (string, bool) {
	switch {
	case d.Allowed:
		return "", false
	case d.RetryAfter == Never:
		return "-1", true
	}
	return strconv.FormatInt(ceil(d.RetryAfter, time.Millisecond), 10), true
}

// GRPCStatus returns the gRPC code and message of a refusal, and the value of
// grpc-retry-pushback-ms. fluxgategrpc uses it.
func (d *Decision) GRPCStatus() (code int, message, pushback string) {
	code, message = d.grpcStatus()
	pushback, _ = d.pushback()
	return code, message, pushback
}

// mergeHeaders adds the limit headers of a decision to those of earlier gates. The lists get the
// members of all; X-RateLimit-* describe the gate that denies or has the least left, Retry-After
// is the longest.
func mergeHeaders(header http.Header, decision *Decision) {
	own := decision.Header
	if len(own) == 0 {
		return
	}
	for _, name := range [...]string{"Ratelimit-Policy", "Ratelimit"} {
		if lines := own[name]; len(lines) > 0 {
			all := append(append([]string(nil), header[name]...), lines...)
			header[name] = []string{strings.Join(all, ",")}
		}
	}
	if lines := own["Retry-After"]; len(lines) > 0 && atLeast(lines[0], header.Get("Retry-After")) {
		header["Retry-After"] = lines[:1:1]
	}
	const remaining = "X-Ratelimit-Remaining"
	if len(own[remaining]) == 0 {
		return
	}
	if known := header.Get(remaining); known != "" && decision.Allowed && atLeast(own[remaining][0], known) {
		return
	}
	for _, name := range [...]string{"X-Ratelimit-Limit", remaining, "X-Ratelimit-Reset"} {
		if lines := own[name]; len(lines) > 0 {
			header[name] = lines[:1:1]
		}
	}
}

// atLeast returns whether a number is not below another. A text that is no number is below all.
func atLeast(number, other string) bool {
	second, err := strconv.ParseInt(other, 10, 64)
	if err != nil {
		return true
	}
	first, err := strconv.ParseInt(number, 10, 64)
	return err == nil && first >= second
}

// ceil returns a time in whole units, rounded up.
func ceil(span, unit time.Duration) int64 {
	return int64(span/unit) + int64(min(span%unit, 1))
}
