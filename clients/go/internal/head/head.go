package head

import (
	"net/netip"
	"strings"
)

// maxHeaderBytes bounds the headers that are sent. A request with more is not sent at all: if some
// were left out, a client could hide a header behind others.
const maxHeaderBytes = 32 * 1024

// Names of the headers that identify the sender by default, in lower case.
const (
	UserHeader   = "x-user-id"
	APIKeyHeader = "x-api-key"
)

// Reader reads the headers of requests.
type Reader struct {
	// proxies may report the client's address.
	proxies Proxies
	// clientIPHeader is the header in which they do, in lower case.
	clientIPHeader string
	// only are the headers to send, in lower case; nil for all but those that no rule should read.
	only map[string]bool
	// read are the headers that are read by name, in lower case.
	read map[string]bool
	// alike are the same names as careless servers read them.
	alike map[string]bool
	// hasOddNames is set if one of these names is not plain. Only then may a plain name be alike
	// to one of them.
	hasOddNames bool
}

// NewReader returns a reader that believes these proxies about the client's address, in this
// header, and sends the headers of these names, or all if there are none.
func NewReader(proxies Proxies, clientIPHeader string, only []string) *Reader {
	reader := &Reader{
		proxies:        proxies,
		clientIPHeader: strings.ToLower(clientIPHeader),
		read:           make(map[string]bool),
		alike:          make(map[string]bool),
	}
	if len(only) > 0 {
		reader.only = make(map[string]bool)
	}
	for _, name := range append([]string{UserHeader, APIKeyHeader, clientIPHeader}, only...) {
		name = strings.ToLower(name)
		reader.read[name] = true
		reader.alike[folded(name)] = true
		reader.hasOddNames = reader.hasOddNames || !isPlainName(name)
	}
	for _, name := range only {
		reader.only[strings.ToLower(name)] = true
	}
	return reader
}

// Head is the part of a request that rules read.
type Head struct {
	// IP is the client's address, if it is known.
	IP      netip.Addr
	User    string
	APIKey  string
	Headers map[string]string
	// TooLarge is set if the headers do not fit into a request to the service.
	TooLarge bool
}

// Read reads the header lines of a request from this peer. Names may be in any case, but each name
// comes once. The error is a BadRequest.
func (r *Reader) Read(lines map[string][]string, peer netip.Addr) (Head, error) {
	read := Head{Headers: make(map[string]string, len(lines))}
	left := maxHeaderBytes
	var forwarded []string
	for name, values := range lines {
		if len(values) == 0 {
			continue
		}
		lower := lowerASCII(name)
		if !r.read[lower] && (r.hasOddNames || !isPlainName(name)) {
			if r.alike[folded(name)] {
				return Head{}, errAlikeHeader
			}
			if !isPlainName(name) {
				// Rules may read any header, but not one that servers may take for another.
				continue
			}
		}
		if lower == r.clientIPHeader {
			forwarded = values
		}
		isSent := r.Sends(lower)
		if !isSent && lower != UserHeader && lower != APIKeyHeader {
			continue
		}
		value, err := onlyValue(values)
		if err != nil {
			if !lists[lower] || r.only != nil {
				return Head{}, err
			}
			value = trimASCII(values[0])
		}
		if err := checkValue(value); err != nil {
			return Head{}, err
		}
		value = Text(value)
		switch lower {
		case UserHeader:
			read.User = value
		case APIKeyHeader:
			read.APIKey = value
		}
		if isSent {
			left -= len(name) + len(value)
			read.Headers[name] = value
		}
	}
	read.TooLarge = left < 0
	read.IP = r.proxies.clientIP(peer, forwarded)
	return read, nil
}

// Sends returns whether the header of this name, in lower case, is sent to the service.
func (r *Reader) Sends(name string) bool {
	return r.only[name] || r.only == nil && !withheld[name]
}

// TargetPath returns the raw path of a request's target, without the query.
func TargetPath(target string) string {
	if target != "" && target[0] != '/' && target != "*" {
		// The form that proxies get: http://host/path.
		if _, rest, found := strings.Cut(target, "://"); found {
			at := strings.IndexAny(rest, "/?")
			if at < 0 {
				return "/"
			}
			target = rest[at:]
		}
	}
	path, _, _ := strings.Cut(target, "?")
	return path
}
