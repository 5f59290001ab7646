package fluxgate_test

import (
	"context"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	fluxgate "github.com/openfluxgate/fluxgate/clients/go"
	"github.com/openfluxgate/fluxgate/clients/go/internal/testservice"
)

const allowedBody = `{"allowed":true,"outcome":"allowed","rule":"r","band":"b","limit":2,"remaining":1,` +
	`"retry_after_ms":0,"reset_after_ms":5,"delay_ms":0,"violated":[]}`

// fake starts a server that stands in for the service where its answers must be odd.
func fake(t *testing.T, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server
}

func TestAnswersThatAreNoDecisionsAreFailures(t *testing.T) {
	var body atomic.Value
	var status atomic.Int64
	server := fake(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(int(status.Load()))
		_, _ = io.WriteString(w, body.Load().(string))
	})
	for _, test := range []struct {
		status int64
		body   string
		isGood bool
	}{
		{200, allowedBody, true},
		{200, "", false},
		{200, "{}", false},
		{200, "null", false},
		{200, "[]", false},
		{200, "<html>", false},
		{200, allowedBody[:60], false},
		{200, strings.Replace(allowedBody, `"retry_after_ms":0,`, "", 1), false},
		{200, strings.Replace(allowedBody, `"delay_ms":0`, `"delay_ms":-1`, 1), false},
		{200, strings.Replace(allowedBody, `"delay_ms":0`, `"delay_ms":"0"`, 1), false},
		{200, strings.Replace(allowedBody, `"outcome":"allowed"`, `"outcome":"denied"`, 1), false},
		{200, strings.Replace(allowedBody, `"outcome":"allowed"`, `"outcome":"other"`, 1), false},
		{200, strings.Replace(allowedBody, `"allowed":true`, `"allowed":false`, 1), false},
		{429, allowedBody, false},
		{500, allowedBody, false},
		{503, "{}", false},
		{302, "", false},
		{204, "", false},
		{429, "{}", false},
	} {
		body.Store(test.body)
		status.Store(test.status)
		client := fluxgate.New(server.URL, fluxgate.OnError(fluxgate.Raise), fluxgate.Deadline(time.Second), fluxgate.Logger(silent))
		decision, err := client.Check(context.Background(), "x", fluxgate.Request{})
		var unavailable *fluxgate.UnavailableError
		if test.isGood != (err == nil) || err != nil && !errors.As(err, &unavailable) {
			t.Errorf("%d %s: %v %v", test.status, test.body, decision, err)
		}
		client.Close()
	}
}

func TestContexts(t *testing.T) {
	block := make(chan struct{})
	server := fake(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // Else the server does not notice that the client leaves.
		select {
		case <-block:
		case <-r.Context().Done():
		}
	})
	defer close(block)
	checkLeaks := testservice.CheckLeaks(t)
	client := fluxgate.New(server.URL, fluxgate.Deadline(10*time.Second), fluxgate.Logger(silent))

	// A caller that gives up gets its own error, whatever OnError says.
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(50*time.Millisecond, cancel)
	began := time.Now()
	if _, err := client.Check(ctx, "x", fluxgate.Request{}); !errors.Is(err, context.Canceled) || time.Since(began) > 5*time.Second {
		t.Error(err, time.Since(began))
	}
	if _, err := client.Check(ctx, "x", fluxgate.Request{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	// A deadline of the context is one of the call.
	for i := 0; i < 5; i++ {
		ctx, cancel = context.WithTimeout(context.Background(), 30*time.Millisecond)
		began = time.Now()
		decision, err := client.Check(ctx, "x", fluxgate.Request{})
		if err != nil || decision.Outcome != fluxgate.OutcomeFailedOpen || time.Since(began) < 20*time.Millisecond || time.Since(began) > 5*time.Second {
			t.Error(decision, err, time.Since(began))
		}
		cancel()
	}
	client.Close()
	server.CloseClientConnections()
	checkLeaks()
}

func TestAClosedClient(t *testing.T) {
	f := newFixture(t)
	hold, err := f.client.Hold(context.Background(), "slots", fluxgate.Request{User: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	f.client.Close()
	f.client.Close()
	if decision, err := f.client.Check(context.Background(), "wide", fluxgate.Request{}); err != nil || decision.Outcome != fluxgate.OutcomeFailedOpen {
		t.Error(decision, err)
	}
	if _, err := hold.Release(context.Background()); !errors.Is(err, fluxgate.ErrClosed) {
		t.Error(err)
	}
}

// TestLateAnswers: the service takes a slot, but its answer comes after the deadline.
func TestLateAnswers(t *testing.T) {
	service := testservice.Start(t, middlewareRules)
	proxy := testservice.StartProxy(t, service, "slow")
	defer proxy.Stop()
	late := fluxgate.New(proxy.URL(), fluxgate.Deadline(50*time.Millisecond), fluxgate.Logger(silent))
	defer late.Close()
	direct := fluxgate.New("http://"+service.Address, fluxgate.Deadline(20*time.Second), fluxgate.Logger(silent))
	defer direct.Close()
	if decision, err := late.Check(context.Background(), "slots", fluxgate.Request{User: "ann"}); err != nil || decision.Outcome != fluxgate.OutcomeFailedOpen {
		t.Fatal(decision, err)
	}
	if err := proxy.SetMode("up"); err != nil {
		t.Fatal(err)
	}
	// The proxy sees the check, and then what returns its charge: the request was not admitted by it.
	var calls int64
	eventually(t, func() bool { calls += proxy.Asked(); return calls == 2 })
	eventually(t, func() bool {
		decision, err := direct.Peek(context.Background(), "slots", fluxgate.Request{User: "ann"})
		return err == nil && decision.Allowed && decision.Remaining == 1
	})
}

// eventually waits until a condition holds.
func eventually(t *testing.T, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("this does not happen")
		}
	}
}

func TestManyHoldsAreRenewedInOneCall(t *testing.T) {
	var renewals, renewed atomic.Int64
	server := fake(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch r.URL.Path {
		case "/v1/check":
			_, _ = io.WriteString(w, strings.TrimSuffix(allowedBody, "}")+`,"hold":"ABC","hold_ms":1000}`)
		case "/v1/renew":
			renewals.Add(1)
			count := strings.Count(string(body), "ABC")
			renewed.Add(int64(count))
			_, _ = io.WriteString(w, `{"renewed":[true`+strings.Repeat(",true", count-1)+`]}`)
		default:
			_, _ = io.WriteString(w, `{"settled":true,"charged":1,"uncharged":0}`)
		}
	})
	checkLeaks := testservice.CheckLeaks(t)
	client := fluxgate.New(server.URL, fluxgate.Deadline(20*time.Second), fluxgate.Logger(silent))
	const count = 200
	holds := make([]*fluxgate.Hold, count)
	for i := range holds {
		var err error
		if holds[i], err = client.Hold(context.Background(), "x", fluxgate.Request{}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, func() bool { return renewed.Load() >= 2*count })
	if calls, each := renewals.Load(), renewed.Load(); each < 20*calls {
		t.Errorf("%d calls renewed %d holds", calls, each)
	}
	var closing sync.WaitGroup
	for _, hold := range holds {
		for range 2 {
			closing.Add(1)
			go func() {
				defer closing.Done()
				hold.Close()
			}()
		}
	}
	closing.Wait()
	client.Close()
	server.CloseClientConnections()
	checkLeaks()
}

func TestHTTPS(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Token") == "secret" {
			_, _ = io.WriteString(w, allowedBody)
		}
	}))
	defer server.Close()
	server.Config.ErrorLog = nil
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	trusting := fluxgate.New(server.URL+"/", fluxgate.CA(ca), fluxgate.Header("X-Token", "secret"), fluxgate.Deadline(5*time.Second), fluxgate.Logger(silent))
	defer trusting.Close()
	if decision, err := trusting.Check(context.Background(), "x", fluxgate.Request{}); err != nil || decision.Outcome != fluxgate.OutcomeAllowed {
		t.Error(decision, err)
	}
	doubting := fluxgate.New(server.URL, fluxgate.OnError(fluxgate.Raise), fluxgate.Deadline(5*time.Second), fluxgate.Logger(silent))
	defer doubting.Close()
	if _, err := doubting.Check(context.Background(), "x", fluxgate.Request{}); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Error(err)
	}
}

func TestTextThatIsNotUTF8IsAnError(t *testing.T) {
	client := fluxgate.New("http://127.0.0.1:1", fluxgate.Logger(silent))
	defer client.Close()
	for _, request := range []fluxgate.Request{
		{User: "\xff"}, {APIKey: "\xff"}, {Path: "/\xff"}, {Headers: map[string]string{"a": "\xff"}}, {Attributes: map[string]string{"\xff": "a"}},
	} {
		var rejected *fluxgate.RequestError
		if _, err := client.Check(context.Background(), "x", request); !errors.As(err, &rejected) {
			t.Error(request, err)
		}
	}
}

// TestConcurrentCallsShareConnections: a bounded number of connections serves many callers.
func TestConcurrentCallsShareConnections(t *testing.T) {
	var open, most atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, allowedBody)
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			most.Store(max(most.Load(), open.Add(1)))
		case http.StateClosed:
			open.Add(-1)
		}
	}
	server.Start()
	defer server.Close()
	client := fluxgate.New(server.URL, fluxgate.Deadline(20*time.Second), fluxgate.OnError(fluxgate.Raise), fluxgate.Logger(silent))
	defer client.Close()
	var calls sync.WaitGroup
	for range 1000 {
		calls.Add(1)
		go func() {
			defer calls.Done()
			for range 5 {
				if _, err := client.Check(context.Background(), "x", fluxgate.Request{}); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	calls.Wait()
	if most.Load() > 256 {
		t.Errorf("%d connections", most.Load())
	}
}
