package fluxgate_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	fluxgate "github.com/openfluxgate/fluxgate/clients/go"
	"github.com/openfluxgate/fluxgate/clients/go/internal/testservice"
)

const faultRules = `
listen: { api: "${API}" }
rule_sets:
  loaded:
    rules:
      - { id: requests, scope: per_user, bands: [ { id: all, capacity: 1000000, window: 1h } ] }
      - { id: running, scope: per_user, algorithm: concurrency, hold: 1m, bands: [ { id: at-once, capacity: 1000 } ] }
`

const (
	faultRate     = 200 // requests a second
	faultDeadline = 200 * time.Millisecond
	// faultSlack is what a request may take on its own.
	faultSlack = 100 * time.Millisecond
	faultPhase = 800 * time.Millisecond
)

// served is what a client has seen of one request.
type served struct {
	at     time.Time
	status int
	// isCounted says whether the service has decided it.
	isCounted bool
}

// TestFaults sends requests through the middleware while the service fails and recovers.
func TestFaults(t *testing.T) {
	for _, mode := range []string{"down", "restart", "slow", "reset", "garbage", "cut", "error", "swallow"} {
		for name, policy := range map[string]fluxgate.ErrorPolicy{"allow": fluxgate.Allow, "deny": fluxgate.Deny} {
			t.Run(mode+", "+name, func(t *testing.T) { runFault(t, mode, policy) })
		}
	}
}

func runFault(t *testing.T, mode string, policy fluxgate.ErrorPolicy) {
	service := testservice.Start(t, faultRules)
	checkLeaks := testservice.CheckLeaks(t)
	proxy := testservice.StartProxy(t, service, "up")
	client := fluxgate.New(proxy.URL(), fluxgate.OnError(policy), fluxgate.Deadline(faultDeadline), fluxgate.Logger(silent))
	var runs sync.Map
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		count, _ := runs.LoadOrStore(r.Header.Get(numberHeader), new(atomic.Int64))
		count.(*atomic.Int64).Add(1)
		_, _ = io.WriteString(w, "ok")
	})
	limited := fluxgate.Middleware(client, "loaded")(handler)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		limited.ServeHTTP(w, r)
		took := time.Since(began)
		if pauses := testservice.Allowance(began); took > faultDeadline+faultSlack+pauses {
			t.Errorf("a request took %v; pauses of the machine explain %v", took, pauses)
		}
	}))
	transport := &http.Transport{MaxIdleConnsPerHost: 100}

	var began, ended time.Time
	changed := make(chan struct{})
	go func() {
		defer close(changed)
		time.Sleep(faultPhase)
		began = time.Now()
		_ = proxy.SetMode(mode)
		time.Sleep(faultPhase)
		_ = proxy.SetMode("up")
		ended = time.Now()
	}()
	loaded := time.Now()
	results := load(t, server.URL, transport, 4*faultPhase)
	<-changed

	var failures, uncountedEarlier, uncountedLater int
	var recovered time.Time
	for number, result := range results {
		var count int64
		if found, ok := runs.Load(strconv.Itoa(number)); ok {
			count = found.(*atomic.Int64).Load()
		}
		isRefused := result.status == http.StatusServiceUnavailable
		switch {
		case result.status != http.StatusOK && !(isRefused && policy == fluxgate.Deny):
			t.Errorf("status %d", result.status)
		case isRefused && count != 0, !isRefused && count != 1:
			t.Errorf("status %d, and the handler has run %d times", result.status, count)
		}
		if policy == fluxgate.Deny && result.status == http.StatusOK && !result.isCounted {
			t.Error("allowed without a decision")
		}
		if !result.isCounted {
			failures++
			if result.at.Before(began.Add(-faultDeadline - faultSlack)) {
				uncountedEarlier++
			}
			if result.at.After(ended.Add(time.Second)) {
				uncountedLater++
			}
		} else if result.at.After(ended) && (recovered.IsZero() || result.at.Before(recovered)) {
			recovered = result.at
		}
	}
	if failures == 0 {
		t.Error("the fault had no effect")
	}
	pause := testservice.LongestPause(loaded)
	t.Logf("%d requests, %d of them not decided by the service; decided again after %v; pauses of up to %v",
		len(results), failures, recovered.Sub(ended), pause)
	checkSlots(t, service, proxy)

	transport.CloseIdleConnections()
	server.Close()
	client.Close()
	proxy.Stop()
	checkLeaks()

	// A service that answers late because of the machine has failed, too.
	if recovered.IsZero() || recovered.After(ended.Add(time.Second)) || uncountedEarlier+uncountedLater > 0 {
		testservice.Fail(t, loaded, faultDeadline, fmt.Sprintf(
			"decided again %v after the fault; %d requests before it and %d a second after it were not decided",
			recovered.Sub(ended), uncountedEarlier, uncountedLater))
	}
}

// checkSlots waits until the slots are free again. Those of calls whose answer was lost on the way
// expire later.
func checkSlots(t *testing.T, service *testservice.Service, proxy *testservice.Proxy) {
	t.Helper()
	direct := fluxgate.New("http://"+service.Address, fluxgate.Deadline(20*time.Second), fluxgate.Logger(silent))
	defer direct.Close()
	var taken int64
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		decision, err := direct.Peek(context.Background(), "loaded", fluxgate.Request{User: "ann"})
		if err != nil {
			t.Fatal(err)
		}
		taken = 1000 - decision.Remaining
		if decision.Rule == "running" && taken <= proxy.Lost() {
			return
		}
	}
	t.Errorf("%d slots are taken, but only the answers of %d calls were lost", taken, proxy.Lost())
}

// load sends requests at a constant rate, whether or not earlier ones have been answered.
func load(t *testing.T, url string, transport *http.Transport, span time.Duration) []served {
	t.Helper()
	count := int(span * faultRate / time.Second)
	results := make([]served, count)
	start := time.Now()
	var running sync.WaitGroup
	for number := range results {
		time.Sleep(time.Until(start.Add(time.Duration(number) * time.Second / faultRate)))
		running.Add(1)
		go func() {
			defer running.Done()
			request, _ := http.NewRequest(http.MethodGet, url+"/x", nil)
			request.Header.Set("X-User-Id", "ann")
			request.Header.Set(numberHeader, strconv.Itoa(number))
			result := &results[number]
			result.at = time.Now()
			response, err := transport.RoundTrip(request)
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, response.Body)
			response.Body.Close()
			result.status = response.StatusCode
			result.isCounted = response.Header.Get("X-RateLimit-Limit") != ""
		}()
	}
	running.Wait()
	return results
}
