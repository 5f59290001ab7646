package fluxgate

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"
)

// The calls of the service.
const (
	checkPath   = "/v1/check"
	batchPath   = "/v1/check/batch"
	consumePath = "/v1/consume"
	cancelPath  = "/v1/cancel"
	settlePath  = "/v1/settle"
	renewPath   = "/v1/renew"
	releasePath = "/v1/release"
)

// ruleSetHeader tells, by the value missing, that a check names a rule set that does not exist. In a
// batch, the decision has a field with this value.
const (
	ruleSetHeader = "X-Fluxgate-Rule-Set"
	missing       = "missing"
)

// Check decides a request by a rule set and charges it.
//
// If the decision has a HoldID, its slots stay taken until [Client.Release] or [Client.Settle], or
// until they expire: [Client.Hold] takes care of that. If it has a Delay, the request must wait for
// that long: see [Client.Wait].
func (c *Client) Check(ctx context.Context, ruleSet string, request Request) (Decision, error) {
	if err := request.check(ruleSet); err != nil {
		return Decision{}, err
	}
	return c.check(ctx, request.body(ruleSet), c.deadlineFromNow())
}

// Peek decides a request like [Client.Check], but charges nothing.
func (c *Client) Peek(ctx context.Context, ruleSet string, request Request) (Decision, error) {
	request.Peek = true
	return c.Check(ctx, ruleSet, request)
}

// check makes one check. OnError decides if the service does not.
func (c *Client) check(ctx context.Context, body checkBody, until time.Time) (Decision, error) {
	text := encode(body)
	if len(text) > maxCallBytes {
		return tooLarge(), nil
	}
	var decision Decision
	call := call{path: checkPath, query: "status=true", body: text, until: until, onLate: c.abandonAnswer}
	err := c.invoke(ctx, call, func(answer *answer) (ok bool) {
		if decision, ok = parseDecision(answer); ok && answer.header.Get(ruleSetHeader) == missing {
			c.reportMissing(body.RuleSet, decision.Allowed)
		}
		return ok
	})
	if err != nil {
		return c.decideFor(err)
	}
	return decision, nil
}

// decideFor decides in place of a service that is unavailable. Other errors stay.
func (c *Client) decideFor(err error) (Decision, error) {
	var unavailable *UnavailableError
	if !errors.As(err, &unavailable) {
		return Decision{}, err
	}
	switch c.settings.onError {
	case Allow:
		return failedOpen(), nil
	case Deny:
		return failedClosed(), nil
	}
	return Decision{}, err
}

// abandonAnswer returns what the service has charged to a request that did not wait for it.
func (c *Client) abandonAnswer(answer *answer) {
	if decision, ok := parseDecision(answer); ok && decision.Allowed {
		c.abandon(&decision, c.deadlineFromNow())
	}
}

// abandon cancels the reservation, or releases the hold, of a request that does not proceed.
// The caller may be gone, so its context does not count.
func (c *Client) abandon(decision *Decision, until time.Time) {
	if decision.reservation != "" && c.cancelReservation(decision, until) == nil {
		return // This ends the hold as well.
	}
	if hold := newHold(c, *decision); hold.id != "" {
		_, _ = hold.end(context.Background(), releasePath, holdBody{Hold: hold.id}, until)
	}
}

func (c *Client) cancelReservation(decision *Decision, until time.Time) error {
	body := encode(struct {
		Reservation string `json:"reservation"`
	}{decision.reservation})
	err := c.invoke(context.Background(), call{path: cancelPath, body: body, until: until}, isSuccess)
	if isNotFound(err) {
		return nil
	}
	return err
}

func isSuccess(answer *answer) bool {
	return answer.status == http.StatusOK && json.Valid(answer.body)
}

// BatchCheck is one check of a batch.
type BatchCheck struct {
	RuleSet string
	Request
}

// CheckBatch decides up to 1,000 requests in one call, each by itself, in order. If one of them is
// invalid, nothing is charged.
func (c *Client) CheckBatch(ctx context.Context, checks []BatchCheck) ([]Decision, error) {
	bodies := make([]checkBody, len(checks))
	for i := range checks {
		if err := checks[i].Request.check(checks[i].RuleSet); err != nil {
			return nil, err
		}
		bodies[i] = checks[i].Request.body(checks[i].RuleSet)
	}
	decisions := make([]Decision, len(checks))
	if len(checks) == 0 {
		return decisions, nil
	}
	parse := func(answer *answer) bool {
		var batch struct {
			Decisions []decisionBody `json:"decisions"`
		}
		if answer.status != http.StatusOK || json.Unmarshal(answer.body, &batch) != nil || len(batch.Decisions) != len(checks) {
			return false
		}
		for i := range batch.Decisions {
			var ok bool
			if decisions[i], ok = batch.Decisions[i].decision(); !ok {
				return false
			}
		}
		for i := range decisions {
			if batch.Decisions[i].RuleSet == missing {
				c.reportMissing(bodies[i].RuleSet, decisions[i].Allowed)
			}
		}
		return true
	}
	call := call{
		path: batchPath, until: c.deadlineFromNow(),
		body: encode(struct {
			Checks []checkBody `json:"checks"`
		}{bodies}),
	}
	if err := c.invoke(ctx, call, parse); err != nil {
		instead, err := c.decideFor(err)
		if err != nil {
			return nil, err
		}
		for i := range decisions {
			decisions[i] = instead
		}
	}
	return decisions, nil
}

// Consumption is a charge to one bucket, or to one rule.
type Consumption struct {
	// RuleID names the bucket; without Capacity it is "SET/RULE" of a configured rule.
	RuleID string
	// Identity is charged: one part, or the parts of a composite key in order.
	Identity []string
	// Cost is 1 by default; see [Units].
	Cost *int64
	// Capacity and RefillTokensPerSecond are the limit that comes with the call.
	Capacity              int64
	RefillTokensPerSecond float64
}

// Consumed is the answer to a [Consumption].
type Consumed struct {
	Allowed bool
	// Remaining is what is left, or -1 if nothing is reported.
	Remaining int64
	// RetryAfter is 0 if it passed, [Never] if it never will.
	RetryAfter time.Duration
	// Outcome is empty unless the store or the service failed.
	Outcome Outcome
	// HoldID and HoldFor are set if a rule with slots was charged.
	HoldID  string
	HoldFor time.Duration
}

// Consume charges a token bucket whose limit comes with the call, or a configured rule whatever it
// matches.
func (c *Client) Consume(ctx context.Context, consumption Consumption) (Consumed, error) {
	body := struct {
		RuleID   string   `json:"rule_id"`
		Identity any      `json:"identity,omitempty"`
		Cost     *int64   `json:"cost,omitempty"`
		Capacity *int64   `json:"capacity,omitempty"`
		Refill   *float64 `json:"refill_tokens_per_second,omitempty"`
	}{RuleID: consumption.RuleID, Cost: consumption.Cost}
	switch parts := consumption.Identity; len(parts) {
	case 0:
	case 1:
		body.Identity = parts[0]
	default:
		body.Identity = parts
	}
	if consumption.Capacity != 0 || consumption.RefillTokensPerSecond != 0 {
		body.Capacity = &consumption.Capacity
		body.Refill = &consumption.RefillTokensPerSecond
	}
	var consumed Consumed
	parse := func(answer *answer) bool {
		var result struct {
			Allowed      *bool    `json:"allowed"`
			Remaining    nullable `json:"remaining"`
			RetryAfterMs nullable `json:"retry_after_ms"`
			Outcome      Outcome  `json:"outcome"`
			Hold         string   `json:"hold"`
			HoldMs       int64    `json:"hold_ms"`
		}
		if answer.status != http.StatusOK || json.Unmarshal(answer.body, &result) != nil ||
			result.Allowed == nil || !result.RetryAfterMs.isPresent || !result.Remaining.isPresent {
			return false
		}
		consumed = Consumed{
			Allowed: *result.Allowed, Remaining: result.Remaining.orMinusOne(),
			RetryAfter: result.RetryAfterMs.orNever(), Outcome: result.Outcome,
			HoldID: result.Hold, HoldFor: milliseconds(result.HoldMs),
		}
		return true
	}
	err := c.invoke(ctx, call{path: consumePath, body: encode(body), until: c.deadlineFromNow()}, parse)
	if err != nil {
		instead, err := c.decideFor(err)
		return Consumed{
			Allowed: instead.Allowed, Remaining: -1, RetryAfter: instead.RetryAfter, Outcome: instead.Outcome,
		}, err
	}
	return consumed, nil
}

// Wait decides a request like [Client.Check], and sleeps for as long as the rules delay it.
//
// If the context would end before its turn comes, the request is denied at once. If the context
// ends while it waits, Wait returns the error of the context. In both cases the request gives its
// turn up.
func (c *Client) Wait(ctx context.Context, ruleSet string, request Request) (Decision, error) {
	if err := request.check(ruleSet); err != nil {
		return Decision{}, err
	}
	return c.checkAndWait(ctx, request.body(ruleSet), nil)
}

// checkAndWait decides a request and waits for its turn. permit, unless it is nil, reports whether
// another request may wait, and returns a function to call after the wait.
func (c *Client) checkAndWait(ctx context.Context, body checkBody, permit func() (func(), bool)) (Decision, error) {
	until := c.deadlineFromNow()
	yes, no := true, false
	body.Wait = &yes
	decision, err := c.check(ctx, body, until)
	if err != nil || !decision.Allowed || decision.Delay == 0 {
		return decision, err
	}
	answered := time.Now()
	turn := answered.Add(decision.Delay)
	end, hasEnd := ctx.Deadline()
	mayWait := !hasEnd || !end.Before(turn)
	if mayWait && permit != nil {
		done, ok := permit()
		if mayWait = ok; ok {
			defer done()
		}
	}
	if !mayWait {
		c.abandon(&decision, until)
		body.Wait, body.Again = &no, true
		return c.check(ctx, body, until)
	}
	// Slots that the request has taken already are kept while it waits.
	hold := newHold(c, decision)
	hold.open()
	defer hold.forget()
	timer := time.NewTimer(decision.Delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return decision.after(time.Since(answered)), nil
	case <-ctx.Done():
		hold.forget()
		c.abandon(&decision, c.deadlineFromNow())
		return Decision{}, ctx.Err()
	}
}
