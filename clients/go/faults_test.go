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
	// busyLag is how late a timer is on a machine that is too busy to judge the service by.
	busyLag = 30 * time.Millisecond
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
			t.Run(mode+", "+name, func(t *testing.T) {
				var late []string
				for attempt := 0; attempt < 3; attempt++ {
					var lag time.Duration
					late, lag = runFault(t, mode, policy)
					if len(late) == 0 {
						return
					}
					if lag <= busyLag {
						t.Fatal(late)
					}
				}
				t.Logf("the machine is too busy to judge times: %v", late)
			})
		}
	}
}

// runFault returns what took too long, and how late timers were: a busy machine is to blame for it
// if they were late.
func runFault(t *testing.T, mode string, policy fluxgate.ErrorPolicy) (late []string, lag time.Duration) {
	tooLate := func(format string, values ...any) { late = append(late, fmt.Sprintf(format, values...)) }
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
	var slowestNanos atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		limited.ServeHTTP(w, r)
		took := int64(time.Since(began))
		for known := slowestNanos.Load(); took > known && !slowestNanos.CompareAndSwap(known, took); {
			known = slowestNanos.Load()
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
	stopLag := measureLag()
	results := load(t, server.URL, transport, 4*faultPhase)
	<-changed
	lag = stopLag()

	slowest := time.Duration(slowestNanos.Load())
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
	if slowest > faultDeadline+faultSlack {
		tooLate("the slowest request took %v", slowest)
	}
	if recovered.IsZero() || recovered.After(ended.Add(time.Second)) {
		tooLate("decided again only %v after the fault", recovered.Sub(ended))
	}
	if failures == 0 {
		t.Error("the fault had no effect")
	}
	if uncountedEarlier+uncountedLater > 0 {
		tooLate("%d requests were not decided before the fault, and %d a second after it", uncountedEarlier, uncountedLater)
	}
	if taken := slotsTaken(t, client, mode); taken > 0 {
		tooLate("%d slots are still taken", taken)
	}
	t.Logf("%d requests, %d of them not decided by the service; the slowest took %v; decided again after %v; timers up to %v late",
		len(results), failures, slowest, recovered.Sub(ended), lag)

	transport.CloseIdleConnections()
	server.Close()
	client.Close()
	proxy.Stop()
	checkLeaks()
	return late, lag
}

// measureLag measures how late timers are until the function that it returns is called.
func measureLag() func() time.Duration {
	stop, most := make(chan struct{}), make(chan time.Duration)
	go func() {
		var lag time.Duration
		for {
			began := time.Now()
			select {
			case <-stop:
				most <- lag
				return
			case <-time.After(5 * time.Millisecond):
				lag = max(lag, time.Since(began)-5*time.Millisecond)
			}
		}
	}()
	return func() time.Duration {
		close(stop)
		return <-most
	}
}

// slotsTaken returns how many slots do not become free again. An answer that was lost on the way may
// have taken one, which expires and does not count.
func slotsTaken(t *testing.T, client *fluxgate.Client, mode string) int64 {
	t.Helper()
	mayBeLost := map[string]int64{"down": 4, "restart": 4, "swallow": 50}[mode]
	var taken int64
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		decision, err := client.Peek(context.Background(), "loaded", fluxgate.Request{User: "ann"})
		if err != nil {
			t.Fatal(err)
		}
		taken = 1000 - decision.Remaining
		if decision.Rule == "running" && taken <= mayBeLost {
			return 0
		}
	}
	return taken
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
