package fluxgate

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// DefaultMaxConcurrentWaits is how many requests wait at a time, by default.
const DefaultMaxConcurrentWaits = 100

// Gate limits the requests of a server: it decides each of them, lets it wait for its turn, and
// holds its slots until it has ended. [Middleware] is a gate for net/http; the package fluxgategrpc
// has one for gRPC. It is safe for concurrent use.
//
//	gate := &fluxgate.Gate{Client: client, RuleSet: "jobs"}
//	admission, err := gate.Admit(ctx, fluxgate.Request{User: job.User})
//	if err != nil {
//		return err
//	}
//	defer admission.End()
//	if !admission.Decision.Allowed {
//		return job.Reject(admission.Decision.RetryAfter)
//	}
type Gate struct {
	// Client calls the service.
	Client *Client
	// RuleSet decides.
	RuleSet string
	// MaxConcurrentWaits is how many requests wait at a time; [DefaultMaxConcurrentWaits] if it is
	// 0. Further requests are refused, unless they pass without waiting.
	MaxConcurrentWaits int

	waiting       atomic.Int64
	hasLoggedCall atomic.Bool
}

// Admission is the result of a decision. Its End must be called.
type Admission struct {
	// Decision says whether the request may proceed. It has waited if it had to.
	Decision Decision
	hold     *Hold
	// left is how much of the deadline may be used to end the hold.
	left time.Duration
}

// Admit decides a request and waits for its turn if it must. If the context ends first, the request
// gives its turn up, and the error is that of the context. With [Raise], it may also be an
// [*UnavailableError] or a [*RequestError]; other policies apply to both.
func (g *Gate) Admit(ctx context.Context, request Request) (*Admission, error) {
	began := time.Now()
	var decision Decision
	err := request.check(g.RuleSet)
	if err == nil {
		decision, err = g.Client.checkAndWait(ctx, request.body(g.RuleSet), g.permit)
	}
	if ctxErr := ctx.Err(); ctxErr != nil {
		if err == nil && decision.Allowed {
			g.Client.abandon(&decision, g.Client.deadlineFromNow())
		}
		return nil, ctxErr
	}
	var rejected *RequestError
	if errors.As(err, &rejected) {
		if !g.hasLoggedCall.Swap(true) {
			message := "FluxGate rejects the calls of the middleware: " + g.Client.settings.onError.effect()
			g.Client.log().Error(message, "service", g.Client.base.String(), "rule_set", g.RuleSet, "error", err)
		}
		decision, err = g.Client.decideFor(&UnavailableError{Service: g.Client.base.String(), Call: checkPath, Err: err})
	}
	if err != nil {
		return nil, err
	}
	admission := &Admission{Decision: decision}
	if decision.Allowed && decision.HoldID != "" {
		spent := time.Since(began) - decision.Delay
		admission.left = g.Client.settings.deadline - max(spent, 0)
		admission.hold = newHold(g.Client, decision)
		admission.hold.open()
	}
	return admission, nil
}

// permit takes a place among the requests that wait.
func (g *Gate) permit() (func(), bool) {
	most := int64(g.MaxConcurrentWaits)
	if most == 0 {
		most = DefaultMaxConcurrentWaits
	}
	release := func() { g.waiting.Add(-1) }
	if g.waiting.Add(1) > most {
		release()
		return nil, false
	}
	return release, true
}

// Hold returns the hold of the request, or nil if nothing is held. A request that knows its real
// cost can settle it before it ends.
func (a *Admission) Hold() *Hold { return a.hold }

// End frees the slots of a request that has ended; its units stay charged as reserved. It does
// nothing if nothing is held or the hold has been settled.
//
// It waits for the service, so that the next request finds the slots free, but no longer than the
// client's deadline leaves. What is not done by then is done in the background.
func (a *Admission) End() {
	if a.hold == nil {
		return
	}
	body := holdBody{Hold: a.hold.id}
	if a.left < a.hold.client.settings.deadline/10 {
		// Too little for an answer that says something about the service.
		a.hold.endLater(settlePath, body)
		return
	}
	_, _ = a.hold.end(context.Background(), settlePath, body, time.Now().Add(a.left))
}

type admissionKey struct{}

// FromContext returns the admission of the request that a handler behind [Middleware], or behind
// an interceptor of fluxgategrpc, serves. It is nil for other contexts.
func FromContext(ctx context.Context) *Admission {
	admission, _ := ctx.Value(admissionKey{}).(*Admission)
	return admission
}

// NewContext returns a context with an admission, for servers that use a [Gate].
func NewContext(ctx context.Context, admission *Admission) context.Context {
	return context.WithValue(ctx, admissionKey{}, admission)
}
