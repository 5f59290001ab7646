package head

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// onlyValue returns the value of a header that may be repeated but must not have two values.
func onlyValue(lines []string) (string, error) {
	if len(lines) == 0 {
		return "", nil
	}
	first := trimASCII(lines[0])
	for _, line := range lines[1:] {
		if trimASCII(line) != first {
			return "", errConflict
		}
	}
	return first, nil
}

// checkValue rejects a value that servers clean in different ways: with white space of Unicode at
// either end, or with encoded words such as "=?utf-8?q?ann?=".
func checkValue(value string) error {
	if value == "" {
		return nil
	}
	if !isGraphic(value[0]) || !isGraphic(value[len(value)-1]) {
		first, size := utf8.DecodeRuneInString(value)
		if first == utf8.RuneError && size == 1 {
			first = rune(value[0])
		}
		last, size := utf8.DecodeLastRuneInString(value)
		if last == utf8.RuneError && size == 1 {
			last = rune(value[len(value)-1])
		}
		if isSpace(first) || isSpace(last) {
			return errUnclearValue
		}
	}
	if strings.Contains(value, "=?") && strings.Contains(value, "?=") {
		return errUnclearValue
	}
	return nil
}

// isSpace includes the byte order mark, which some servers remove as well.
func isSpace(r rune) bool { return unicode.IsSpace(r) || r == '\ufeff' }

func isGraphic(c byte) bool { return '!' <= c && c <= '~' }

// trimASCII removes what HTTP/1.1 strips and HTTP/2 does not, so that a space is no new identity.
func trimASCII(value string) string { return strings.Trim(value, " \t\n\f\r") }

// A byte b that is not part of UTF-8 text becomes the character firstStandIn + b.
const firstStandIn = 0x10FF00

// Text returns bytes as text, so that different bytes are always different text, as FluxGate's own
// middleware does: JSON holds nothing but text.
func Text(value string) string {
	if utf8.ValidString(value) && strings.IndexByte(value, 0xF4) < 0 {
		return value
	}
	var text strings.Builder
	for i := 0; i < len(value); {
		r, size := utf8.DecodeRuneInString(value[i:])
		if r == utf8.RuneError && size == 1 || r >= firstStandIn+0x80 {
			for _, b := range []byte(value[i : i+size]) {
				text.WriteRune(firstStandIn + rune(b))
			}
		} else {
			text.WriteRune(r)
		}
		i += size
	}
	return text.String()
}
