package fluxgate

import (
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Never is the RetryAfter of a request that waiting does not help. It is longer than any time.
const Never = time.Duration(math.MaxInt64)

// Outcome is how a request was decided.
type Outcome string

// The outcomes of a decision.
const (
	OutcomeAllowed      Outcome = "allowed"
	OutcomeDenied       Outcome = "denied"
	OutcomeNever        Outcome = "never"
	OutcomeForbidden    Outcome = "forbidden"
	OutcomeExempt       Outcome = "exempt"
	OutcomeShadowDenied Outcome = "shadow_denied"
	OutcomeNoRule       Outcome = "no_rule"
	OutcomeFailedOpen   Outcome = "failed_open"
	OutcomeFailedClosed Outcome = "failed_closed"
	OutcomeFallback     Outcome = "fallback"
)

// Decision is the answer to a check.
type Decision struct {
	// Allowed says whether the request may proceed, after Delay.
	Allowed bool
	// Outcome says how it was decided.
	Outcome Outcome
	// Rule and Band are the reported ones: for a denial the band with the longest wait, otherwise
	// the one with the least left. They are empty if nothing is reported.
	Rule, Band string
	// Limit is the capacity of the reported band, or -1.
	Limit int64
	// Remaining is what is left in it after the decision, or -1.
	Remaining int64
	// RetryAfter is after how long the same request would pass: 0 if it passed, Never if it never
	// will.
	RetryAfter time.Duration
	// ResetAfter is how long until the reported band is full again.
	ResetAfter time.Duration
	// Delay is how long an allowed request has to wait before it proceeds.
	Delay time.Duration
	// Violated are all bands that denied, as "rule/band"; for an allowed request those of shadow
	// rules.
	Violated []string
	// Status is the HTTP status of a refusal: 429, 503 or that of the rule that forbids the
	// request. It is 200 for an allowed request.
	Status int
	// Header has the limit headers as the service sent them: X-RateLimit-*, RateLimit,
	// RateLimit-Policy and Retry-After. Decisions of a batch have none.
	Header http.Header
	// HoldID is the id of the hold, if the charge is held, and HoldFor the time in which to renew
	// it. [Client.Hold] does that by itself.
	HoldID  string
	HoldFor time.Duration

	// reservation is the id by which a request that waits can be cancelled.
	reservation string
}

// limitHeaders are the headers that are passed on.
var limitHeaders = []string{
	"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset",
	"Ratelimit-Policy", "Ratelimit", "Retry-After",
}

// failedOpen decides in place of the service.
func failedOpen() Decision {
	return Decision{Allowed: true, Outcome: OutcomeFailedOpen, Limit: -1, Remaining: -1, Status: http.StatusOK}
}

// failedClosed decides in place of the service.
func failedClosed() Decision {
	return Decision{
		Outcome: OutcomeFailedClosed, Limit: -1, Remaining: -1,
		RetryAfter: time.Second,
		Status:     http.StatusServiceUnavailable,
		Header:     http.Header{"Retry-After": {"1"}},
	}
}

// tooLarge decides a request that does not fit into a call. OnError must not decide it: a client
// could choose that.
func tooLarge() Decision {
	return Decision{
		Outcome: OutcomeNever, Limit: -1, Remaining: -1,
		RetryAfter: Never,
		Status:     http.StatusTooManyRequests,
	}
}

// nullable is a number that must be present but may be null.
type nullable struct {
	isPresent, isNull bool
	value             int64
}

func (n *nullable) UnmarshalJSON(text []byte) error {
	n.isPresent = true
	if string(text) == "null" {
		n.isNull = true
		return nil
	}
	value, err := strconv.ParseInt(string(text), 10, 64)
	n.value = value
	return err
}

// orMinusOne returns the number, or -1 for null.
func (n nullable) orMinusOne() int64 {
	if n.isNull {
		return -1
	}
	return n.value
}

// orNever returns a number of milliseconds as a time.
func (n nullable) orNever() time.Duration {
	if n.isNull {
		return Never
	}
	return milliseconds(n.value)
}

// decisionBody is the body of an answer.
type decisionBody struct {
	Allowed      *bool    `json:"allowed"`
	Outcome      Outcome  `json:"outcome"`
	Rule         string   `json:"rule"`
	Band         string   `json:"band"`
	Limit        nullable `json:"limit"`
	Remaining    nullable `json:"remaining"`
	RetryAfterMs nullable `json:"retry_after_ms"`
	ResetAfterMs nullable `json:"reset_after_ms"`
	DelayMs      nullable `json:"delay_ms"`
	Violated     []string `json:"violated"`
	Reservation  string   `json:"reservation"`
	Hold         string   `json:"hold"`
	HoldMs       int64    `json:"hold_ms"`
	// RuleSet is set in a batch only: see missing.
	RuleSet string `json:"rule_set"`
}

// decision returns the decision, or false if the answer is none.
func (b *decisionBody) decision() (Decision, bool) {
	if b.Allowed == nil || !isConsistent(b.Outcome, *b.Allowed) {
		return Decision{}, false
	}
	for _, number := range []nullable{b.Limit, b.Remaining, b.RetryAfterMs, b.ResetAfterMs, b.DelayMs} {
		if !number.isPresent || number.value < 0 {
			return Decision{}, false
		}
	}
	return Decision{
		Allowed:     *b.Allowed,
		Outcome:     b.Outcome,
		Rule:        b.Rule,
		Band:        b.Band,
		Limit:       b.Limit.orMinusOne(),
		Remaining:   b.Remaining.orMinusOne(),
		RetryAfter:  b.RetryAfterMs.orNever(),
		ResetAfter:  milliseconds(b.ResetAfterMs.value),
		Delay:       milliseconds(b.DelayMs.value),
		Violated:    b.Violated,
		Status:      statusOf(b.Outcome, *b.Allowed),
		HoldID:      b.Hold,
		HoldFor:     milliseconds(b.HoldMs),
		reservation: b.Reservation,
	}, true
}

func isConsistent(outcome Outcome, isAllowed bool) bool {
	switch outcome {
	case OutcomeAllowed, OutcomeShadowDenied, OutcomeNoRule, OutcomeExempt, OutcomeFailedOpen:
		return isAllowed
	case OutcomeDenied, OutcomeNever, OutcomeForbidden, OutcomeFailedClosed:
		return !isAllowed
	}
	return outcome == OutcomeFallback
}

func statusOf(outcome Outcome, isAllowed bool) int {
	switch {
	case isAllowed:
		return http.StatusOK
	case outcome == OutcomeForbidden:
		return http.StatusForbidden
	case outcome == OutcomeFailedClosed:
		return http.StatusServiceUnavailable
	}
	return http.StatusTooManyRequests
}

// parseDecision parses the answer to a check, or returns false if it is none.
func parseDecision(answer *answer) (Decision, bool) {
	var body decisionBody
	if json.Unmarshal(answer.body, &body) != nil {
		return Decision{}, false
	}
	decision, ok := body.decision()
	if !ok || decision.Allowed != (answer.status == http.StatusOK) {
		return Decision{}, false
	}
	decision.Status = answer.status
	for _, name := range limitHeaders {
		if values := answer.header[name]; len(values) > 0 {
			if decision.Header == nil {
				decision.Header = make(http.Header, len(limitHeaders))
			}
			decision.Header[name] = values
		}
	}
	return decision, true
}

// after returns the decision of a request that has waited since.
func (d Decision) after(waited time.Duration) Decision {
	d.ResetAfter = max(0, d.ResetAfter-waited)
	if lines := d.Header["Ratelimit"]; len(lines) == 1 {
		if at := strings.LastIndex(lines[0], ";t="); at >= 0 {
			header := d.Header.Clone()
			seconds := int64((d.ResetAfter + time.Second - 1) / time.Second)
			header["Ratelimit"] = []string{lines[0][:at] + ";t=" + strconv.FormatInt(seconds, 10)}
			d.Header = header
		}
	}
	return d
}

func milliseconds(count int64) time.Duration {
	if count > int64(Never/time.Millisecond) {
		return Never
	}
	return time.Duration(count) * time.Millisecond
}
