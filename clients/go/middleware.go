package fluxgate

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/openfluxgate/fluxgate/clients/go/internal/head"
)

// MiddlewareOption configures a [Middleware].
type MiddlewareOption func(*middlewareSettings)

type middlewareSettings struct {
	user, apiKey       func(*http.Request) string
	customizers        []func(*http.Request, *Request)
	include, exclude   []string
	ignoreCase         bool
	trustedProxies     []string
	clientIPHeader     string
	headers            []string
	maxConcurrentWaits int
	onDenied           func(http.ResponseWriter, *http.Request, Decision)
	onFailure          func(http.ResponseWriter, *http.Request, error)
}

// User identifies the user of a request; by default its header X-User-Id does. An empty string is
// no user.
func User(user func(*http.Request) string) MiddlewareOption {
	return func(s *middlewareSettings) { s.user = user }
}

// APIKey returns the API key of a request; by default it is in its header X-API-Key. An empty
// string is no key.
func APIKey(key func(*http.Request) string) MiddlewareOption {
	return func(s *middlewareSettings) { s.apiKey = key }
}

// Attribute sets an attribute that rules may match or count by. An empty string is no value.
func Attribute(name string, value func(*http.Request) string) MiddlewareOption {
	return Customize(func(r *http.Request, request *Request) {
		text := value(r)
		if text == "" {
			return
		}
		if request.Attributes == nil {
			request.Attributes = make(map[string]string)
		}
		request.Attributes[name] = text
	})
}

// Customize changes what the service gets to know of a request, such as its cost. Several functions
// run in the order in which they were added.
func Customize(customize func(*http.Request, *Request)) MiddlewareOption {
	return func(s *middlewareSettings) { s.customizers = append(s.customizers, customize) }
}

// Include limits only the requests whose path matches one of these patterns: "*" is any characters
// of a segment, "**" any segments, "{name}" one segment. Middleware panics if one is invalid.
func Include(patterns ...string) MiddlewareOption {
	return func(s *middlewareSettings) { s.include = append(s.include, patterns...) }
}

// Exclude does not limit requests whose path matches one of these patterns; see [Include].
func Exclude(patterns ...string) MiddlewareOption {
	return func(s *middlewareSettings) { s.exclude = append(s.exclude, patterns...) }
}

// IgnoreCase compares the patterns of the middleware and of its rule set without ASCII case, for
// servers that route without case.
func IgnoreCase() MiddlewareOption {
	return func(s *middlewareSettings) { s.ignoreCase = true }
}

// TrustedProxies reads the client's address from [ClientIPHeader] if the peer is in one of these
// networks, such as "10.0.0.0/8". By default there are none, and the address is that of the peer.
// Middleware panics if one is invalid.
func TrustedProxies(networks ...string) MiddlewareOption {
	return func(s *middlewareSettings) { s.trustedProxies = append(s.trustedProxies, networks...) }
}

// ClientIPHeader is the header in which trusted proxies report the client's address;
// X-Forwarded-For by default. Other headers must have the same form.
func ClientIPHeader(name string) MiddlewareOption {
	return func(s *middlewareSettings) { s.clientIPHeader = name }
}

// Headers sends only these headers to the service: those that its rules use. By default all are
// sent except Authorization, cookies and hop-by-hop headers.
func Headers(names ...string) MiddlewareOption {
	return func(s *middlewareSettings) { s.headers = append(s.headers, names...) }
}

// MaxConcurrentWaits is how many requests wait at a time; [DefaultMaxConcurrentWaits] by default.
func MaxConcurrentWaits(most int) MiddlewareOption {
	return func(s *middlewareSettings) { s.maxConcurrentWaits = most }
}

// OnDenied answers refused requests instead of [WriteRefusal]. The limit headers are set already.
func OnDenied(answer func(http.ResponseWriter, *http.Request, Decision)) MiddlewareOption {
	return func(s *middlewareSettings) { s.onDenied = answer }
}

// OnFailure answers requests that are not decided with [OnError]([Raise]); by default they get a
// 500. The handler does not run.
func OnFailure(answer func(http.ResponseWriter, *http.Request, error)) MiddlewareOption {
	return func(s *middlewareSettings) { s.onFailure = answer }
}

// Middleware limits the requests to a handler by a rule set.
//
// Allowed responses carry the limit headers; refused requests are answered as FluxGate's gateway
// answers them, and do not reach the handler. A request that must wait does so before the handler
// runs, and gives up its turn if its client leaves. (net/http notices that only once the body of
// the request has been read, so not while a request with a body waits.) Slots are held until the
// handler has returned, or a hijacked connection is closed.
//
// Handlers wrapped by the same middleware share its bound on waiting requests.
func Middleware(client *Client, ruleSet string, options ...MiddlewareOption) func(http.Handler) http.Handler {
	filter, err := newFilter(client, ruleSet, options)
	if err != nil {
		panic(fmt.Errorf("fluxgate: %w", err))
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { filter.serve(w, r, next) })
	}
}

type filter struct {
	settings         middlewareSettings
	gate             Gate
	include, exclude head.PathSet
	reader           *head.Reader
	hasWarned        atomic.Bool
}

func newFilter(client *Client, ruleSet string, options []MiddlewareOption) (*filter, error) {
	f := &filter{settings: middlewareSettings{clientIPHeader: "X-Forwarded-For"}}
	for _, option := range options {
		option(&f.settings)
	}
	proxies, err := head.ParseProxies(f.settings.trustedProxies)
	if err != nil {
		return nil, err
	}
	if f.include, err = head.NewPathSet(f.settings.include, f.settings.ignoreCase); err != nil {
		return nil, err
	}
	if f.exclude, err = head.NewPathSet(f.settings.exclude, f.settings.ignoreCase); err != nil {
		return nil, err
	}
	f.reader = head.NewReader(proxies, f.settings.clientIPHeader, f.settings.headers)
	f.gate.Client, f.gate.RuleSet = client, ruleSet
	f.gate.MaxConcurrentWaits = f.settings.maxConcurrentWaits
	return f, nil
}

func (f *filter) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if f.gate.RuleSet == "" {
		if !f.hasWarned.Swap(true) {
			f.gate.Client.log().Warn("a middleware of FluxGate has no rule set: it limits nothing")
		}
		next.ServeHTTP(w, r)
		return
	}
	path, err := head.ReadPath(targetPath(r))
	if err != nil {
		writeBadRequest(w, r, err)
		return
	}
	if f.exclude.ContainsBoth(path) || !f.include.IsEmpty() && !f.include.ContainsEither(path) {
		next.ServeHTTP(w, r)
		return
	}
	request, isTooLarge, err := f.read(r, path)
	if err != nil {
		writeBadRequest(w, r, err)
		return
	}
	var admission *Admission
	if isTooLarge {
		admission = &Admission{Decision: tooLarge()}
	} else if admission, err = f.gate.Admit(r.Context(), request); err != nil {
		f.fail(w, r, err)
		return
	}
	if !admission.Decision.Allowed {
		if f.settings.onDenied != nil {
			mergeHeaders(w.Header(), &admission.Decision)
			f.settings.onDenied(w, r, admission.Decision)
		} else {
			WriteRefusal(w, r, admission.Decision)
		}
		return
	}
	mergeHeaders(w.Header(), &admission.Decision)
	r = r.WithContext(NewContext(r.Context(), admission))
	if admission.hold == nil {
		next.ServeHTTP(w, r)
		return
	}
	holding := &holdingWriter{end: sync.OnceFunc(admission.End)}
	defer holding.handlerReturned()
	next.ServeHTTP(holding.wrap(w), r)
}

// targetPath returns the path as the client sent it, also where an outer handler has changed the
// URL.
func targetPath(r *http.Request) string {
	if r.RequestURI != "" {
		return head.TargetPath(r.RequestURI)
	}
	return r.URL.EscapedPath()
}

// read returns what the service gets to know of a request.
func (f *filter) read(r *http.Request, path head.Path) (request Request, isTooLarge bool, err error) {
	if err := head.CheckMethod(r.Method); err != nil {
		return Request{}, false, err
	}
	read, err := f.reader.Read(r.Header, head.PeerAddress(r.RemoteAddr))
	if err != nil {
		return Request{}, false, err
	}
	request = Request{
		User: read.User, APIKey: read.APIKey, Method: r.Method, Path: path.Raw, Headers: read.Headers,
		NormalPath: path.Normal(), IgnoreCase: f.settings.ignoreCase,
	}
	if read.IP.IsValid() {
		request.IP = read.IP.String()
	}
	if f.reader.Sends("host") && r.Host != "" {
		// net/http takes it out of the headers.
		request.Headers["Host"] = head.Text(r.Host)
	}
	if f.settings.user != nil {
		request.User = head.Text(f.settings.user(r))
	}
	if f.settings.apiKey != nil {
		request.APIKey = head.Text(f.settings.apiKey(r))
	}
	for _, customize := range f.settings.customizers {
		customize(r, &request)
	}
	for name, value := range request.Attributes {
		if text := head.Text(value); text != value {
			request.Attributes[name] = text
		}
	}
	return request, read.TooLarge, nil
}

// fail answers a request that was not decided.
func (f *filter) fail(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		// The client is gone, or an outer handler has given up and answered.
		writeError(w, http.StatusServiceUnavailable, "the request was cancelled before it was decided")
	case f.settings.onFailure != nil:
		f.settings.onFailure(w, r, err)
	default:
		writeError(w, http.StatusInternalServerError, "the request could not be decided")
	}
}

// holdingWriter holds the slots of a request until its handler has returned and the connection, if
// the handler took it over, is closed.
type holdingWriter struct {
	http.ResponseWriter
	end        func()
	isHijacked atomic.Bool
}

// wrap returns a writer whose connection can be taken over, if that of w can.
func (h *holdingWriter) wrap(w http.ResponseWriter) http.ResponseWriter {
	if _, ok := w.(http.Hijacker); !ok {
		return w
	}
	h.ResponseWriter = w
	return h
}

func (h *holdingWriter) handlerReturned() {
	if !h.isHijacked.Load() {
		h.end()
	}
}

// Hijack implements [http.Hijacker].
func (h *holdingWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	connection, buffer, err := h.ResponseWriter.(http.Hijacker).Hijack()
	if err == nil {
		h.isHijacked.Store(true)
		connection = &holdingConn{Conn: connection, end: h.end}
	}
	return connection, buffer, err
}

// Flush implements [http.Flusher].
func (h *holdingWriter) Flush() {
	if flusher, ok := h.ResponseWriter.(http.Flusher); ok {
		flusher.Flush()
	}
}

// ReadFrom implements [io.ReaderFrom], which sends files without copying them.
func (h *holdingWriter) ReadFrom(source io.Reader) (int64, error) {
	return io.Copy(h.ResponseWriter, source)
}

// Unwrap is for [http.ResponseController].
func (h *holdingWriter) Unwrap() http.ResponseWriter { return h.ResponseWriter }

// holdingConn ends a hold when it is closed.
type holdingConn struct {
	net.Conn
	end func()
}

func (c *holdingConn) Close() error {
	defer c.end()
	return c.Conn.Close()
}
