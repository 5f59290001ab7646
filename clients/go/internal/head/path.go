// Package head reads the head of a request as FluxGate's gateway does, so that a limit holds
// however the request is spelled.
package head

import (
	"strings"
	"unicode/utf8"
)

// Path is the path of a request in the forms in which servers read it: they disagree about
// "%61", "%2f", "//", "\", ";x" and a slash at the end.
type Path struct {
	// Raw is the path as it was sent.
	Raw string
	// withSlash is the normal form with its slash at the end. It is Raw for most paths.
	withSlash string
	// behindHost is the normal form of the path behind the first segment, if the path begins
	// with two slashes: servers that parse it as a URL take that segment for a host.
	behindHost string
}

// Normal returns the normal form with its slash at the end, or "" if the path needs none: every
// server reads it in the same way.
func (p Path) Normal() string {
	if p.withSlash == p.Raw && withoutSlash(p.Raw) == p.Raw {
		return ""
	}
	return p.withSlash
}

// ReadPath reads the path of a request's target, without the query. The target "*" counts as
// "/*", an empty path as "/". A path that servers could read in yet other ways is an error.
func ReadPath(path string) (Path, error) {
	switch {
	case path == "*":
		return Path{Raw: "/*", withSlash: "/*"}, nil
	case path == "":
		return Path{Raw: "/", withSlash: "/"}, nil
	case path[0] != '/':
		return Path{}, errNoPath
	case isPlain(path):
		return Path{Raw: path, withSlash: path}, nil
	}
	normal, err := normalForm(path)
	if err != nil {
		return Path{}, err
	}
	if !utf8.ValidString(path) {
		// A parameter that is cut off may hold bytes that JSON cannot.
		return Path{}, errPathNotText
	}
	read := Path{Raw: path, withSlash: normal}
	if rest, found := behindHost(path); found {
		// Its faults are faults of the whole path.
		read.behindHost, _ = normalForm(rest)
	}
	return read, nil
}

// forms are the forms that rules match.
func (p Path) forms() []string {
	forms := append(make([]string, 0, 5), p.Raw)
	add := func(form string) {
		if form != forms[len(forms)-1] {
			forms = append(forms, form)
		}
	}
	add(p.withSlash)
	add(withoutSlash(p.withSlash))
	if p.behindHost != "" {
		add(p.behindHost)
		add(withoutSlash(p.behindHost))
	}
	return forms
}

// exactForms are the forms that exceptions compare: where a server distinguishes "/a/" from
// "/a", only one of them is excepted.
func (p Path) exactForms() []string {
	forms := append(make([]string, 0, 3), p.Raw)
	if p.withSlash != p.Raw {
		forms = append(forms, p.withSlash)
	}
	if p.behindHost != "" {
		forms = append(forms, p.behindHost)
	}
	return forms
}

func withoutSlash(path string) string {
	if len(path) > 1 && path[len(path)-1] == '/' {
		return path[:len(path)-1]
	}
	return path
}

// behindHost returns the path that servers read in "//host/x" if they parse it as a URL. Some of
// them read "\" as "/".
func behindHost(path string) (string, bool) {
	if len(path) < 2 || (path[1] != '/' && path[1] != '\\') {
		return "", false
	}
	at := strings.IndexAny(path[2:], `/\`)
	if at < 0 {
		return "/", true
	}
	return path[2+at:], true
}

// isPlain returns whether a path has one form only, but for a slash at the end.
func isPlain(path string) bool {
	for i := 0; i < len(path); i++ {
		switch c := path[i]; {
		case c < ' ' || c >= 0x7f || c == '%' || c == '\\' || c == ';':
			return false
		case c == '/' && i+1 < len(path) && (path[i+1] == '/' || path[i+1] == '.'):
			return false
		}
	}
	return true
}

// normalForm decodes every escape once, reads "\" as "/", cuts each segment at its first ";" and
// merges slashes. The slash at the end is kept.
func normalForm(path string) (string, error) {
	normal := make([]byte, 0, len(path))
	isCut := false
	for i := 0; i < len(path); {
		c, size, isEscape := path[i], 1, false
		if decoded, ok := escape(path[i:]); ok {
			c, size, isEscape = decoded, 3, true
		}
		i += size
		switch {
		case c < ' ' || c == 0x7f:
			return "", errPathControl
		case c == '/' || c == '\\':
			if isCut && (isEscape || c == '\\') {
				// Some servers cut parameters before they decode, some after.
				return "", errPathHiddenSlash
			}
			isCut = false
			if len(normal) == 0 || normal[len(normal)-1] != '/' {
				normal = append(normal, '/')
			}
		case c == ';':
			isCut = true
		case !isCut:
			normal = append(normal, c)
		}
	}
	for _, segment := range strings.Split(string(normal), "/") {
		if segment == "." || segment == ".." {
			return "", errPathDots
		}
	}
	if !utf8.Valid(normal) {
		return "", errPathNotText
	}
	return string(normal), nil
}

// escape decodes a percent escape at the start of a text.
func escape(text string) (byte, bool) {
	if len(text) < 3 || text[0] != '%' {
		return 0, false
	}
	high, ok := hexDigit(text[1])
	low, alsoOk := hexDigit(text[2])
	return high<<4 | low, ok && alsoOk
}

func hexDigit(c byte) (byte, bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10, true
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}
