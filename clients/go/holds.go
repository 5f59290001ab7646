package fluxgate

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"
)

// Hold is a charge that is not final: slots that are taken, or units whose real number is known
// only afterwards. It is renewed in the background until it ends: settled, released or expired.
type Hold struct {
	client   *Client
	decision Decision
	// id is empty if nothing is held.
	id string

	mu    sync.Mutex
	ended bool

	// renewAt and expiresAt belong to the keeper.
	renewAt, expiresAt time.Time
}

// Settlement is what a held charge really cost. The zero value settles it as reserved.
type Settlement struct {
	// Cost replaces the cost of every rule of the hold; see [Units].
	Cost *int64
	// Attributes replace the cost of the rules whose cost is one of these attributes, and leave
	// the others as reserved.
	Attributes map[string]string
}

// Settled is what a settlement has charged.
type Settled struct {
	Charged int64 `json:"charged"`
	// Uncharged is the excess that did not fit into the debt that a limit may have.
	Uncharged int64 `json:"uncharged"`
}

type holdBody struct {
	Hold       string            `json:"hold"`
	Cost       *int64            `json:"cost,omitempty"`
	Attributes map[string]string `json:"attributes,omitempty"`
	HoldFor    string            `json:"hold_for,omitempty"`
}

// Hold decides a request and holds its charge, for [Request].Hold (60 s by default) without
// renewal. It waits like [Client.Wait] if the rules say so. If the request is denied, the error is
// a [*DeniedError].
//
//	hold, err := client.Hold(ctx, "exports", fluxgate.Request{User: "ann"})
//	if err != nil {
//		return err
//	}
//	defer hold.Close()
func (c *Client) Hold(ctx context.Context, ruleSet string, request Request) (*Hold, error) {
	if err := request.check(ruleSet); err != nil {
		return nil, err
	}
	if request.Hold == 0 {
		request.Hold = defaultHold
	}
	decision, err := c.checkAndWait(ctx, request.body(ruleSet), nil)
	if err != nil {
		return nil, err
	}
	if !decision.Allowed {
		return nil, &DeniedError{Decision: decision}
	}
	hold := newHold(c, decision)
	hold.open()
	return hold, nil
}

func newHold(client *Client, decision Decision) *Hold {
	return &Hold{client: client, decision: decision, id: decision.HoldID}
}

// Decision returns the decision that the hold was made with.
func (h *Hold) Decision() Decision { return h.decision }

// ID returns the id of the hold, or "" if nothing is held: no rule counts the request, or [OnError]
// has allowed it.
func (h *Hold) ID() string { return h.id }

// Settle ends the hold with its real cost. If the service does not answer, the settlement is
// repeated in the background for as long as the hold lives, and the error says why it has not
// happened yet.
func (h *Hold) Settle(ctx context.Context, settlement Settlement) (Settled, error) {
	if h.id == "" {
		return Settled{}, nil
	}
	body := holdBody{Hold: h.id, Cost: settlement.Cost, Attributes: settlement.Attributes}
	return h.end(ctx, settlePath, body, h.client.deadlineFromNow())
}

// Release ends the hold and returns its units. It returns true if this call has released it, and
// false if it had ended before or nothing is held. If the service does not answer, the release is
// repeated in the background for as long as the hold lives.
func (h *Hold) Release(ctx context.Context) (bool, error) {
	if h.id == "" {
		return false, nil
	}
	_, err := h.end(ctx, releasePath, holdBody{Hold: h.id}, h.client.deadlineFromNow())
	if errors.Is(err, ErrHoldEnded) {
		return false, nil
	}
	return err == nil, err
}

// Close releases the hold unless it has ended. It always returns nil; see [Hold.Release].
func (h *Hold) Close() error {
	_, _ = h.Release(context.Background())
	return nil
}

// Renew extends the hold to its whole time from now, and returns whether it is still held. There
// is no need to call it: holds are renewed in the background.
func (h *Hold) Renew(ctx context.Context) (bool, error) {
	if h.id == "" || h.hasEnded() {
		return false, nil
	}
	renewed, err := h.client.Renew(ctx, h.id, h.decision.HoldFor)
	if renewed {
		h.client.holds.postpone(h)
	}
	return renewed, err
}

func (h *Hold) hasEnded() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ended
}

// setEnded returns whether this changed it.
func (h *Hold) setEnded(ended bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	changed := h.ended != ended
	h.ended = ended
	return changed
}

// open renews the hold from now on.
func (h *Hold) open() {
	if h.id != "" {
		h.client.holds.add(h)
	}
}

// forget stops renewing the hold, without ending it.
func (h *Hold) forget() {
	if h.id != "" {
		h.client.holds.remove(h)
	}
}

// end ends the hold with this call, once.
func (h *Hold) end(ctx context.Context, path string, body holdBody, until time.Time) (Settled, error) {
	if !h.setEnded(true) {
		return Settled{}, ErrHoldEnded
	}
	h.forget()
	text := encode(body)
	settled, err := h.client.endHold(ctx, path, text, until)
	var rejected *RequestError
	switch {
	case err == nil || errors.Is(err, ErrHoldEnded):
	case errors.As(err, &rejected):
		// A settlement that the service does not accept has not ended it.
		h.setEnded(false)
		h.open()
	default:
		h.client.holds.endLater(ending{path, text, h.expiry()}, repeatAfter)
	}
	return settled, err
}

// endLater ends the hold with this call in the background, once.
func (h *Hold) endLater(path string, body holdBody) {
	if h.setEnded(true) {
		h.forget()
		h.client.holds.endLater(ending{path, encode(body), h.expiry()}, 0)
	}
}

// expiry returns when the hold expires if it is not renewed.
func (h *Hold) expiry() time.Time {
	h.client.holds.mu.Lock()
	defer h.client.holds.mu.Unlock()
	if h.expiresAt.IsZero() {
		return time.Now().Add(h.decision.HoldFor)
	}
	return h.expiresAt
}

// Settle ends a hold by its id; see [Hold.Settle]. It returns [ErrHoldEnded] if there is no such
// hold. It is not repeated if it fails.
func (c *Client) Settle(ctx context.Context, id string, settlement Settlement) (Settled, error) {
	body := holdBody{Hold: id, Cost: settlement.Cost, Attributes: settlement.Attributes}
	return c.endHold(ctx, settlePath, encode(body), c.deadlineFromNow())
}

// Release ends a hold by its id and returns its units. It returns false if there is no such hold.
func (c *Client) Release(ctx context.Context, id string) (bool, error) {
	_, err := c.endHold(ctx, releasePath, encode(holdBody{Hold: id}), c.deadlineFromNow())
	if errors.Is(err, ErrHoldEnded) {
		return false, nil
	}
	return err == nil, err
}

// Renew extends a hold by its id to this time from now. It returns false if there is no such hold.
func (c *Client) Renew(ctx context.Context, id string, span time.Duration) (bool, error) {
	body := encode(holdBody{Hold: id, HoldFor: holdText(span)})
	err := c.invoke(ctx, call{path: renewPath, body: body, until: c.deadlineFromNow()}, isSuccess)
	if isNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

func (c *Client) endHold(ctx context.Context, path string, body []byte, until time.Time) (Settled, error) {
	var settled Settled
	err := c.invoke(ctx, call{path: path, body: body, until: until}, func(answer *answer) bool {
		return answer.status == http.StatusOK && json.Unmarshal(answer.body, &settled) == nil
	})
	if isNotFound(err) {
		err = ErrHoldEnded
	}
	return settled, err
}

func isNotFound(err error) bool {
	var rejected *RequestError
	return errors.As(err, &rejected) && rejected.Status == http.StatusNotFound
}
