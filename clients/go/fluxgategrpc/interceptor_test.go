package fluxgategrpc_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	fluxgate "github.com/openfluxgate/fluxgate/clients/go"
	"github.com/openfluxgate/fluxgate/clients/go/fluxgategrpc"
	"github.com/openfluxgate/fluxgate/clients/go/internal/testservice"
)

const rules = `
listen: { api: "${API}" }
rule_sets:
  api-limits:
    lists: { blocked: [mallory] }
    rules:
      - { id: blocked, action: deny, match: { user: { in: blocked } } }
      - { id: per-user, scope: per_user, bands: [ { id: burst, capacity: 2, window: 1m } ] }
  per-ip:
    rules:
      - { id: per-ip, scope: per_ip, bands: [ { id: burst, capacity: 1, window: 1m } ] }
  per-key:
    rules:
      - { id: per-key, scope: per_api_key, bands: [ { id: burst, capacity: 1, window: 1m } ] }
  by-method:
    rules:
      - { id: checks, match: { path: ["/grpc.health.v1.Health/Check"] }, scope: per_user, bands: [ { id: burst, capacity: 1, window: 1m } ] }
  tenants:
    rules:
      - { id: per-tenant, key: ["attr:tenant"], bands: [ { id: burst, capacity: 1, window: 1m } ] }
  slots:
    rules:
      - { id: running, scope: per_user, algorithm: concurrency, hold: 1s, bands: [ { id: at-once, capacity: 1 } ] }
  waits:
    rules:
      - { id: queue, scope: per_user, on_exceed: wait, max_wait: 10s, bands: [ { id: burst, capacity: 1, window: 1s } ] }
`

var silent = slog.New(slog.NewTextHandler(io.Discard, nil))

// server counts its calls. Watch sends one message and stays open until the client leaves.
type server struct {
	health.UnimplementedHealthServer
	runs atomic.Int64
}

func (s *server) Check(ctx context.Context, _ *health.HealthCheckRequest) (*health.HealthCheckResponse, error) {
	s.runs.Add(1)
	if fluxgate.FromContext(ctx) == nil {
		return nil, status.Error(codes.Internal, "no admission")
	}
	return &health.HealthCheckResponse{Status: health.HealthCheckResponse_SERVING}, nil
}

func (s *server) Watch(_ *health.HealthCheckRequest, stream grpc.ServerStreamingServer[health.HealthCheckResponse]) error {
	s.runs.Add(1)
	if fluxgate.FromContext(stream.Context()) == nil {
		return status.Error(codes.Internal, "no admission")
	}
	if err := stream.Send(&health.HealthCheckResponse{}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return stream.Context().Err()
}

type fixture struct {
	t       *testing.T
	service *testservice.Service
	server  *server
	caller  health.HealthClient
	client  *fluxgate.Client
	proxy   *testservice.Proxy
}

func start(t *testing.T, policy fluxgate.ErrorPolicy, ruleSet string, options ...fluxgategrpc.Option) *fixture {
	t.Helper()
	service := testservice.Start(t, rules)
	checkLeaks := testservice.CheckLeaks(t)
	f := &fixture{t: t, service: service, server: &server{}, proxy: testservice.StartProxy(t, service, "up")}
	f.client = fluxgate.New(f.proxy.URL(), fluxgate.OnError(policy), fluxgate.Deadline(20*time.Second), fluxgate.Logger(silent))
	limits := fluxgategrpc.New(f.client, ruleSet, options...)
	running := grpc.NewServer(grpc.UnaryInterceptor(limits.Unary), grpc.StreamInterceptor(limits.Stream))
	health.RegisterHealthServer(running, f.server)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = running.Serve(listener) }()
	connection, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	f.caller = health.NewHealthClient(connection)
	t.Cleanup(func() {
		connection.Close()
		running.Stop()
		f.client.Close()
		f.proxy.Stop()
		checkLeaks()
	})
	return f
}

// call makes a unary call with this metadata and returns its header, trailer and status.
func (f *fixture) call(pairs ...string) (header, trailer metadata.MD, result *status.Status) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	ctx = metadata.NewOutgoingContext(ctx, metadata.Pairs(pairs...))
	_, err := f.caller.Check(ctx, &health.HealthCheckRequest{}, grpc.Header(&header), grpc.Trailer(&trailer))
	return header, trailer, status.Convert(err)
}

func (f *fixture) expect(code codes.Code, pairs ...string) (header, trailer metadata.MD) {
	f.t.Helper()
	header, trailer, found := f.call(pairs...)
	if found.Code() != code {
		f.t.Errorf("%v: found %v, expected %v", pairs, found, code)
	}
	return header, trailer
}

func value(values metadata.MD, name string) string { return strings.Join(values.Get(name), ",") }

func TestUnaryCalls(t *testing.T) {
	f := start(t, fluxgate.Allow, "api-limits")
	for _, remaining := range []string{"1", "0"} {
		header, _ := f.expect(codes.OK, "x-user-id", "ann")
		if value(header, "x-ratelimit-limit") != "2" || value(header, "x-ratelimit-remaining") != remaining ||
			value(header, "ratelimit-policy") != `"per-user/burst";q=2;w=60` || value(header, "ratelimit") == "" {
			t.Errorf("%v", header)
		}
	}
	_, trailer, denied := f.call("x-user-id", "ann")
	pushback := value(trailer, "grpc-retry-pushback-ms")
	expected := fmt.Sprintf("the quota is used up; retry after %s ms", pushback)
	if denied.Code() != codes.ResourceExhausted || denied.Message() != expected || len(pushback) != 5 {
		t.Errorf("%v %v", denied, trailer)
	}
	if value(trailer, "retry-after") == "" || value(trailer, "x-ratelimit-remaining") != "0" {
		t.Errorf("%v", trailer)
	}
	_, trailer, forbidden := f.call("x-user-id", "mallory")
	if forbidden.Code() != codes.PermissionDenied || forbidden.Message() != "a rule forbids this request" ||
		value(trailer, "retry-after") != "" || value(trailer, "grpc-retry-pushback-ms") != "-1" {
		t.Errorf("%v %v", forbidden, trailer)
	}
	if runs := f.server.runs.Load(); runs != 2 {
		t.Errorf("%d calls ran", runs)
	}
}

func TestSpoofedMetadata(t *testing.T) {
	f := start(t, fluxgate.Allow, "per-ip")
	f.expect(codes.OK, "x-forwarded-for", "192.0.2.1")
	f.expect(codes.ResourceExhausted, "x-forwarded-for", "192.0.2.2")
	f.expect(codes.InvalidArgument, "x-user-id", "a", "x-user-id", "b")
	f.expect(codes.InvalidArgument, "x_user_id", "a")
	f.expect(codes.InvalidArgument, "x-user-id", "=?utf-8?q?a?=")

	f = start(t, fluxgate.Allow, "per-ip", fluxgategrpc.TrustedProxies("127.0.0.0/8", "::1"))
	f.expect(codes.OK, "x-forwarded-for", "198.51.100.1, 192.0.2.1")
	f.expect(codes.ResourceExhausted, "x-forwarded-for", "192.0.2.1")
	f.expect(codes.OK, "x-forwarded-for", "192.0.2.2")
	f.expect(codes.InvalidArgument, "x_forwarded_for", "192.0.2.3")

	f = start(t, fluxgate.Allow, "per-key")
	f.expect(codes.OK, "x-api-key", "a")
	f.expect(codes.ResourceExhausted, "x-api-key", "a")
	f.expect(codes.OK, "x-api-key", "b", "trace-bin", "\xff\x00")
}

func TestOptions(t *testing.T) {
	tenant := fluxgategrpc.Customize(func(ctx context.Context, request *fluxgate.Request) {
		incoming, _ := metadata.FromIncomingContext(ctx)
		request.Attributes = map[string]string{"tenant": value(incoming, "x-tenant")}
	})
	f := start(t, fluxgate.Allow, "tenants", tenant)
	f.expect(codes.OK, "x-tenant", "a")
	f.expect(codes.ResourceExhausted, "x-tenant", "a")
	f.expect(codes.OK, "x-tenant", "b")

	f = start(t, fluxgate.Allow, "api-limits",
		fluxgategrpc.User(func(context.Context) string { return "all" }), fluxgategrpc.Include("/grpc.health.v1.Health/*"))
	f.expect(codes.OK, "x-user-id", "a")
	f.expect(codes.OK, "x-user-id", "b")
	f.expect(codes.ResourceExhausted, "x-user-id", "c")

	f = start(t, fluxgate.Allow, "by-method")
	f.expect(codes.OK, "x-user-id", "a")
	f.expect(codes.ResourceExhausted, "x-user-id", "a")
}

func TestExcludedCallsNeedNoService(t *testing.T) {
	f := start(t, fluxgate.Deny, "api-limits", fluxgategrpc.Exclude("/grpc.health.v1.Health/Check"))
	if err := f.proxy.SetMode("down"); err != nil {
		t.Fatal(err)
	}
	// The handler says that there is no admission.
	f.expect(codes.Internal)
	if f.proxy.Asked() != 0 || f.server.runs.Load() != 1 {
		t.Error("the service was called")
	}
}

func TestAServiceThatIsDown(t *testing.T) {
	for policy, code := range map[fluxgate.ErrorPolicy]codes.Code{
		fluxgate.Allow: codes.OK, fluxgate.Deny: codes.Unavailable, fluxgate.Raise: codes.Internal,
	} {
		f := start(t, policy, "api-limits")
		if err := f.proxy.SetMode("down"); err != nil {
			t.Fatal(err)
		}
		_, trailer := f.expect(code, "x-user-id", "ann")
		if policy == fluxgate.Deny && (value(trailer, "retry-after") != "1" || value(trailer, "grpc-retry-pushback-ms") != "1000") {
			t.Errorf("%v", trailer)
		}
		if runs := f.server.runs.Load(); (runs == 1) != (policy == fluxgate.Allow) {
			t.Errorf("%d calls ran", runs)
		}
	}
}

func TestStreams(t *testing.T) {
	f := start(t, fluxgate.Allow, "slots")
	watch := func() (context.CancelFunc, error) {
		ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(context.Background(), metadata.Pairs("x-user-id", "ann")))
		stream, err := f.caller.Watch(ctx, &health.HealthCheckRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		return cancel, err
	}
	cancel, err := watch()
	if err != nil {
		t.Fatal(err)
	}
	delay := testservice.StartDelay(f.service)
	time.Sleep(1500 * time.Millisecond) // Its slot is renewed.
	cancelOther, err := watch()
	defer cancelOther()
	if status.Code(err) != codes.ResourceExhausted {
		delay.Fail(t, 600*time.Millisecond, err)
	}
	f.expect(codes.ResourceExhausted, "x-user-id", "ann")
	cancel()
	// The slot is free once the server has noticed.
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if _, _, found := f.call("x-user-id", "ann"); found.Code() == codes.OK {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the slot is still taken")
		}
	}
	f.expect(codes.OK, "x-user-id", "ann")
}

func TestWaiting(t *testing.T) {
	f := start(t, fluxgate.Allow, "waits", fluxgategrpc.MaxConcurrentWaits(1))
	began := time.Now()
	f.expect(codes.OK, "x-user-id", "ann")
	f.expect(codes.OK, "x-user-id", "ann")
	if waited := time.Since(began); waited < 990*time.Millisecond {
		t.Error(waited)
	}
	// A call whose deadline is before its turn is refused at once.
	delay := testservice.StartDelay(f.service)
	ctx, cancel := context.WithTimeout(metadata.NewOutgoingContext(context.Background(), metadata.Pairs("x-user-id", "ann")), 300*time.Millisecond)
	defer cancel()
	if _, err := f.caller.Check(ctx, &health.HealthCheckRequest{}); status.Code(err) != codes.ResourceExhausted {
		delay.Fail(t, 150*time.Millisecond, err)
	}
	if runs := f.server.runs.Load(); runs != 2 {
		t.Errorf("%d calls ran", runs)
	}
}

// TestRetries: gRPC's own retry policy obeys the pushback.
func TestRetries(t *testing.T) {
	service := testservice.Start(t, strings.ReplaceAll(rules, "capacity: 2, window: 1m", "capacity: 2, window: 1s"))
	client := fluxgate.New("http://"+service.Address, fluxgate.Deadline(20*time.Second), fluxgate.Logger(silent))
	defer client.Close()
	running := grpc.NewServer(grpc.UnaryInterceptor(fluxgategrpc.UnaryServerInterceptor(client, "api-limits")),
		grpc.StreamInterceptor(fluxgategrpc.StreamServerInterceptor(client, "api-limits")))
	defer running.Stop()
	health.RegisterHealthServer(running, &server{})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = running.Serve(listener) }()
	connection, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(`{"methodConfig":[{"name":[{}],"retryPolicy":{"maxAttempts":2,
			"initialBackoff":"0.001s","maxBackoff":"0.001s","backoffMultiplier":1,"retryableStatusCodes":["RESOURCE_EXHAUSTED"]}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	began := time.Now()
	for range 3 {
		if _, err := health.NewHealthClient(connection).Check(context.Background(), &health.HealthCheckRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(began); took < 400*time.Millisecond || took > 3*time.Second+testservice.Allowance(began) {
		t.Error(took)
	}
}
