package fluxgate

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net/http"
	"time"
)

// DefaultDeadline is the time within which the service must answer.
const DefaultDeadline = 100 * time.Millisecond

// ErrorPolicy says what becomes of a request that the service does not decide.
type ErrorPolicy int

const (
	// Allow lets the request pass; the outcome is [OutcomeFailedOpen].
	Allow ErrorPolicy = iota
	// Deny refuses the request; the outcome is [OutcomeFailedClosed], the status 503.
	Deny
	// Raise returns an [*UnavailableError].
	Raise
)

// effect says, for the log, what happens to requests that the service does not decide.
func (p ErrorPolicy) effect() string {
	switch p {
	case Allow:
		return "requests are allowed (on_error=allow)"
	case Deny:
		return "requests are denied (on_error=deny)"
	}
	return "requests fail (on_error=raise)"
}

// Option configures a [Client].
type Option func(*settings) error

type settings struct {
	onError   ErrorPolicy
	deadline  time.Duration
	header    http.Header
	tls       *tls.Config
	transport http.RoundTripper
	logger    *slog.Logger
}

// OnError sets what becomes of a request that the service does not decide; [Allow] by default.
func OnError(policy ErrorPolicy) Option {
	return func(s *settings) error {
		if policy < Allow || policy > Raise {
			return errors.New("OnError: expected Allow, Deny or Raise")
		}
		s.onError = policy
		return nil
	}
}

// Deadline sets how long a call may take, connecting included; [DefaultDeadline] by default. A
// context that ends earlier ends the call earlier.
func Deadline(deadline time.Duration) Option {
	return func(s *settings) error {
		if deadline <= 0 {
			return errors.New("Deadline: expected a positive duration")
		}
		s.deadline = deadline
		return nil
	}
}

// Header adds a header to all calls, such as a token that a proxy in front of the service wants.
func Header(name, value string) Option {
	return func(s *settings) error {
		s.header.Add(name, value)
		return nil
	}
}

// CA trusts the certificate authorities in this PEM text instead of those of the system.
func CA(pem []byte) Option {
	return func(s *settings) error {
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(pem) {
			return errors.New("CA: found no certificate in PEM")
		}
		config := &tls.Config{}
		if s.tls != nil {
			config = s.tls.Clone()
		}
		config.RootCAs = roots
		s.tls = config
		return nil
	}
}

// TLS sets the configuration of https connections, for example with a client certificate.
func TLS(config *tls.Config) Option {
	return func(s *settings) error {
		s.tls = config.Clone()
		return nil
	}
}

// Transport sends calls through this transport instead of the client's own, which does not use
// proxies. It must not follow redirects or repeat a POST.
func Transport(transport http.RoundTripper) Option {
	return func(s *settings) error {
		s.transport = transport
		return nil
	}
}

// Logger sets the logger for outages; [slog.Default] by default.
func Logger(logger *slog.Logger) Option {
	return func(s *settings) error {
		s.logger = logger
		return nil
	}
}
