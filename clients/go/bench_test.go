package fluxgate_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sort"
	"testing"
	"time"

	fluxgate "github.com/openfluxgate/fluxgate/clients/go"
	"github.com/openfluxgate/fluxgate/clients/go/internal/testservice"
)

const benchRules = `
listen: { api: "${API}" }
rule_sets:
  api-limits:
    rules:
      - { id: per-user, scope: per_user, bands: [ { id: burst, capacity: 1000000000, window: 1h } ] }
`

// BenchmarkOverhead compares what the middleware adds to a request with one plain HTTP request of
// the same kind. Both are measured in turn, so that a busy moment of the machine meets both.
func BenchmarkOverhead(b *testing.B) {
	service := testservice.Start(b, benchRules)
	client := fluxgate.New("http://"+service.Address, fluxgate.OnError(fluxgate.Raise), fluxgate.Deadline(time.Second))
	defer client.Close()
	nothing := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	limited := fluxgate.Middleware(client, "api-limits")(nothing)
	// What the middleware sends.
	body := []byte(`{"rule_set":"api-limits","ip":"192.0.2.1","user":"ann","method":"GET","path":"/x",` +
		`"headers":{"Accept":"*/*","Host":"example.com","User-Agent":"bench","X-User-Id":"ann"},"wait":true}`)
	plain := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	defer plain.CloseIdleConnections()

	request := httptest.NewRequest(http.MethodGet, "/x", nil)
	request.Header = http.Header{"X-User-Id": {"ann"}, "User-Agent": {"bench"}, "Accept": {"*/*"}}

	calls := map[string]func(){
		"plain": func() {
			response, err := plain.Post("http://"+service.Address+"/v1/check?status=true", "application/json", bytes.NewReader(body))
			if err != nil {
				b.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, response.Body)
			response.Body.Close()
		},
		"check": func() {
			if _, err := client.Check(context.Background(), "api-limits", fluxgate.Request{User: "ann", Path: "/x"}); err != nil {
				b.Fatal(err)
			}
		},
		"middleware": func() {
			recorder := httptest.NewRecorder()
			limited.ServeHTTP(recorder, request)
			if recorder.Code != http.StatusOK {
				b.Fatal(recorder.Code)
			}
		},
	}
	times := make(map[string][]time.Duration)
	for range 500 {
		for _, call := range calls {
			call()
		}
	}
	b.ResetTimer()
	for range max(b.N, 5000) {
		for name, call := range calls {
			began := time.Now()
			call()
			times[name] = append(times[name], time.Since(began))
		}
	}
	b.StopTimer()
	median := func(name string) float64 {
		all := times[name]
		sort.Slice(all, func(i, j int) bool { return all[i] < all[j] })
		return float64(all[len(all)/2].Nanoseconds()) / 1000
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median("plain"), "plain-µs")
	b.ReportMetric(median("check"), "check-µs")
	b.ReportMetric(median("middleware"), "middleware-µs")
	b.ReportMetric(median("middleware")/median("plain"), "ratio")
	fmt.Printf("p50: plain request %.1f µs, check %.1f µs, middleware %.1f µs: %.2f times a plain request\n",
		median("plain"), median("check"), median("middleware"), median("middleware")/median("plain"))
}
