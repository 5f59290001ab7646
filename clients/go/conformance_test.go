package fluxgate_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	fluxgate "github.com/openfluxgate/fluxgate/clients/go"
	"github.com/openfluxgate/fluxgate/clients/go/internal/testservice"
)

// object is a JSON object.
type object = map[string]any

type conformanceCase struct {
	Name    string
	Kind    string
	Config  string
	Service string
	// BearsMs is for how long the machine may delay the case; 0 if its times do not matter.
	BearsMs int64 `json:"bears_ms"`
	Client  struct {
		OnError    string `json:"on_error"`
		DeadlineMs int    `json:"deadline_ms"`
	}
	Middleware struct {
		RuleSet            string `json:"rule_set"`
		Include, Exclude   []string
		TrustedProxies     []string `json:"trusted_proxies"`
		MaxConcurrentWaits int      `json:"max_concurrent_waits"`
	}
	Steps []object
}

// deadline is that of the client.
func (c *conformanceCase) deadline() time.Duration {
	if c.Client.DeadlineMs == 0 {
		return 10 * time.Second
	}
	return time.Duration(c.Client.DeadlineMs) * time.Millisecond
}

// TestConformance runs the cases that all clients pass; clients/README.md describes them.
func TestConformance(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(testservice.Clients(), "conformance.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all struct {
		Configs map[string][]string
		Cases   []conformanceCase
	}
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	if len(all.Cases) < 60 {
		t.Fatalf("only %d cases", len(all.Cases))
	}
	for i := range all.Cases {
		test := &all.Cases[i]
		t.Run(test.Kind+": "+test.Name, func(t *testing.T) {
			config := test.Config
			if config == "" {
				config = "main"
			}
			runCase(t, test, strings.Join(all.Configs[config], "\n"))
		})
	}
}

func runCase(t *testing.T, test *conformanceCase, config string) {
	service := testservice.Start(t, config)
	checkLeaks := testservice.CheckLeaks(t)
	run := &caseRun{t: t, holds: make(map[string]*fluxgate.Hold), started: make(map[string]*startedRequest)}
	run.service = service
	run.proxy = testservice.StartProxy(t, service, test.Service)
	policies := map[string]fluxgate.ErrorPolicy{"": fluxgate.Allow, "allow": fluxgate.Allow, "deny": fluxgate.Deny, "raise": fluxgate.Raise}
	run.client = fluxgate.New(run.proxy.URL(), fluxgate.OnError(policies[test.Client.OnError]),
		fluxgate.Deadline(test.deadline()), fluxgate.Logger(silent))
	if test.Kind == "http" {
		run.server = run.startServer(test)
	}
	delay := testservice.StartDelay(service)
	for number, step := range test.Steps {
		run.step(fmt.Sprintf("step %d", number+1), step)
	}
	delayed := delay.Total()
	for _, request := range run.started {
		request.connection.Close()
	}
	if run.server != nil {
		run.server.Close()
	}
	run.client.Close()
	run.proxy.Stop()
	checkLeaks()
	if len(run.failures) > 0 {
		failures := strings.Join(run.failures, "\n")
		if bears := time.Duration(test.BearsMs) * time.Millisecond; bears > 0 && delayed > bears {
			t.Skipf("the machine delayed it for %v, it bears %v: %s", delayed.Round(time.Millisecond), bears, failures)
		}
		t.Fatal(failures)
	}
}

var silent = slog.New(slog.NewTextHandler(io.Discard, nil))

type caseRun struct {
	t       *testing.T
	client  *fluxgate.Client
	service *testservice.Service
	proxy   *testservice.Proxy
	server  *httptest.Server
	holds   map[string]*fluxgate.Hold
	started map[string]*startedRequest
	// failures are reported at the end, when it is known how busy the machine was.
	failures []string
	// sent numbers the requests; served are the numbers for which the handler has run.
	sent   int
	served sync.Map
	runs   atomic.Int64
}

type startedRequest struct {
	connection net.Conn
	number     string
}

func (r *caseRun) step(where string, step object) {
	r.t.Helper()
	times := 1
	if count, ok := step["times"].(float64); ok {
		times = int(count)
	}
	for ; times > 0; times-- {
		began := time.Now()
		r.runStep(where, step)
		if bounds, ok := step["elapsed_ms"].([]any); ok {
			took := float64(time.Since(began).Microseconds()) / 1000
			allowed := bounds[1].(float64) + float64(testservice.Allowance(began).Milliseconds())
			if took < bounds[0].(float64) || took > allowed {
				r.fail("%s: took %.1f ms, expected %v", where, took, bounds)
			}
		}
	}
}

func (r *caseRun) fail(format string, values ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, values...))
}

func (r *caseRun) runStep(where string, step object) {
	r.t.Helper()
	expected := step["expect"]
	switch {
	case step["call"] != nil:
		r.compare(where, expected, r.call(step))
	case step["start"] != nil:
		r.started[step["start"].(string)] = r.start(step["request"].(object))
	case step["request"] != nil:
		started := r.start(step["request"].(object))
		r.compare(where, expected, r.finish(started))
	case step["finish"] != nil:
		started := r.started[step["finish"].(string)]
		answer := r.finish(started)
		if expected != nil {
			r.compare(where, expected, answer)
		}
	case step["abort"] != nil:
		r.started[step["abort"].(string)].connection.Close()
	case step["service"] != nil:
		if err := r.proxy.SetMode(step["service"].(string)); err != nil {
			r.t.Fatal(err)
		}
	case step["sleep_ms"] != nil:
		time.Sleep(time.Duration(step["sleep_ms"].(float64)) * time.Millisecond)
		if slots, ok := step["slots_held"].(float64); ok {
			r.waitForSlots(where, int(slots))
		}
	case step["asked"] != nil:
		r.compare(where+": asked", step["asked"], float64(r.proxy.Asked()))
	case step["handler_runs"] != nil:
		r.compare(where+": handler_runs", step["handler_runs"], float64(r.runs.Load()))
	default:
		r.t.Fatalf("%s: unknown step %v", where, step)
	}
}

// waitForSlots waits until the service holds this many slots, for as long as the machine is late and a
// little longer.
func (r *caseRun) waitForSlots(where string, slots int) {
	r.t.Helper()
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		held, err := r.service.SlotsHeld()
		if err == nil && held == slots {
			return
		}
		if time.Since(began) > 400*time.Millisecond+testservice.Allowance(began) {
			r.compare(where+": slots_held", float64(slots), float64(held))
			return
		}
	}
}

// call makes a call of the client and returns its result as a case describes it.
func (r *caseRun) call(step object) object {
	ctx := context.Background()
	args := step["args"].(object)
	hold := r.holds[text(args["hold"])]
	switch step["call"] {
	case "check":
		decision, err := r.client.Check(ctx, text(args["rule_set"]), requestOf(args))
		return resultOf(decisionOf(decision), err)
	case "peek":
		decision, err := r.client.Peek(ctx, text(args["rule_set"]), requestOf(args))
		return resultOf(decisionOf(decision), err)
	case "wait":
		if most, ok := args["max_wait_ms"].(float64); ok {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, time.Duration(most)*time.Millisecond)
			defer cancel()
		}
		if after, ok := step["interrupt_after_ms"].(float64); ok {
			var cancel context.CancelFunc
			ctx, cancel = context.WithCancel(ctx)
			defer time.AfterFunc(time.Duration(after)*time.Millisecond, cancel).Stop()
		}
		decision, err := r.client.Wait(ctx, text(args["rule_set"]), requestOf(args))
		return resultOf(decisionOf(decision), err)
	case "batch":
		var checks []fluxgate.BatchCheck
		for _, check := range args["checks"].([]any) {
			fields := check.(object)
			checks = append(checks, fluxgate.BatchCheck{RuleSet: text(fields["rule_set"]), Request: requestOf(fields)})
		}
		decisions, err := r.client.CheckBatch(ctx, checks)
		list := []any{}
		for _, decision := range decisions {
			list = append(list, decisionOf(decision))
		}
		return resultOf(object{"decisions": list}, err)
	case "consume":
		consumed, err := r.client.Consume(ctx, consumptionOf(args))
		return resultOf(object{
			"allowed": consumed.Allowed, "remaining": orNull(consumed.Remaining),
			"retry_after_ms": millis(consumed.RetryAfter), "outcome": string(consumed.Outcome),
		}, err)
	case "hold":
		request := requestOf(args)
		if span, ok := args["hold_ms"].(float64); ok {
			request.Hold = time.Duration(span) * time.Millisecond
		}
		hold, err := r.client.Hold(ctx, text(args["rule_set"]), request)
		if err != nil {
			return resultOf(nil, err)
		}
		r.holds[text(step["as"])] = hold
		return decisionOf(hold.Decision())
	case "settle":
		settlement := fluxgate.Settlement{Cost: cost(args), Attributes: texts(args["attributes"])}
		settled, err := hold.Settle(ctx, settlement)
		return resultOf(object{"charged": float64(settled.Charged), "uncharged": float64(settled.Uncharged)}, err)
	case "renew":
		renewed, err := hold.Renew(ctx)
		return resultOf(object{"renewed": renewed}, err)
	case "release":
		released, err := hold.Release(ctx)
		return resultOf(object{"released": released}, err)
	case "leave":
		return resultOf(object{}, hold.Close())
	}
	r.t.Fatalf("unknown call %v", step["call"])
	return nil
}

func requestOf(args object) fluxgate.Request {
	isPeek, _ := args["peek"].(bool)
	return fluxgate.Request{
		IP: text(args["ip"]), User: text(args["user"]), APIKey: text(args["api_key"]),
		Method: text(args["method"]), Path: text(args["path"]),
		Headers: texts(args["headers"]), Attributes: texts(args["attributes"]),
		Cost: cost(args), Peek: isPeek,
	}
}

func consumptionOf(args object) fluxgate.Consumption {
	consumption := fluxgate.Consumption{RuleID: text(args["rule_id"]), Cost: cost(args)}
	switch identity := args["identity"].(type) {
	case string:
		consumption.Identity = []string{identity}
	case []any:
		for _, part := range identity {
			consumption.Identity = append(consumption.Identity, part.(string))
		}
	}
	capacity, _ := args["capacity"].(float64)
	consumption.Capacity = int64(capacity)
	consumption.RefillTokensPerSecond, _ = args["refill_tokens_per_second"].(float64)
	return consumption
}

func text(value any) string {
	text, _ := value.(string)
	return text
}

func texts(value any) map[string]string {
	fields, ok := value.(object)
	if !ok {
		return nil
	}
	result := make(map[string]string)
	for name, value := range fields {
		result[name] = value.(string)
	}
	return result
}

func cost(args object) *int64 {
	if cost, ok := args["cost"].(float64); ok {
		return fluxgate.Units(int64(cost))
	}
	return nil
}

func resultOf(result object, err error) object {
	var rejected *fluxgate.RequestError
	var unavailable *fluxgate.UnavailableError
	var denied *fluxgate.DeniedError
	switch {
	case err == nil:
		return result
	case errors.As(err, &denied):
		return object{"error": "denied", "decision": decisionOf(denied.Decision)}
	case errors.As(err, &rejected):
		return object{"error": "invalid", "status": float64(rejected.Status)}
	case errors.As(err, &unavailable):
		return object{"error": "unavailable"}
	case errors.Is(err, fluxgate.ErrHoldEnded):
		return object{"error": "ended"}
	case errors.Is(err, context.Canceled):
		return object{"error": "interrupted"}
	}
	return object{"error": err.Error()}
}

func decisionOf(decision fluxgate.Decision) object {
	violated := []any{}
	for _, name := range decision.Violated {
		violated = append(violated, name)
	}
	headers := object{}
	for name, values := range decision.Header {
		headers[strings.ToLower(name)] = strings.Join(values, ",")
	}
	result := object{
		"allowed": decision.Allowed, "outcome": string(decision.Outcome), "status": float64(decision.Status),
		"limit": orNull(decision.Limit), "remaining": orNull(decision.Remaining),
		"retry_after_ms": millis(decision.RetryAfter), "reset_after_ms": millis(decision.ResetAfter),
		"delay_ms": millis(decision.Delay), "violated": violated, "headers": headers,
	}
	for name, value := range map[string]string{"rule": decision.Rule, "band": decision.Band, "hold": decision.HoldID} {
		if value != "" {
			result[name] = value
		}
	}
	return result
}

func orNull(number int64) any {
	if number < 0 {
		return nil
	}
	return float64(number)
}

func millis(span time.Duration) any {
	if span == fluxgate.Never {
		return nil
	}
	return float64(span.Microseconds()) / 1000
}

func (r *caseRun) startServer(test *conformanceCase) *httptest.Server {
	settings := &test.Middleware
	options := []fluxgate.MiddlewareOption{
		fluxgate.Include(settings.Include...), fluxgate.Exclude(settings.Exclude...),
		fluxgate.TrustedProxies(settings.TrustedProxies...),
		fluxgate.MaxConcurrentWaits(settings.MaxConcurrentWaits),
	}
	limit := fluxgate.Middleware(r.client, settings.RuleSet, options...)
	server := httptest.NewUnstartedServer(recovered(limit(http.HandlerFunc(r.handle))))
	server.Config.ErrorLog = slog.NewLogLogger(silent.Handler(), slog.LevelError)
	server.Start()
	return server
}

// recovered answers a panic with 500, as most frameworks do.
func recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			switch failure := recover(); failure {
			case nil:
			case http.ErrAbortHandler:
				panic(failure)
			default:
				http.Error(w, "the handler failed", http.StatusInternalServerError)
			}
		}()
		next.ServeHTTP(w, r)
	})
}

const numberHeader = "X-Number-Of-Request"

func (r *caseRun) handle(w http.ResponseWriter, request *http.Request) {
	r.runs.Add(1)
	r.served.Store(request.Header.Get(numberHeader), true)
	chunk := func() {
		_, _ = io.WriteString(w, "chunk\n")
		_ = http.NewResponseController(w).Flush()
	}
	switch request.URL.Path {
	case "/stream":
		count, err := strconv.Atoi(request.URL.Query().Get("n"))
		if err != nil {
			count = 5
		}
		for ; count > 0 && request.Context().Err() == nil; count-- {
			time.Sleep(100 * time.Millisecond)
			chunk()
		}
	case "/break":
		chunk()
		panic(http.ErrAbortHandler)
	case "/fail":
		panic("failed")
	default:
		_, _ = io.WriteString(w, "ok")
	}
}

// start sends a request exactly as it stands in the case.
func (r *caseRun) start(request object) *startedRequest {
	r.t.Helper()
	connection, err := net.Dial("tcp", r.server.Listener.Addr().String())
	if err != nil {
		r.t.Fatal(err)
	}
	r.sent++
	started := &startedRequest{connection, strconv.Itoa(r.sent)}
	method := text(request["method"])
	if method == "" {
		method = http.MethodGet
	}
	head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s: %s\r\n",
		method, request["path"], numberHeader, started.number)
	if method != http.MethodGet {
		head += "Content-Length: 0\r\n"
	}
	headers, _ := request["headers"].([]any)
	for _, header := range headers {
		pair := header.([]any)
		head += fmt.Sprintf("%s: %s\r\n", pair[0], pair[1])
	}
	if _, err := io.WriteString(connection, head+"\r\n"); err != nil {
		r.t.Fatal(err)
	}
	return started
}

func (r *caseRun) finish(started *startedRequest) object {
	r.t.Helper()
	defer started.connection.Close()
	_ = started.connection.SetDeadline(time.Now().Add(20 * time.Second))
	response, err := http.ReadResponse(bufio.NewReader(started.connection), nil)
	if err != nil {
		return object{"error": err.Error()}
	}
	body, _ := io.ReadAll(response.Body)
	response.Body.Close()
	headers := object{}
	for name, values := range response.Header {
		headers[strings.ToLower(name)] = strings.Join(values, ", ")
	}
	var parsed any
	_ = json.Unmarshal(body, &parsed)
	_, hasRun := r.served.Load(started.number)
	return object{
		"status": float64(response.StatusCode), "headers": headers, "text": string(body), "body": parsed,
		"handler_ran": hasRun,
	}
}

// compare compares a result with what a case expects of it.
func (r *caseRun) compare(where string, expected, found any) {
	switch expected := expected.(type) {
	case object:
		if bounds, ok := expected["between"].([]any); ok {
			number, isNumber := found.(float64)
			if !isNumber || number < bounds[0].(float64) || number > bounds[1].(float64) {
				r.fail("%s: found %v, expected %v", where, found, expected)
			}
			return
		}
		if pattern, ok := expected["regex"].(string); ok {
			text, isText := found.(string)
			if !isText || !regexp.MustCompile(pattern).MatchString(text) {
				r.fail("%s: found %v, expected %v", where, found, expected)
			}
			return
		}
		fields, ok := found.(object)
		if !ok {
			r.fail("%s: found %v, expected %v", where, found, expected)
			return
		}
		for name, value := range expected {
			member := name
			if strings.HasSuffix(where, ".headers") {
				member = strings.ToLower(name)
			}
			r.compare(where+"."+name, value, fields[member])
		}
		if len(r.failures) > 0 && fields["error"] != nil && expected["error"] == nil {
			r.fail("%s: error: %v", where, fields["error"])
		}
	case []any:
		list, ok := found.([]any)
		if !ok || len(list) != len(expected) {
			r.fail("%s: found %v, expected %v", where, found, expected)
			return
		}
		for i := range expected {
			r.compare(fmt.Sprintf("%s[%d]", where, i), expected[i], list[i])
		}
	default:
		if !reflect.DeepEqual(expected, found) {
			r.fail("%s: found %v, expected %v", where, found, expected)
		}
	}
}
