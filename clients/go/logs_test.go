package fluxgate_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	fluxgate "github.com/openfluxgate/fluxgate/clients/go"
	"github.com/openfluxgate/fluxgate/clients/go/internal/testservice"
)

// logLines collects what a client logs.
type logLines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logLines) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(text)
}

// take returns the lines that came since the last call, without their times.
func (l *logLines) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := strings.Split(strings.TrimSuffix(l.text.String(), "\n"), "\n")
	l.text.Reset()
	return lines
}

func (l *logLines) option() fluxgate.Option {
	return fluxgate.Logger(slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, attr slog.Attr) slog.Attr {
			if attr.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return attr
		},
	})))
}

func TestAnOutageIsLoggedOnceWithWhatHappensToRequests(t *testing.T) {
	for policy, effect := range map[fluxgate.ErrorPolicy]string{
		fluxgate.Allow: "requests are allowed (on_error=allow)",
		fluxgate.Deny:  "requests are denied (on_error=deny)",
		fluxgate.Raise: "requests fail (on_error=raise)",
	} {
		var log logLines
		client := fluxgate.New("http://127.0.0.1:1", fluxgate.OnError(policy), fluxgate.Deadline(10*time.Second), log.option())
		for range 20 {
			_, err := client.Check(context.Background(), "x", fluxgate.Request{})
			if policy == fluxgate.Raise && !strings.Contains(err.Error(), "http://127.0.0.1:1 does not decide: ") {
				t.Error(err)
			}
		}
		client.Close()
		lines := log.take()
		start := fmt.Sprintf(`level=WARN msg="FluxGate does not decide: %s" service=http://127.0.0.1:1 error=`, effect)
		if len(lines) != 1 || !strings.HasPrefix(lines[0], start) || !strings.Contains(lines[0], "connection refused") {
			t.Errorf("%q", lines)
		}
	}
}

func TestTheEndOfAnOutageIsLoggedWhereItsBeginningIs(t *testing.T) {
	service := testservice.Start(t, middlewareRules)
	proxy := testservice.StartProxy(t, service, "down")
	defer proxy.Stop()
	var log logLines
	client := fluxgate.New(proxy.URL(), fluxgate.Deadline(10*time.Second), log.option())
	defer client.Close()
	decides := func() bool {
		decision, err := client.Check(context.Background(), "wide", fluxgate.Request{User: "ann"})
		return err == nil && decision.Outcome == fluxgate.OutcomeAllowed
	}
	if decides() {
		t.Fatal("the service is not down")
	}
	if err := proxy.SetMode("up"); err != nil {
		t.Fatal(err)
	}
	eventually(t, decides)
	lines := log.take()
	if len(lines) != 2 || lines[1] != fmt.Sprintf(`level=WARN msg="FluxGate decides again" service=%s`, proxy.URL()) {
		t.Errorf("%q", lines)
	}
}

func TestRuleSetsThatDoNotExistAreLoggedOnce(t *testing.T) {
	var isAllowed atomic.Bool
	isAllowed.Store(true)
	server := fake(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-FluxGate-Rule-Set", "missing")
		body := strings.Replace(allowedBody, `"outcome":"allowed","rule":"r","band":"b"`, `"outcome":"no_rule","rule":null,"band":null`, 1)
		if !isAllowed.Load() {
			w.WriteHeader(http.StatusTooManyRequests)
			body = strings.NewReplacer("true", "false", "no_rule", "denied").Replace(body)
		}
		_, _ = io.WriteString(w, body)
	})
	logged := func(ruleSets ...string) []string {
		var log logLines
		client := fluxgate.New(server.URL, fluxgate.Deadline(20*time.Second), log.option())
		defer client.Close()
		for _, ruleSet := range ruleSets {
			if decision, err := client.Check(context.Background(), ruleSet, fluxgate.Request{}); err != nil || decision.Allowed != isAllowed.Load() {
				t.Fatal(decision, err)
			}
		}
		return log.take()
	}
	line := func(ruleSet, effect string) string {
		message := "FluxGate has no rule set `" + ruleSet + "`: requests that it should limit " + effect
		return fmt.Sprintf("level=WARN msg=%q service=%s", message, server.URL)
	}
	expect := func(lines []string, expected ...string) {
		t.Helper()
		if strings.Join(lines, "\n") != strings.Join(expected, "\n") {
			t.Errorf("%q, not %q", lines, expected)
		}
	}
	expect(logged("api-limts", "other", "api-limts", "other"), line("api-limts", "pass"), line("other", "pass"))
	var many []string
	for i := range 150 {
		many = append(many, fmt.Sprintf("set-%d", i))
	}
	if lines := logged(append(many, many...)...); len(lines) != 100 {
		t.Errorf("%d lines", len(lines))
	}
	isAllowed.Store(false)
	expect(logged("api-limts"), line("api-limts", "are denied"))
}

func TestABatchLogsRuleSetsThatDoNotExist(t *testing.T) {
	service := testservice.Start(t, middlewareRules)
	var log logLines
	client := fluxgate.New("http://"+service.Address, fluxgate.Deadline(20*time.Second), log.option())
	defer client.Close()
	var checks []fluxgate.BatchCheck
	for _, ruleSet := range []string{"wide", "api-limts", "other", "api-limts"} {
		checks = append(checks, fluxgate.BatchCheck{RuleSet: ruleSet, Request: fluxgate.Request{User: "ann"}})
	}
	decisions, err := client.CheckBatch(context.Background(), checks)
	if err != nil || decisions[0].Outcome != fluxgate.OutcomeAllowed || decisions[1].Outcome != fluxgate.OutcomeNoRule {
		t.Fatal(decisions, err)
	}
	lines := log.take()
	if len(lines) != 2 || !strings.Contains(lines[0], "no rule set `api-limts`") || !strings.Contains(lines[1], "no rule set `other`") {
		t.Errorf("%q", lines)
	}
}

func TestAddressesThatAreNoneAreRefused(t *testing.T) {
	for _, address := range []string{"127.0.0.1:8081", "localhost:8081", "", "ftp://host", "http://", "http://host/?a=1", "http://u:secret@host", "http://u:secret@ho st"} {
		client, err := fluxgate.Open(address)
		if err == nil {
			client.Close()
			t.Errorf("%q is accepted", address)
			continue
		}
		const expected = "fluxgate: expected the address of a service, such as http://127.0.0.1:8081, "
		if !strings.HasPrefix(err.Error(), expected) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", address, err)
		}
	}
}
