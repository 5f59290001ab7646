// Package fluxgategrpc limits the calls to a gRPC server by the decisions of a FluxGate service.
//
//	client := fluxgate.New("http://127.0.0.1:8081")
//	limits := fluxgategrpc.New(client, "api-limits")
//	server := grpc.NewServer(grpc.UnaryInterceptor(limits.Unary), grpc.StreamInterceptor(limits.Stream))
//
// The path of a call is its full method, such as "/orders.Orders/Create", and its method is POST.
// A call whose quota is used up is answered with RESOURCE_EXHAUSTED, one that a rule forbids with
// PERMISSION_DENIED, and one that cannot be counted, with [fluxgate.Deny], with UNAVAILABLE.
// Limit headers are header metadata of calls that pass and trailer metadata of those that do not,
// beside grpc-retry-pushback-ms, which clients with a retry policy obey.
package fluxgategrpc

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	fluxgate "github.com/openfluxgate/fluxgate/clients/go"
	"github.com/openfluxgate/fluxgate/clients/go/internal/head"
)

// Option configures a [Limiter].
type Option func(*settings)

type settings struct {
	user, apiKey       func(context.Context) string
	customizers        []func(context.Context, *fluxgate.Request)
	include, exclude   []string
	trustedProxies     []string
	clientIPHeader     string
	headers            []string
	maxConcurrentWaits int
}

// User identifies the user of a call; by default its metadata x-user-id does. An empty string is no
// user.
func User(user func(context.Context) string) Option {
	return func(s *settings) { s.user = user }
}

// APIKey returns the API key of a call; by default it is in its metadata x-api-key. An empty string
// is no key.
func APIKey(key func(context.Context) string) Option {
	return func(s *settings) { s.apiKey = key }
}

// Customize changes what rules see of a call, such as its attributes or its cost.
// Several functions run in the order in which they were added.
func Customize(customize func(context.Context, *fluxgate.Request)) Option {
	return func(s *settings) { s.customizers = append(s.customizers, customize) }
}

// Include limits only calls whose full method matches one of these patterns, such as
// "/orders.Orders/*". New panics if one is invalid.
func Include(patterns ...string) Option {
	return func(s *settings) { s.include = append(s.include, patterns...) }
}

// Exclude does not limit calls whose full method matches one of these patterns, such as
// "/grpc.health.v1.Health/*". New panics if one is invalid.
func Exclude(patterns ...string) Option {
	return func(s *settings) { s.exclude = append(s.exclude, patterns...) }
}

// TrustedProxies reads the client's address from [ClientIPHeader] if the peer is in one of these
// networks, such as "10.0.0.0/8". By default there are none. New panics if one is invalid.
func TrustedProxies(networks ...string) Option {
	return func(s *settings) { s.trustedProxies = append(s.trustedProxies, networks...) }
}

// ClientIPHeader is the metadata in which trusted proxies report the client's address;
// x-forwarded-for by default.
func ClientIPHeader(name string) Option {
	return func(s *settings) { s.clientIPHeader = name }
}

// Headers sends only this metadata to the service: what its rules use. By default all is sent except
// authorization, cookies and binary values.
func Headers(names ...string) Option {
	return func(s *settings) { s.headers = append(s.headers, names...) }
}

// MaxConcurrentWaits is how many calls wait at a time; [fluxgate.DefaultMaxConcurrentWaits] by
// default.
func MaxConcurrentWaits(most int) Option {
	return func(s *settings) { s.maxConcurrentWaits = most }
}

// Limiter limits the calls to a server. Its methods Unary and Stream are interceptors; they share
// the bound on waiting calls.
type Limiter struct {
	settings         settings
	gate             fluxgate.Gate
	include, exclude head.PathSet
	reader           *head.Reader
}

// New returns a limiter that decides by this rule set.
func New(client *fluxgate.Client, ruleSet string, options ...Option) *Limiter {
	l := &Limiter{settings: settings{clientIPHeader: "x-forwarded-for"}}
	for _, option := range options {
		option(&l.settings)
	}
	fail := func(err error) {
		if err != nil {
			panic(fmt.Errorf("fluxgategrpc: %w", err))
		}
	}
	proxies, err := head.ParseProxies(l.settings.trustedProxies)
	fail(err)
	l.include, err = head.NewPathSet(l.settings.include, false)
	fail(err)
	l.exclude, err = head.NewPathSet(l.settings.exclude, false)
	fail(err)
	l.reader = head.NewReader(proxies, l.settings.clientIPHeader, l.settings.headers)
	l.gate.Client, l.gate.RuleSet = client, ruleSet
	l.gate.MaxConcurrentWaits = l.settings.maxConcurrentWaits
	return l
}

// UnaryServerInterceptor returns an interceptor of its own for unary calls. A server with streams
// uses [New], whose two interceptors belong together.
func UnaryServerInterceptor(client *fluxgate.Client, ruleSet string, options ...Option) grpc.UnaryServerInterceptor {
	return New(client, ruleSet, options...).Unary
}

// StreamServerInterceptor returns an interceptor of its own for streams.
func StreamServerInterceptor(client *fluxgate.Client, ruleSet string, options ...Option) grpc.StreamServerInterceptor {
	return New(client, ruleSet, options...).Stream
}

// Unary is an interceptor for unary calls.
func (l *Limiter) Unary(ctx context.Context, message any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	setTrailer := func(trailer metadata.MD) { _ = grpc.SetTrailer(ctx, trailer) }
	admission, err := l.admit(ctx, info.FullMethod, setTrailer)
	if err != nil {
		return nil, err
	}
	if admission == nil {
		return handler(ctx, message)
	}
	defer admission.End()
	if limits := limitMetadata(&admission.Decision); len(limits) > 0 {
		_ = grpc.SetHeader(ctx, limits)
	}
	return handler(fluxgate.NewContext(ctx, admission), message)
}

// Stream is an interceptor for streams. A stream is one request; its slots are held until it ends.
func (l *Limiter) Stream(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	admission, err := l.admit(stream.Context(), info.FullMethod, stream.SetTrailer)
	if err != nil {
		return err
	}
	if admission == nil {
		return handler(server, stream)
	}
	defer admission.End()
	if limits := limitMetadata(&admission.Decision); len(limits) > 0 {
		_ = stream.SetHeader(limits)
	}
	return handler(server, &admittedStream{stream, fluxgate.NewContext(stream.Context(), admission)})
}

// admittedStream has the admission in its context.
type admittedStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *admittedStream) Context() context.Context { return s.ctx }

// admit returns the admission of a call that passes, nil for a call that is not limited, or the
// status to answer with.
func (l *Limiter) admit(ctx context.Context, method string, setTrailer func(metadata.MD)) (*fluxgate.Admission, error) {
	path, err := head.ReadPath(method)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if l.gate.RuleSet == "" || l.exclude.ContainsBoth(path) || !l.include.IsEmpty() && !l.include.ContainsEither(path) {
		return nil, nil
	}
	request, isTooLarge, err := l.read(ctx, path)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if isTooLarge {
		return nil, status.Error(codes.ResourceExhausted, "the metadata is too large to be counted")
	}
	admission, err := l.gate.Admit(ctx, request)
	switch {
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return nil, status.FromContextError(err).Err()
	case err != nil:
		return nil, status.Error(codes.Internal, "the call could not be decided")
	case !admission.Decision.Allowed:
		code, message, pushback := admission.Decision.GRPCStatus()
		trailer := limitMetadata(&admission.Decision)
		trailer.Set("grpc-retry-pushback-ms", pushback)
		setTrailer(trailer)
		return nil, status.Error(codes.Code(code), message)
	}
	return admission, nil
}

// read returns what the service gets to know of a call.
func (l *Limiter) read(ctx context.Context, path head.Path) (request fluxgate.Request, isTooLarge bool, err error) {
	lines, _ := metadata.FromIncomingContext(ctx)
	authority := lines[":authority"]
	for name := range lines {
		if strings.HasSuffix(name, "-bin") {
			delete(lines, name) // FromIncomingContext returns a copy.
		}
	}
	var address string
	if from, ok := peer.FromContext(ctx); ok && from.Addr != nil {
		address = from.Addr.String()
	}
	read, err := l.reader.Read(lines, head.PeerAddress(address))
	if err != nil {
		return fluxgate.Request{}, false, err
	}
	request = fluxgate.Request{
		User: read.User, APIKey: read.APIKey, Method: http.MethodPost, Path: path.Raw,
		NormalPath: path.Normal(), Headers: read.Headers,
	}
	if read.IP.IsValid() {
		request.IP = read.IP.String()
	}
	if len(authority) > 0 && l.reader.Sends("host") {
		request.Headers["host"] = head.Text(authority[0])
	}
	if l.settings.user != nil {
		request.User = head.Text(l.settings.user(ctx))
	}
	if l.settings.apiKey != nil {
		request.APIKey = head.Text(l.settings.apiKey(ctx))
	}
	for _, customize := range l.settings.customizers {
		customize(ctx, &request)
	}
	return request, read.TooLarge, nil
}

// limitMetadata returns the limit headers as metadata.
func limitMetadata(decision *fluxgate.Decision) metadata.MD {
	limits := metadata.MD{}
	for name, values := range decision.Header {
		limits.Set(name, values...)
	}
	return limits
}
