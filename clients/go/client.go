package fluxgate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxIdle is how many idle connections are kept.
	maxIdle = 64
	// maxConnections is how many connections there are in all. Further calls wait for one, within
	// their deadline.
	maxConnections = 256
	// idleTimeout is shorter than that of the service, so that no call meets a connection that is
	// just being closed.
	idleTimeout = 20 * time.Second
	// maxAnswerBytes is enough for a batch of 1,000 decisions.
	maxAnswerBytes = 4 << 20
	// maxLate is how many answers that come after their deadline are waited for, and lateFor how
	// long.
	maxLate = 64
	lateFor = 5 * time.Second
	// maxMissing is how many names of missing rule sets are remembered, and logged. A program may
	// take them from its clients, so neither the memory nor the log may grow with them.
	maxMissing = 100
)

// Client calls one FluxGate service. It is safe for concurrent use; a program needs only one for
// each service.
type Client struct {
	settings settings
	base     *url.URL
	// own is the transport that Close closes, if it is the client's own.
	own     *http.Transport
	circuit circuit
	holds   holdKeeper
	// isFailing is set while the service fails to decide, so that an outage is logged once.
	isFailing atomic.Bool
	// missing has the rule sets that do not exist, as far as they were logged.
	missing   map[string]bool
	missingMu sync.Mutex
	// late has a place for each answer that is waited for after its deadline.
	late chan struct{}
	// closed is closed by Close.
	closed chan struct{}
	// background counts the goroutines that Close waits for. It grows under mu, and not after
	// closed is closed.
	background sync.WaitGroup
	mu         sync.Mutex
}

// New returns a client of the service at this address, such as "http://127.0.0.1:8081". It does
// not connect before the first call. An address or an option that is invalid is a mistake of the
// program: New panics. See [Open] for values that are not known when the program is written.
func New(address string, options ...Option) *Client {
	client, err := Open(address, options...)
	if err != nil {
		panic(err)
	}
	return client
}

// Open returns a client like [New], or an error.
func Open(address string, options ...Option) (*Client, error) {
	base, err := parseAddress(address)
	if err != nil {
		return nil, err
	}
	base.Path = strings.TrimRight(base.Path, "/")
	client := &Client{
		settings: settings{deadline: DefaultDeadline, header: make(http.Header)},
		base:     base,
		missing:  make(map[string]bool),
		late:     make(chan struct{}, maxLate),
		closed:   make(chan struct{}),
	}
	client.holds.client = client
	client.holds.wake = make(chan struct{}, 1)
	client.settings.header.Set("Content-Type", "application/json")
	client.settings.header.Set("User-Agent", "fluxgate-go")
	for _, option := range options {
		if err := option(&client.settings); err != nil {
			return nil, fmt.Errorf("fluxgate: %w", err)
		}
	}
	if client.settings.transport == nil {
		client.own = &http.Transport{
			DialContext:         (&net.Dialer{Timeout: lateFor, KeepAlive: 15 * time.Second}).DialContext,
			TLSClientConfig:     client.settings.tls,
			MaxIdleConns:        maxIdle,
			MaxIdleConnsPerHost: maxIdle,
			MaxConnsPerHost:     maxConnections,
			IdleConnTimeout:     idleTimeout,
			DisableCompression:  true,
		}
		client.settings.transport = client.own
	}
	return client, nil
}

// parseAddress parses the address of a service. The error does not repeat a password.
func parseAddress(address string) (*url.URL, error) {
	const expected = "fluxgate: expected the address of a service, such as http://127.0.0.1:8081, "
	base, err := url.Parse(address)
	switch {
	case err == nil && base.User != nil:
		return nil, errors.New(expected + "without a user: set the option Header")
	case err != nil && strings.Contains(address, "@"):
		return nil, errors.New(expected + "found one that is invalid")
	case err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" || base.RawQuery != "":
		return nil, fmt.Errorf("%sfound %q", expected, address)
	}
	return base, nil
}

// Close closes all connections and stops renewing holds; those that are still open expire. Calls
// that are made afterwards fail, as if the service did not answer.
func (c *Client) Close() error {
	c.mu.Lock()
	if !c.isClosed() {
		close(c.closed)
	}
	c.mu.Unlock()
	c.background.Wait()
	if c.own != nil {
		c.own.CloseIdleConnections()
	}
	return nil
}

func (c *Client) log() *slog.Logger {
	if c.settings.logger != nil {
		return c.settings.logger
	}
	return slog.Default()
}

// goBackground runs a function that Close waits for, unless the client is closed.
func (c *Client) goBackground(run func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosed() {
		return false
	}
	c.background.Add(1)
	go func() {
		defer c.background.Done()
		run()
	}()
	return true
}

func (c *Client) isClosed() bool {
	select {
	case <-c.closed:
		return true
	default:
		return false
	}
}

// answer is a whole answer of the service.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// call is a call to the service.
type call struct {
	path  string
	query string
	body  []byte
	// until is when the call must have ended. The context may end it earlier.
	until time.Time
	// onLate handles the answer if it comes after that, because the service may have reserved
	// units or taken slots. It may be nil.
	onLate func(*answer)
}

func (c *Client) deadlineFromNow() time.Time { return time.Now().Add(c.settings.deadline) }

// invoke makes a call, unless the circuit is open. accept parses an answer and returns whether it is
// one to this call. The error is an [*UnavailableError], a [*RequestError], or that of a context
// that was cancelled.
func (c *Client) invoke(ctx context.Context, call call, accept func(*answer) bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if c.isClosed() {
		return c.unavailable(call, ErrClosed)
	}
	report, ok := c.circuit.enter()
	if !ok {
		return c.unavailable(call, ErrCircuitOpen)
	}
	end := undecided
	defer func() { report(end) }()

	answer, err := c.send(ctx, call)
	switch {
	case err == nil && accept(answer):
		end = succeeded
		c.reportRecovery()
		return nil
	case err == nil && isRejection(answer.status):
		end = succeeded
		c.reportRecovery()
		return rejection(call.path, answer)
	case err == nil && answer.status != http.StatusOK:
		err = fmt.Errorf("it answers %d", answer.status)
	case err == nil:
		err = errInvalid
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		return ctx.Err()
	case ctx.Err() != nil && time.Now().Before(call.until):
		// The caller's own deadline was shorter, which says nothing about the service.
		return c.unavailable(call, err)
	}
	end = failed
	c.reportFailure(err)
	return c.unavailable(call, err)
}

func (c *Client) unavailable(call call, err error) error {
	return &UnavailableError{Service: c.base.String(), Call: call.path, Err: err}
}

// isRejection returns whether a status says that the call itself is wrong.
func isRejection(status int) bool {
	return 400 <= status && status < 500 && status != http.StatusRequestTimeout && status != http.StatusTooManyRequests
}

func rejection(path string, answer *answer) error {
	var problem struct {
		Title  string `json:"title"`
		Detail string `json:"detail"`
	}
	_ = json.Unmarshal(answer.body, &problem)
	detail := problem.Detail
	if detail == "" {
		detail = problem.Title
	}
	if detail == "" {
		detail = http.StatusText(answer.status)
	}
	return &RequestError{Call: path, Status: answer.status, Detail: detail}
}

func (c *Client) reportFailure(err error) {
	if !c.isFailing.Swap(true) {
		c.log().Warn("FluxGate does not decide: "+c.settings.onError.effect(), "service", c.base.String(), "error", err)
	}
}

func (c *Client) reportRecovery() {
	if c.isFailing.Load() && c.isFailing.Swap(false) {
		// Not at a lower level: who sees the warning must see its end.
		c.log().Warn("FluxGate decides again", "service", c.base.String())
	}
}

// reportMissing logs, once, that the service has no such rule set.
func (c *Client) reportMissing(ruleSet string, isAllowed bool) {
	c.missingMu.Lock()
	isNew := ruleSet != "" && !c.missing[ruleSet] && len(c.missing) < maxMissing
	if isNew {
		c.missing[ruleSet] = true
	}
	c.missingMu.Unlock()
	if !isNew {
		return
	}
	effect := "are denied"
	if isAllowed {
		effect = "pass"
	}
	message := fmt.Sprintf("FluxGate has no rule set `%s`: requests that it should limit %s", ruleSet, effect)
	c.log().Warn(message, "service", c.base.String())
}

// send makes a call and returns the whole answer. If the caller gives up before the answer has
// come, the answer of a call that may have reached the service goes to onLate.
func (c *Client) send(ctx context.Context, call call) (*answer, error) {
	// The call may outlive its caller, but its context keeps the values, such as a trace.
	sending, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var isSent atomic.Bool
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { isSent.Store(true) }}
	sending = httptrace.WithClientTrace(sending, trace)

	type result struct {
		answer *answer
		err    error
	}
	done := make(chan result, 1)
	go func() {
		answer, err := c.roundTrip(sending, call)
		done <- result{answer, err}
	}()
	timer := time.NewTimer(time.Until(call.until))
	defer timer.Stop()
	var err error
	select {
	case end := <-done:
		cancel()
		return end.answer, end.err
	case <-timer.C:
		err = errDeadline
	case <-ctx.Done():
		err = ctx.Err()
	}

	wait := func() {
		defer cancel()
		defer func() { <-c.late }()
		timer := time.NewTimer(lateFor)
		defer timer.Stop()
		select {
		case end := <-done:
			if end.err == nil {
				call.onLate(end.answer)
			}
		case <-timer.C:
		case <-c.closed:
		}
	}
	if call.onLate != nil && isSent.Load() {
		select {
		case c.late <- struct{}{}:
			if c.goBackground(wait) {
				return nil, err
			}
			<-c.late
		default:
		}
	}
	cancel()
	return nil, err
}

func (c *Client) roundTrip(ctx context.Context, call call) (*answer, error) {
	target := *c.base
	target.Path += call.path
	target.RawQuery = call.query
	request := &http.Request{
		Method: http.MethodPost, URL: &target, Host: target.Host, Header: c.settings.header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Body:          io.NopCloser(bytes.NewReader(call.body)),
		ContentLength: int64(len(call.body)),
		// Used only if nothing was written: the transport does not repeat a POST otherwise.
		GetBody: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(call.body)), nil },
	}
	response, err := c.settings.transport.RoundTrip(request.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswerBytes))
	if err != nil {
		return nil, err
	}
	return &answer{status: response.StatusCode, header: response.Header, body: body}, nil
}
