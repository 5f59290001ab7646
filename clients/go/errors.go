package fluxgate

import (
	"errors"
	"fmt"
)

// ErrHoldEnded is returned for a hold that is unknown, settled, released or expired.
var ErrHoldEnded = errors.New("fluxgate: the hold has ended")

// ErrClosed is the cause of an [*UnavailableError] after [Client.Close].
var ErrClosed = errors.New("the client is closed")

// ErrCircuitOpen is the cause of an [*UnavailableError] while no calls are made, because the last
// ones have failed.
var ErrCircuitOpen = errors.New("the last calls failed; no calls are made for a moment")

var (
	errDeadline = errors.New("no answer within the deadline")
	errInvalid  = errors.New("the answer is not a decision")
)

// UnavailableError says that the service did not answer, or not with a decision.
type UnavailableError struct {
	// Service is the address of the service.
	Service string
	// Call is the path of the call, such as "/v1/check".
	Call string
	// Err is the cause.
	Err error
}

func (e *UnavailableError) Error() string {
	return fmt.Sprintf("fluxgate: %s at %s does not decide: %v", e.Call, e.Service, e.Err)
}

// Unwrap returns the cause.
func (e *UnavailableError) Unwrap() error { return e.Err }

// RequestError says that the service has rejected the call itself, such as an address that is
// none or a rule that does not exist. [OnError] does not apply: it is a mistake of the program.
type RequestError struct {
	// Call is the path of the call, such as "/v1/check".
	Call string
	// Status is the status of the answer, such as 400.
	Status int
	// Detail says what to change.
	Detail string
}

func (e *RequestError) Error() string {
	return fmt.Sprintf("fluxgate: %s: the service answers %d: %s", e.Call, e.Status, e.Detail)
}

// DeniedError is returned by [Client.Hold] for a request that is denied.
type DeniedError struct {
	// Decision says by which rule, and when to try again.
	Decision Decision
}

func (e *DeniedError) Error() string {
	decision := &e.Decision
	switch {
	case decision.Outcome == OutcomeFailedClosed:
		return "fluxgate: denied: requests cannot be counted at the moment"
	case decision.Outcome == OutcomeForbidden:
		return "fluxgate: denied: a rule forbids this request"
	case decision.RetryAfter == Never:
		return "fluxgate: denied: this request can never pass the limit"
	}
	return fmt.Sprintf("fluxgate: denied: the quota is used up; retry after %v", decision.RetryAfter)
}
