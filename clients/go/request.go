package fluxgate

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"
)

const (
	// maxCallBytes is the largest body that the service reads.
	maxCallBytes = 64 * 1024
	// defaultHold is how long a charge is held if the request does not say.
	defaultHold = 60 * time.Second
	minHold     = time.Second
	maxHold     = 24 * time.Hour
)

// Request is what is known about a request. Fields that are empty count as absent.
type Request struct {
	// IP is the client's address.
	IP string
	// User and APIKey identify the sender.
	User, APIKey string
	// Method and Path are those of an HTTP request. The path is used as given.
	Method, Path string
	// NormalPath is the normal form of a path that servers may read in several ways, from a server
	// that knows it.
	NormalPath string
	// IgnoreCase compares path patterns without ASCII case.
	IgnoreCase bool
	// Headers and Attributes are what rules may match, count by, or take their cost from.
	Headers, Attributes map[string]string
	// Cost replaces the cost of every rule; see [Units]. By default each rule has its own.
	Cost *int64
	// Hold is how long the charge is held if it is not renewed, from 1 s to 24 h. Rules with slots
	// hold it in any case.
	Hold time.Duration
	// Peek decides without charging. Only [Client.CheckBatch] needs it: see [Client.Peek].
	Peek bool
}

// Units returns a cost.
func Units(units int64) *int64 { return &units }

// checkBody is the body of a check.
type checkBody struct {
	RuleSet    string            `json:"rule_set,omitempty"`
	IP         string            `json:"ip,omitempty"`
	User       string            `json:"user,omitempty"`
	APIKey     string            `json:"api_key,omitempty"`
	Method     string            `json:"method,omitempty"`
	Path       string            `json:"path,omitempty"`
	NormalPath string            `json:"normal_path,omitempty"`
	IgnoreCase bool              `json:"ignore_case,omitempty"`
	Headers    map[string]string `json:"headers,omitempty"`
	Attributes map[string]string `json:"attributes,omitempty"`
	Cost       *int64            `json:"cost,omitempty"`
	Peek       bool              `json:"peek,omitempty"`
	Hold       string            `json:"hold,omitempty"`
	Wait       *bool             `json:"wait,omitempty"`
	Again      bool              `json:"again,omitempty"`
}

func (r *Request) body(ruleSet string) checkBody {
	body := checkBody{
		RuleSet: ruleSet, IP: r.IP, User: r.User, APIKey: r.APIKey, Method: r.Method,
		Path: r.Path, NormalPath: r.NormalPath, IgnoreCase: r.IgnoreCase,
		Headers: r.Headers, Attributes: r.Attributes, Cost: r.Cost, Peek: r.Peek,
	}
	if r.Hold != 0 {
		body.Hold = holdText(r.Hold)
	}
	return body
}

// check returns an error if a text is not UTF-8. Encoded as JSON, different texts would count as
// one.
func (r *Request) check(ruleSet string) error {
	for _, field := range [...]struct{ name, value string }{
		{"rule_set", ruleSet}, {"ip", r.IP}, {"user", r.User}, {"api_key", r.APIKey},
		{"method", r.Method}, {"path", r.Path}, {"normal_path", r.NormalPath},
	} {
		if !utf8.ValidString(field.value) {
			return notText(field.name)
		}
	}
	for name, value := range r.Headers {
		if !utf8.ValidString(name) || !utf8.ValidString(value) {
			return notText("headers")
		}
	}
	for name, value := range r.Attributes {
		if !utf8.ValidString(name) || !utf8.ValidString(value) {
			return notText("attributes")
		}
	}
	return nil
}

func notText(field string) error {
	return &RequestError{Call: checkPath, Status: 400, Detail: fmt.Sprintf("`%s` is not UTF-8", field)}
}

// holdText returns the time of a hold as the service reads it.
func holdText(span time.Duration) string {
	span = min(max(span, minHold), maxHold)
	return strconv.FormatInt(span.Milliseconds(), 10) + "ms"
}

func encode(body any) []byte {
	// These types always encode.
	text, _ := json.Marshal(body)
	return text
}
