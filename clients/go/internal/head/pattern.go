package head

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// PathSet is the set of the paths that match at least one of its patterns.
type PathSet struct {
	patterns   [][]string
	ignoreCase bool
}

// NewPathSet parses patterns: "?" is one character, "*" any characters of a segment, "{name}" one
// segment that is not empty, "**" zero or more whole segments.
func NewPathSet(patterns []string, ignoreCase bool) (PathSet, error) {
	set := PathSet{ignoreCase: ignoreCase}
	for _, pattern := range patterns {
		if ignoreCase {
			pattern = lowerASCII(pattern)
		}
		segments, err := parsePattern(pattern)
		if err != nil {
			return PathSet{}, err
		}
		set.patterns = append(set.patterns, segments)
	}
	return set, nil
}

// IsEmpty returns whether the set has no patterns.
func (s PathSet) IsEmpty() bool { return len(s.patterns) == 0 }

// ContainsEither returns whether the set contains at least one form of a path.
func (s PathSet) ContainsEither(path Path) bool {
	for _, form := range path.forms() {
		if s.contains(form) {
			return true
		}
	}
	return false
}

// ContainsBoth returns whether the set contains all forms of a path, the slash at the end kept.
func (s PathSet) ContainsBoth(path Path) bool {
	if s.IsEmpty() {
		return false
	}
	for _, form := range path.exactForms() {
		if !s.contains(form) {
			return false
		}
	}
	return true
}

func (s PathSet) contains(path string) bool {
	if s.IsEmpty() || path == "" || path[0] != '/' {
		return false
	}
	if s.ignoreCase {
		path = lowerASCII(path)
	}
	segments := strings.Split(path[1:], "/")
	for _, pattern := range s.patterns {
		if matchSegments(pattern, segments) {
			return true
		}
	}
	return false
}

const deep = "**"

func parsePattern(pattern string) ([]string, error) {
	if !strings.HasPrefix(pattern, "/") {
		return nil, fmt.Errorf("a path pattern must begin with `/`; %q does not", pattern)
	}
	segments := strings.Split(pattern[1:], "/")
	for _, segment := range segments {
		switch {
		case segment != deep && strings.Contains(segment, deep):
			return nil, fmt.Errorf("`**` must be a whole segment; %q has more in it", segment)
		case strings.ContainsAny(segment, "{}") && !isName(segment):
			return nil, fmt.Errorf("`{name}` must be a whole segment, and a name has letters, digits, `_`, `-` and `.`; %q is not one: write `*` for any characters of a segment", segment)
		}
	}
	return segments, nil
}

// isName returns whether a segment of a pattern is "{name}".
func isName(segment string) bool {
	if len(segment) < 3 || segment[0] != '{' || segment[len(segment)-1] != '}' {
		return false
	}
	for _, c := range []byte(segment[1 : len(segment)-1]) {
		if !isAlphanumeric(c) && !strings.ContainsRune("_-.", rune(c)) {
			return false
		}
	}
	return true
}

// matchSegments looks back to the last "**" only: what an earlier one took can stay as it is. So
// the time is bounded by the product of the lengths, whatever a client sends.
func matchSegments(pattern, path []string) bool {
	p, s := 0, 0
	backPattern, backPath := -1, 0
	for s < len(path) {
		switch {
		case p < len(pattern) && pattern[p] == deep:
			backPattern, backPath = p, s
			p++
		case p < len(pattern) && matchSegment(pattern[p], path[s]):
			p, s = p+1, s+1
		case backPattern >= 0:
			backPath++
			p, s = backPattern+1, backPath
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == deep {
		p++
	}
	return p == len(pattern)
}

// matchSegment matches one segment, in the same way.
func matchSegment(pattern, text string) bool {
	if isName(pattern) {
		return text != ""
	}
	p, s := 0, 0
	backPattern, backText := -1, 0
	for s < len(text) {
		_, size := utf8.DecodeRuneInString(text[s:])
		switch {
		case p < len(pattern) && pattern[p] == '*':
			backPattern, backText = p, s
			p++
		case p < len(pattern) && pattern[p] == '?':
			p, s = p+1, s+size
		case p < len(pattern) && pattern[p] == text[s]:
			p, s = p+1, s+1
		case backPattern >= 0:
			_, skipped := utf8.DecodeRuneInString(text[backText:])
			backText += skipped
			p, s = backPattern+1, backText
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

func lowerASCII(text string) string {
	for i := 0; i < len(text); i++ {
		if 'A' <= text[i] && text[i] <= 'Z' {
			lower := []byte(text)
			for j := i; j < len(lower); j++ {
				if 'A' <= lower[j] && lower[j] <= 'Z' {
					lower[j] += 'a' - 'A'
				}
			}
			return string(lower)
		}
	}
	return text
}

func isAlphanumeric(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
