package fluxgate_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	fluxgate "github.com/openfluxgate/fluxgate/clients/go"
	"github.com/openfluxgate/fluxgate/clients/go/internal/testservice"
)

const middlewareRules = `
listen: { api: "${API}" }
rule_sets:
  api-limits:
    rules:
      - { id: per-user, scope: per_user, bands: [ { id: burst, capacity: 2, window: 1m } ] }
  wide:
    rules:
      - { id: wide, scope: per_user, bands: [ { id: burst, capacity: 50, window: 1m } ] }
  costs:
    rules:
      - { id: units, scope: per_user, algorithm: fixed_window, bands: [ { id: day, capacity: 10, window: 1d } ] }
  tenants:
    rules:
      - { id: per-tenant, key: ["attr:tenant"], bands: [ { id: burst, capacity: 1, window: 1m } ] }
  hosts:
    rules:
      - { id: host, match: { headers: { Host: limited.example } }, scope: global, bands: [ { id: b, capacity: 1, window: 1m } ] }
  lower:
    rules:
      - { id: x, match: { path: ["/Api/*"] }, scope: per_user, bands: [ { id: b, capacity: 1, window: 1m } ] }
  slots:
    rules:
      - { id: running, scope: per_user, algorithm: concurrency, hold: 1s, bands: [ { id: at-once, capacity: 1 } ] }
      - { id: requests, scope: per_user, algorithm: fixed_window, bands: [ { id: day, capacity: 4, window: 1d } ] }
`

// fixture is a service with a client.
type fixture struct {
	t      *testing.T
	client *fluxgate.Client
	// service is the address of the service.
	service string
	running *testservice.Service
}

func newFixture(t *testing.T, options ...fluxgate.Option) *fixture {
	t.Helper()
	service := testservice.Start(t, middlewareRules)
	options = append([]fluxgate.Option{fluxgate.Deadline(20 * time.Second), fluxgate.Logger(silent)}, options...)
	client := fluxgate.New("http://"+service.Address, options...)
	t.Cleanup(func() { client.Close() })
	return &fixture{t, client, "http://" + service.Address, service}
}

// serve starts a server.
func (f *fixture) serve(handler http.Handler) *httptest.Server {
	server := httptest.NewServer(handler)
	f.t.Cleanup(server.Close)
	return server
}

var ok = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })

// get sends a request with headers "name: value" and returns the response with its body.
func get(t *testing.T, url string, headers ...string) (*http.Response, string) {
	t.Helper()
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		if name == "Host" {
			request.Host = value
		}
		request.Header.Add(name, value)
	}
	response, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(body)
}

func expectStatus(t *testing.T, expected int, url string, headers ...string) *http.Response {
	t.Helper()
	response, body := get(t, url, headers...)
	if response.StatusCode != expected {
		t.Errorf("%s %v: found %d, expected %d: %s", url, headers, response.StatusCode, expected, body)
	}
	return response
}

// TestTheSnippetOfTheREADME is what users copy.
func TestTheSnippetOfTheREADME(t *testing.T) {
	f := newFixture(t)
	client := fluxgate.New(f.service, fluxgate.OnError(fluxgate.Allow), fluxgate.Deadline(20*time.Second))
	defer client.Close()
	var handler http.Handler = ok
	handler = fluxgate.Middleware(client, "api-limits", fluxgate.User(func(r *http.Request) string { return r.Header.Get("X-User-Id") }))(handler)
	server := f.serve(handler)
	for _, remaining := range []string{"1", "0"} {
		response := expectStatus(t, 200, server.URL, "X-User-Id: ann")
		if found := response.Header.Get("X-RateLimit-Remaining"); found != remaining {
			t.Errorf("found %s, expected %s", found, remaining)
		}
	}
	response := expectStatus(t, 429, server.URL, "X-User-Id: ann")
	if found := response.Header.Get("Content-Type"); found != "application/problem+json" {
		t.Error(found)
	}
	expectStatus(t, 200, server.URL, "X-User-Id: bob")
	expectStatus(t, 400, server.URL, "X-User-Id: ann", "X-User-Id: bob")
	expectStatus(t, 400, server.URL, "X-User-Id: ann", "X_User_Id: bob")
}

func TestIdentitiesAndAttributes(t *testing.T) {
	f := newFixture(t)
	tenants := f.serve(fluxgate.Middleware(f.client, "tenants",
		fluxgate.Attribute("tenant", func(r *http.Request) string { return r.URL.Query().Get("tenant") }))(ok))
	expectStatus(t, 200, tenants.URL+"/?tenant=a")
	expectStatus(t, 429, tenants.URL+"/?tenant=a")
	expectStatus(t, 200, tenants.URL+"/?tenant=b")
	// Different bytes are different tenants, though neither is text.
	expectStatus(t, 200, tenants.URL+"/?tenant=%ff")
	expectStatus(t, 200, tenants.URL+"/?tenant=%fe")

	costs := f.serve(fluxgate.Middleware(f.client, "costs",
		fluxgate.User(func(*http.Request) string { return "ann" }),
		fluxgate.Customize(func(_ *http.Request, request *fluxgate.Request) { request.Cost = fluxgate.Units(4) }))(ok))
	for _, remaining := range []string{"6", "2"} {
		if found := expectStatus(t, 200, costs.URL).Header.Get("X-RateLimit-Remaining"); found != remaining {
			t.Error(found)
		}
	}
	expectStatus(t, 429, costs.URL)

	hosts := f.serve(fluxgate.Middleware(f.client, "hosts")(ok))
	expectStatus(t, 200, hosts.URL, "Host: limited.example")
	expectStatus(t, 429, hosts.URL, "Host: limited.example")
	expectStatus(t, 200, hosts.URL, "Host: other.example")

	lower := f.serve(fluxgate.Middleware(f.client, "lower", fluxgate.IgnoreCase(), fluxgate.Exclude("/API/Health"))(ok))
	expectStatus(t, 200, lower.URL+"/api/x", "X-User-Id: ann")
	expectStatus(t, 429, lower.URL+"/API/X", "X-User-Id: ann")
	expectStatus(t, 200, lower.URL+"/api/health", "X-User-Id: ann")
}

func TestWithoutARuleSetEverythingPasses(t *testing.T) {
	client := fluxgate.New("http://127.0.0.1:1", fluxgate.OnError(fluxgate.Deny), fluxgate.Logger(silent))
	defer client.Close()
	server := httptest.NewServer(fluxgate.Middleware(client, "")(ok))
	defer server.Close()
	expectStatus(t, 200, server.URL+"/a/%2e%2e/b")
}

func TestARequestThatIsTooLargeIsRefused(t *testing.T) {
	f := newFixture(t, fluxgate.OnError(fluxgate.Allow))
	server := f.serve(fluxgate.Middleware(f.client, "api-limits")(ok))
	response := expectStatus(t, 429, server.URL, "X-User-Id: ann", "X-Long: "+strings.Repeat("x", 40_000))
	if response.Header.Get("Retry-After") != "" {
		t.Error("waiting does not help")
	}
	expectStatus(t, 429, server.URL+"/"+strings.Repeat("x", 70_000), "X-User-Id: ann")
	expectStatus(t, 200, server.URL, "X-User-Id: ann")
}

func TestAnswersOfYourOwn(t *testing.T) {
	f := newFixture(t)
	server := f.serve(fluxgate.Middleware(f.client, "api-limits",
		fluxgate.OnDenied(func(w http.ResponseWriter, _ *http.Request, decision fluxgate.Decision) {
			w.WriteHeader(decision.Status)
			fmt.Fprintf(w, "wait for %v", decision.RetryAfter > 0)
		}))(ok))
	expectStatus(t, 200, server.URL, "X-User-Id: ann")
	expectStatus(t, 200, server.URL, "X-User-Id: ann")
	response, body := get(t, server.URL, "X-User-Id: ann")
	if response.StatusCode != 429 || body != "wait for true" || response.Header.Get("Retry-After") == "" {
		t.Errorf("%v %s", response, body)
	}

	dead := fluxgate.New("http://127.0.0.1:1", fluxgate.OnError(fluxgate.Raise), fluxgate.Logger(silent))
	defer dead.Close()
	server = f.serve(fluxgate.Middleware(dead, "api-limits",
		fluxgate.OnFailure(func(w http.ResponseWriter, _ *http.Request, err error) { http.Error(w, err.Error(), 502) }))(ok))
	response, body = get(t, server.URL)
	if response.StatusCode != 502 || !strings.Contains(body, "does not decide") {
		t.Errorf("%v %s", response, body)
	}
	expectStatus(t, 500, f.serve(fluxgate.Middleware(dead, "api-limits")(ok)).URL)
}

func TestAMistakeOfTheProgramFollowsOnError(t *testing.T) {
	f := newFixture(t, fluxgate.OnError(fluxgate.Deny))
	server := f.serve(fluxgate.Middleware(f.client, "api-limits",
		fluxgate.Customize(func(_ *http.Request, request *fluxgate.Request) { request.IP = "nowhere" }))(ok))
	for i := 0; i < 5; i++ {
		expectStatus(t, 503, server.URL)
	}
	// It does not open the circuit.
	if decision, err := f.client.Check(context.Background(), "wide", fluxgate.Request{}); err != nil || decision.Outcome != "allowed" {
		t.Error(decision, err)
	}
}

func TestStackedMiddleware(t *testing.T) {
	f := newFixture(t)
	inner := fluxgate.Middleware(f.client, "api-limits")(ok)
	server := f.serve(fluxgate.Middleware(f.client, "wide")(inner))
	header := expectStatus(t, 200, server.URL, "X-User-Id: ann").Header
	if found := header.Values("RateLimit-Policy"); len(found) != 1 || found[0] != `"wide/burst";q=50;w=60,"per-user/burst";q=2;w=60` {
		t.Errorf("%q", found)
	}
	if header.Get("X-RateLimit-Limit") != "2" || header.Get("X-RateLimit-Remaining") != "1" {
		t.Errorf("%v", header)
	}
	expectStatus(t, 200, server.URL, "X-User-Id: ann")
	header = expectStatus(t, 429, server.URL, "X-User-Id: ann").Header
	if header.Get("X-RateLimit-Limit") != "2" || header.Get("Retry-After") == "" {
		t.Errorf("%v", header)
	}
}

func TestAHandlerCanSettleItsHold(t *testing.T) {
	f := newFixture(t)
	server := f.serve(fluxgate.Middleware(f.client, "costs",
		fluxgate.Customize(func(_ *http.Request, request *fluxgate.Request) {
			request.Cost, request.Hold = fluxgate.Units(8), time.Minute
		}))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		admission := fluxgate.FromContext(r.Context())
		if _, err := admission.Hold().Settle(r.Context(), fluxgate.Settlement{Cost: fluxgate.Units(1)}); err != nil {
			t.Error(err)
		}
		fmt.Fprint(w, admission.Decision.Remaining)
	})))
	for _, remaining := range []string{"2", "1"} {
		if _, body := get(t, server.URL, "X-User-Id: ann"); body != remaining {
			t.Errorf("found %s, expected %s", body, remaining)
		}
	}
	if fluxgate.FromContext(context.Background()) != nil {
		t.Error("there is no admission in this context")
	}
}

func TestSlotsEndWithTheResponseAndUnitsStayCharged(t *testing.T) {
	f := newFixture(t)
	server := f.serve(fluxgate.Middleware(f.client, "slots")(ok))
	for i := 0; i < 4; i++ {
		expectStatus(t, 200, server.URL, "X-User-Id: ann")
	}
	response, body := get(t, server.URL, "X-User-Id: ann")
	if response.StatusCode != 429 || !strings.Contains(body, "requests/day") {
		t.Errorf("%v %s", response, body)
	}
}

func TestAConnectionThatWasTakenOverKeepsItsSlot(t *testing.T) {
	f := newFixture(t)
	taken := make(chan net.Conn, 1)
	server := f.serve(fluxgate.Middleware(f.client, "slots")(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/upgrade" {
			return
		}
		connection, buffer, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = buffer.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: test\r\n\r\n")
		_ = buffer.Flush()
		taken <- connection
	})))
	connection, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	fmt.Fprint(connection, "GET /upgrade HTTP/1.1\r\nHost: x\r\nX-User-Id: ann\r\nConnection: Upgrade\r\nUpgrade: test\r\n\r\n")
	if _, err := http.ReadResponse(bufio.NewReader(connection), nil); err != nil {
		t.Fatal(err)
	}
	upgraded := <-taken
	delay := testservice.StartDelay(f.running)
	time.Sleep(1500 * time.Millisecond) // It is renewed.
	if response, _ := get(t, server.URL, "X-User-Id: ann"); response.StatusCode != 429 {
		delay.Fail(t, 600*time.Millisecond, "the slot has expired: status ", response.StatusCode)
	}
	upgraded.Close()
	expectStatus(t, 200, server.URL, "X-User-Id: ann")
}

func TestSlotsOverHTTP2(t *testing.T) {
	f := newFixture(t)
	proceed := make(chan struct{})
	server := httptest.NewUnstartedServer(fluxgate.Middleware(f.client, "slots")(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			t.Error(r.Proto)
		}
		_, _ = io.WriteString(w, "begun")
		w.(http.Flusher).Flush()
		<-proceed
	})))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	ask := func() *http.Response {
		request, _ := http.NewRequest(http.MethodGet, server.URL, nil)
		request.Header.Set("X-User-Id", "ann")
		response, err := server.Client().Do(request)
		if err != nil {
			t.Fatal(err)
		}
		return response
	}
	first := ask()
	if second := ask(); first.StatusCode != 200 || second.StatusCode != 429 {
		t.Error(first.StatusCode, second.StatusCode)
	}
	close(proceed)
	_, _ = io.Copy(io.Discard, first.Body)
	if third := ask(); third.StatusCode != 200 {
		t.Error(third.StatusCode)
	}
}

// TestRefusalsOfGRPCRequests: clients of gRPC that is served by net/http understand only its statuses.
func TestRefusalsOfGRPCRequests(t *testing.T) {
	f := newFixture(t, fluxgate.OnError(fluxgate.Deny))
	server := f.serve(fluxgate.Middleware(f.client, "api-limits")(ok))
	expect := func(url, code, message string, headers ...string) http.Header {
		t.Helper()
		response, body := get(t, url, append(headers, "Content-Type: application/grpc+proto")...)
		header := response.Header
		if response.StatusCode != 200 || header.Get("Content-Type") != "application/grpc+proto" || body != "" ||
			header.Get("Grpc-Status") != code || !strings.HasPrefix(header.Get("Grpc-Message"), message) {
			t.Errorf("%v %s", response, body)
		}
		return header
	}
	expectStatus(t, 200, server.URL, "X-User-Id: ann")
	expectStatus(t, 200, server.URL, "X-User-Id: ann")
	header := expect(server.URL, "8", "the quota is used up; retry after ", "X-User-Id: ann")
	if len(header.Get("Grpc-Retry-Pushback-Ms")) != 5 || header.Get("X-RateLimit-Remaining") != "0" {
		t.Errorf("%v", header)
	}
	expect(server.URL+"/%2e", "3", "the path has `.`")
	dead := fluxgate.New("http://127.0.0.1:1", fluxgate.OnError(fluxgate.Deny), fluxgate.Logger(silent))
	defer dead.Close()
	header = expect(f.serve(fluxgate.Middleware(dead, "x")(ok)).URL, "14", "requests cannot be counted at the moment")
	if header.Get("Grpc-Retry-Pushback-Ms") != "1000" {
		t.Errorf("%v", header)
	}
}

func TestAnAbandonedRequestDoesNotRun(t *testing.T) {
	f := newFixture(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	request := httptest.NewRequest(http.MethodGet, "/x", nil).WithContext(ctx)
	recorder := httptest.NewRecorder()
	hasRun := false
	fluxgate.Middleware(f.client, "api-limits")(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		hasRun = true
	})).ServeHTTP(recorder, request)
	if hasRun || recorder.Code != 503 {
		t.Error(hasRun, recorder.Code)
	}
}

func TestInvalidSettingsPanic(t *testing.T) {
	client := fluxgate.New("http://127.0.0.1:1")
	defer client.Close()
	for name, create := range map[string]func(){
		"an address": func() { fluxgate.New("127.0.0.1:8081") },
		"a password": func() { fluxgate.New("http://a:b@127.0.0.1:8081") },
		"a deadline": func() { fluxgate.New("http://127.0.0.1:8081", fluxgate.Deadline(0)) },
		"a policy":   func() { fluxgate.New("http://127.0.0.1:8081", fluxgate.OnError(7)) },
		"a CA":       func() { fluxgate.New("http://127.0.0.1:8081", fluxgate.CA([]byte("x"))) },
		"a pattern":  func() { fluxgate.Middleware(client, "x", fluxgate.Include("api")) },
		"a network":  func() { fluxgate.Middleware(client, "x", fluxgate.TrustedProxies("10.0.0.0/99")) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if failure := recover(); failure == nil || !strings.HasPrefix(fmt.Sprint(failure), "fluxgate: ") {
					t.Error(failure)
				}
			}()
			create()
		})
	}
}
