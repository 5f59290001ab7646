package fluxgate_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	fluxgate "github.com/openfluxgate/fluxgate/clients/go"
	"github.com/openfluxgate/fluxgate/clients/go/internal/testservice"
)

const gatewayRules = `
listen: { api: "${API}", gateway: "${GATEWAY}" }
filters:
  main: { rule_set: all }
gateway:
  routes: [ { id: all, upstreams: ["${UPSTREAM}"], filters: [main] } ]
rule_sets:
  all:
    lists: { blocked: [mallory] }
    rules:
      - { id: health, action: allow, match: { path: ["/health"] } }
      - { id: legal, action: deny, status: 451, match: { path: ["/legal"] } }
      - { id: blocked, action: deny, match: { user: { in: blocked } } }
      - { id: costly, match: { path: ["/costly"] }, cost: 5, scope: global, bands: [ { id: b, capacity: 3, window: 1m } ] }
      - { id: keyed, match: { path: ["/keyed"] }, scope: per_api_key, on_missing_key: deny, bands: [ 5/m ] }
      - { id: per-user, scope: per_user, bands: [ { id: burst, capacity: 1, window: 1m }, { id: day, capacity: 100, window: 1d } ] }
      - { id: running, scope: per_user, algorithm: concurrency, bands: [ { capacity: 50 } ] }
`

// TestAsTheGateway compares the answers of the middleware with those of the gateway.
func TestAsTheGateway(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "ok")
	}))
	defer upstream.Close()
	service := testservice.Start(t, strings.ReplaceAll(gatewayRules, "${UPSTREAM}", upstream.URL))
	client := fluxgate.New("http://"+service.Address, fluxgate.Deadline(20*time.Second), fluxgate.Logger(silent))
	defer client.Close()
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	server := httptest.NewServer(fluxgate.Middleware(client, "all")(handler))
	defer server.Close()

	type answer struct {
		status int
		header map[string]string
		body   any
	}
	ask := func(base string, request *http.Request) answer {
		t.Helper()
		sent := request.Clone(request.Context())
		sent.URL.Host = strings.TrimPrefix(base, "http://")
		response, err := http.DefaultTransport.RoundTrip(sent)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, _ := io.ReadAll(response.Body)
		found := answer{status: response.StatusCode, header: make(map[string]string)}
		for _, name := range []string{
			"X-RateLimit-Limit", "X-RateLimit-Remaining", "RateLimit-Policy", "RateLimit", "Retry-After", "Content-Type",
		} {
			found.header[name] = response.Header.Get(name)
		}
		if json.Unmarshal(text, &found.body) == nil {
			if fields, ok := found.body.(object); ok && fields["retry_after_ms"] != nil {
				fields["retry_after_ms"] = fields["retry_after_ms"].(float64) > 0
			}
		}
		if found.status == http.StatusOK {
			found.header["Content-Type"] = "" // That of the handler.
		}
		return found
	}
	for _, test := range []struct {
		name, path string
		headers    http.Header
		times      int
		status     int
	}{
		{"allowed, then denied", "/x", http.Header{"X-User-Id": {"USER"}}, 3, 429},
		{"by address", "/x", nil, 1, 200},
		{"never", "/costly", http.Header{"X-User-Id": {"USER2"}}, 1, 429},
		{"a missing key", "/keyed", http.Header{"X-User-Id": {"USER3"}}, 1, 429},
		{"forbidden", "/x", http.Header{"X-User-Id": {"mallory"}}, 1, 403},
		{"a status of its own", "/legal", nil, 1, 451},
		{"exempt", "/health", nil, 2, 200},
		{"dots", "/a/%2e%2e/b", nil, 1, 400},
		{"two users", "/x", http.Header{"X-User-Id": {"a", "b"}}, 1, 400},
	} {
		t.Run(test.name, func(t *testing.T) {
			request := func(user string) *http.Request {
				request, err := http.NewRequest(http.MethodGet, "http://x"+test.path, nil)
				if err != nil {
					t.Fatal(err)
				}
				for name, values := range test.headers {
					for _, value := range values {
						request.Header.Add(name, strings.ReplaceAll(value, "USER", user))
					}
				}
				return request
			}
			var ours, theirs answer
			for i := 0; i < test.times; i++ {
				if test.name == "by address" {
					// Both have the same address, so the first would use up the quota of the second.
					ours = ask(server.URL, request(""))
					if ours.header["X-RateLimit-Remaining"] != "0" {
						t.Errorf("%v", ours)
					}
					return
				}
				// The same rules decide for other users.
				ours, theirs = ask(server.URL, request("ann")), ask("http://"+service.Gateway, request("bob"))
				if !reflect.DeepEqual(ours, theirs) {
					t.Errorf("the middleware answers\n%v\nthe gateway\n%v", ours, theirs)
				}
			}
			if ours.status != test.status {
				t.Errorf("%v", ours)
			}
		})
	}
}
