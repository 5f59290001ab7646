package fluxgate_test

import (
	"context"
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
	// faultPause is for how long a service that has failed is not asked.
	faultPause = 500 * time.Millisecond
)

// served is what a client has seen of one request.
type served struct {
	number int
	// at is when it was sent, end when it was answered.
	at, end time.Time
	status  int
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
	load := startLoad(t, server.URL, transport)
	load.waitFor("requests are decided", true, time.Time{})
	began := time.Now()
	_ = proxy.SetMode(mode)
	// A restart may be over before a request meets it.
	if mode != "restart" {
		load.waitFor("requests are not decided", false, began)
	}
	time.Sleep(faultPhase)
	_ = proxy.SetMode("up")
	ended := time.Now()
	delay := testservice.StartDelay(service)
	load.waitFor("requests are decided again", true, ended)
	first := load.first(true, ended)
	recovered := first.at.Sub(ended)
	// A call that the machine makes late fails, and costs another pause.
	delayed := delay.Total()
	lateCalls := delayed / (faultDeadline / 2)
	if most := time.Second + delayed + lateCalls*(faultDeadline+faultPause); recovered > most {
		t.Errorf("decided again after %v, of which %v are the machine's", recovered, delayed)
	}
	time.Sleep(faultPhase)
	results := load.stop()
	delayed = delay.Total()

	failures := 0
	for _, result := range results {
		var count int64
		if found, ok := runs.Load(strconv.Itoa(result.number)); ok {
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
			// Those sent while the first was on its way were not decided: one call tries the service.
			if result.at.After(first.end) && delayed < faultDeadline/2 {
				t.Errorf("a request was not decided any more, %v after the first", result.at.Sub(first.end))
			}
		}
	}
	t.Logf("%d requests, %d of them not decided by the service; decided again after %v; delays of %v",
		len(results), failures, recovered, delayed)
	checkSlots(t, service, proxy)

	transport.CloseIdleConnections()
	server.Close()
	client.Close()
	proxy.Stop()
	checkLeaks()
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

// loading sends requests at a constant rate, whether or not earlier ones have been answered.
type loading struct {
	t       *testing.T
	running sync.WaitGroup
	ended   chan struct{}

	mu      sync.Mutex
	results []served
}

func startLoad(t *testing.T, url string, transport *http.Transport) *loading {
	load := &loading{t: t, ended: make(chan struct{})}
	load.running.Add(1)
	go func() {
		defer load.running.Done()
		ticker := time.NewTicker(time.Second / faultRate)
		defer ticker.Stop()
		for number := 0; ; number++ {
			select {
			case <-load.ended:
				return
			case <-ticker.C:
				load.running.Add(1)
				go load.send(url, transport, number)
			}
		}
	}()
	return load
}

func (l *loading) send(url string, transport *http.Transport, number int) {
	defer l.running.Done()
	request, _ := http.NewRequest(http.MethodGet, url+"/x", nil)
	request.Header.Set("X-User-Id", "ann")
	request.Header.Set(numberHeader, strconv.Itoa(number))
	result := served{number: number, at: time.Now()}
	response, err := transport.RoundTrip(request)
	if err != nil {
		l.t.Error(err)
		return
	}
	_, _ = io.Copy(io.Discard, response.Body)
	response.Body.Close()
	result.end = time.Now()
	result.status = response.StatusCode
	result.isCounted = response.Header.Get("X-RateLimit-Limit") != ""
	l.mu.Lock()
	defer l.mu.Unlock()
	l.results = append(l.results, result)
}

// first returns the first request sent after since that the service has decided, or has not.
func (l *loading) first(isCounted bool, since time.Time) (first served) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, result := range l.results {
		if result.isCounted == isCounted && result.at.After(since) && (first.at.IsZero() || result.at.Before(first.at)) {
			first = result
		}
	}
	return first
}

// waitFor waits for such a request.
func (l *loading) waitFor(what string, isCounted bool, since time.Time) {
	l.t.Helper()
	for end := time.Now().Add(20 * time.Second); l.first(isCounted, since).at.IsZero(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			l.stop()
			l.t.Fatalf("never: %s", what)
		}
	}
}

// stop returns the results once all requests are answered.
func (l *loading) stop() []served {
	close(l.ended)
	l.running.Wait()
	return l.results
}
