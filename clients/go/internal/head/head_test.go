package head

import (
	"errors"
	"net/netip"
	"testing"
)

func TestPathsHaveTwoForms(t *testing.T) {
	for raw, normal := range map[string]string{
		"/":                        "/",
		"/api/x":                   "/api/x",
		"/api/.well-known/..x/...": "/api/.well-known/..x/...",
		"/%61pi/x":                 "/api/x",
		"/api%2fx":                 "/api/x",
		"/api%2Fx":                 "/api/x",
		`/api\x`:                   "/api/x",
		"/api%5cx":                 "/api/x",
		"//api///x//":              "/api/x",
		"/%2fapi":                  "/api",
		"/api/":                    "/api",
		"/api%2f":                  "/api",
		`/api\`:                    "/api",
		"//":                       "/",
		"/api;v=1/x":               "/api/x",
		"/api%3bv=1/x":             "/api/x",
		"/api;a;b/x;c":             "/api/x",
		"/a/;x/b":                  "/a/b",
		"/a/;x":                    "/a",
		"/;":                       "/",
		"/a;..;b/c%2Fd/..e/;./f..": "/a/c/d/..e/f..",
		"/%2561pi":                 "/%61pi",
		"/%252e%252e/x":            "/%2e%2e/x",
		"/%25":                     "/%",
		"/%%36%31":                 "/%61",
		"/%zz":                     "/%zz",
		"/%":                       "/%",
		"/%6":                      "/%6",
		"/caf%C3%a9":               "/café",
		"/café":                    "/café",
		"/%3f%23%20%2a":            "/?# *",
	} {
		path, err := ReadPath(raw)
		if err != nil {
			t.Errorf("%q: %v", raw, err)
			continue
		}
		if found := withoutSlash(path.withSlash); path.Raw != raw || found != normal {
			t.Errorf("%q: found %q and %q, expected %q", raw, path.Raw, found, normal)
		}
		if needsNormal := raw != normal; needsNormal != (path.Normal() != "") {
			t.Errorf("%q: the normal form to send is %q", raw, path.Normal())
		}
	}
	for target, expected := range map[string]string{"*": "/*", "": "/"} {
		if path, err := ReadPath(target); err != nil || path.Raw != expected {
			t.Errorf("%q: %v %v", target, path, err)
		}
	}
}

func TestPathsWithOtherReadingsAreRejected(t *testing.T) {
	for reason, paths := range map[BadRequest][]string{
		errNoPath: {"**", "x", "a:80", `\api`, "%2fapi", ";/api"},
		errPathDots: {
			"/.", "/..", "/./x", "/a/../x", "/a/..", "/%2e%2e/x", "/.%2E/x", "/%2e", "/..;/x", "/.;x",
			"/..;a/x", "/..%3ba/x", "/a%2f../x", "/a%5C..%5cx", `/a\..\x`, `/a/..\x`, "/a%2f%2e",
			"//..//x", "/x;a/../y",
		},
		errPathControl: {
			"/a%00", "/a;%00/x", "/%00", "/a%0a", "/a%0D/b", "/a%09", "/a%1f/x", "/a%7F", "/a\x7f",
			"/a\n", "/a;x\t", "/%0a/../b",
		},
		errPathNotText: {
			"/a%80", "/a%ff", "/caf%e9", "/%c0%af", "/%c3;%a9", "/a/%ed%a0%80/b", "/a\xff", "/a;\xff",
		},
		errPathHiddenSlash: {"/api;%2fy/x", "/api;a%5Cy/x", `/api;\y`, "/a%3bx%2fy"},
	} {
		for _, path := range paths {
			if _, err := ReadPath(path); !errors.Is(err, reason) {
				t.Errorf("%q: found %v, expected %v", path, err, reason)
			}
		}
	}
}

func TestPatterns(t *testing.T) {
	for _, test := range []struct {
		pattern string
		path    string
		matches bool
	}{
		{"/api/**", "/api", true},
		{"/api/**", "/api/x/y", true},
		{"/api/**", "/apix", false},
		{"/**", "/", true},
		{"/**/x", "/x", true},
		{"/**/x", "/a/b/x", true},
		{"/**/x", "/a/b/xy", false},
		{"/**/a/**/b", "/a/a/c/b", true},
		{"/**/a/**/b", "/b/a", false},
		{"/a/*/c", "/a/b/c", true},
		{"/a/*/c", "/a//c", true},
		{"/a/*/c", "/a/b/d/c", false},
		{"/a/{id}", "/a/7", true},
		{"/a/{id}", "/a/", false},
		{"/a/?", "/a/é", true},
		{"/a/?", "/a/xy", false},
		{"/f*.js", "/file.js", true},
		{"/f*.js", "/file.jsx", false},
		{"/*a*b*", "/xaybz", true},
		{"/*é", "/aéé", true},
		{"/api", "/api/", true},
		{"/api/", "/api", false},
		{"/API", "/api", false},
		{"/api/x", "//api/x", true},
		{"/x", "//host/x", true},
	} {
		set, err := NewPathSet([]string{test.pattern}, false)
		if err != nil {
			t.Fatal(err)
		}
		path, err := ReadPath(test.path)
		if err != nil {
			t.Fatal(err)
		}
		if set.ContainsEither(path) != test.matches {
			t.Errorf("%s, %s: expected %v", test.pattern, test.path, test.matches)
		}
	}
	for _, pattern := range []string{"api", "", "/a**", "/{", "/{a b}", "/a{id}"} {
		if _, err := NewPathSet([]string{pattern}, false); err == nil {
			t.Errorf("%q is accepted", pattern)
		}
	}
	lower, _ := NewPathSet([]string{"/API/*"}, true)
	if path, _ := ReadPath("/api/X"); !lower.ContainsEither(path) {
		t.Error("case is not ignored")
	}
}

func TestAPathIsExcludedOnlyInAllForms(t *testing.T) {
	set, err := NewPathSet([]string{"/health", "/static/**"}, false)
	if err != nil {
		t.Fatal(err)
	}
	for path, expected := range map[string]bool{
		"/health": true, "/health/": false, "/%68ealth": false, "/health;x": false, "//health": false,
		"/static/x/": true, "/static/%61": true, "/static%2fx": false,
	} {
		read, err := ReadPath(path)
		if err != nil {
			t.Fatal(err)
		}
		if set.ContainsBoth(read) != expected {
			t.Errorf("%s: expected %v", path, expected)
		}
	}
}

func TestForwardedAddresses(t *testing.T) {
	const proxy, client = "10.0.0.1", "203.0.113.7"
	proxies, err := ParseProxies([]string{"10.0.0.0/8", "fd00::/8", "::ffff:192.168.0.0/112"})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		peer     string
		lines    []string
		expected string
	}{
		{client, nil, client},
		{client, []string{"1.2.3.4"}, client},
		{"::ffff:203.0.113.7", []string{"1.2.3.4"}, client},
		{proxy, nil, proxy},
		{proxy, []string{""}, proxy},
		{proxy, []string{client}, client},
		{"::ffff:10.0.0.1", []string{client}, client},
		{"192.168.7.7", []string{client}, client},
		{"fd00::1", []string{client}, client},
		{"fe00::1", []string{client}, "fe00::1"},
		{proxy, []string{"1.1.1.1, 203.0.113.7"}, client},
		{proxy, []string{"10.0.0.9, 203.0.113.7"}, client},
		{proxy, []string{"garbage, 203.0.113.7"}, client},
		{proxy, []string{"1.1.1.1", client}, client},
		{proxy, []string{"1.1.1.1, 203.0.113.7, 10.0.0.3,10.0.0.2"}, client},
		{proxy, []string{"1.1.1.1", "203.0.113.7 , 10.0.0.3", "10.0.0.2"}, client},
		{proxy, []string{"203.0.113.7, ::ffff:10.0.0.3, fd00::5"}, client},
		{proxy, []string{"10.0.0.4, 10.0.0.3, 10.0.0.2"}, "10.0.0.4"},
		{proxy, []string{"10.0.0.4", "10.0.0.3"}, "10.0.0.4"},
		{proxy, []string{"203.0.113.7:4711"}, client},
		{proxy, []string{"[2001:db8::1]:4711"}, "2001:db8::1"},
		{proxy, []string{"[2001:db8::1]"}, "2001:db8::1"},
		{proxy, []string{"2001:db8::1"}, "2001:db8::1"},
		{proxy, []string{"::ffff:203.0.113.7"}, client},
		{proxy, []string{"[::ffff:203.0.113.7]:80"}, client},
		{proxy, []string{"unknown"}, proxy},
		{proxy, []string{"203.0.113.7, unknown"}, proxy},
		{proxy, []string{"203.0.113.7, unknown, 10.0.0.2"}, "10.0.0.2"},
		{proxy, []string{"203.0.113.7, -, 10.0.0.3, 10.0.0.2"}, "10.0.0.3"},
		{proxy, []string{"203.0.113.7 10.0.0.2"}, proxy},
		{proxy, []string{"203.0.113.7:"}, proxy},
		{proxy, []string{"203.0.113.7:http"}, proxy},
		{proxy, []string{"203.0.113.7:99999"}, proxy},
		{proxy, []string{"203.0.113.7:+1"}, proxy},
		{proxy, []string{"203.0.113.256"}, proxy},
		{proxy, []string{"203.0.113"}, proxy},
		{proxy, []string{"0x7f.1"}, proxy},
		{proxy, []string{"[203.0.113.7]"}, proxy},
		{proxy, []string{"[2001:db8::1"}, proxy},
		{proxy, []string{"[2001:db8::1]x"}, proxy},
		{proxy, []string{"[2001:db8::1]x80"}, proxy},
		{proxy, []string{"2001:db8::1%eth0"}, proxy},
		{proxy, []string{"2001:db8::1:::"}, proxy},
		{proxy, []string{`"203.0.113.7"`}, proxy},
		{proxy, []string{"203.0.113.7\xff"}, proxy},
		{proxy, []string{"for=203.0.113.7"}, proxy},
		{proxy, []string{"203.0.113.7,, ,"}, client},
		{proxy, []string{"203.0.113.7", "", " , "}, client},
	} {
		found := proxies.clientIP(PeerAddress(test.peer), test.lines)
		if found.String() != test.expected {
			t.Errorf("%s %q: found %v, expected %s", test.peer, test.lines, found, test.expected)
		}
	}
	for _, network := range []string{"10.0.0.0/33", "nowhere", "", "fe80::1%eth0"} {
		if _, err := ParseProxies([]string{network}); err == nil {
			t.Errorf("%q is accepted", network)
		}
	}
	for peer, expected := range map[string]string{
		"192.0.2.1:80": "192.0.2.1", "[::1]:80": "::1", "[fe80::1%eth0]:80": "fe80::1", "192.0.2.1": "192.0.2.1",
	} {
		if found := PeerAddress(peer); found.String() != expected {
			t.Errorf("%s: found %v", peer, found)
		}
	}
	for _, peer := range []string{"", "@", "/run/x.sock"} {
		if PeerAddress(peer).IsValid() {
			t.Errorf("%q has an address", peer)
		}
	}
}

func TestHeaders(t *testing.T) {
	type lines = map[string][]string
	all := NewReader(nil, "X-Forwarded-For", nil)
	few := NewReader(nil, "X-Forwarded-For", []string{"X-Plan", "x_tenant"})
	for _, test := range []struct {
		name   string
		reader *Reader
		lines  lines
		err    error
	}{
		{"plain", all, lines{"X-User-Id": {"ann"}, "Accept": {"a"}}, nil},
		{"an identity twice", all, lines{"X-User-Id": {"ann", "bob"}}, errConflict},
		{"the same twice", all, lines{"X-User-Id": {"ann", " ann"}}, nil},
		{"any header twice", all, lines{"X-Plan": {"a", "b"}}, errConflict},
		{"a list twice", all, lines{"Accept": {"a", "b"}}, nil},
		{"cookies", all, lines{"Cookie": {"a=1", "b=2"}}, nil},
		{"alike to the user", all, lines{"X_user_id": {"ann"}}, errAlikeHeader},
		{"alike to the key", all, lines{"X.Api.Key": {"k"}}, errAlikeHeader},
		{"alike to the address", all, lines{"X_forwarded_for": {"k"}}, errAlikeHeader},
		{"at the ends", all, lines{"_x-User-Id~": {"ann"}}, errAlikeHeader},
		{"similar only", all, lines{"X-Userid": {"ann"}, "X__user_id": {"b"}}, nil},
		{"an encoded word", all, lines{"X-User-Id": {"=?utf-8?q?ann?="}}, errUnclearValue},
		{"a space of Unicode", all, lines{"X-User-Id": {"ann\u00a0"}}, errUnclearValue},
		{"a space of Latin-1", all, lines{"X-User-Id": {"\xa0ann"}}, errUnclearValue},
		{"a byte order mark", all, lines{"X-User-Id": {"\ufeffann"}}, errUnclearValue},
		{"selected, another twice", few, lines{"X-Other": {"a", "b"}}, nil},
		{"selected twice", few, lines{"X-Plan": {"a", "b"}}, errConflict},
		{"alike to a selected one", few, lines{"X.Plan": {"a"}}, errAlikeHeader},
		{"a plain name alike to an odd one", few, lines{"X-Tenant": {"a"}}, errAlikeHeader},
		{"the odd one itself", few, lines{"X_tenant": {"a"}}, nil},
	} {
		_, err := test.reader.Read(test.lines, netip.Addr{})
		if !errors.Is(err, test.err) || test.err == nil && err != nil {
			t.Errorf("%s: found %v, expected %v", test.name, err, test.err)
		}
	}

	read, err := all.Read(lines{
		"X-User-Id": {" ann "}, "X-Api-Key": {"k\xe9"}, "Authorization": {"secret"}, "X-Plan": {"free"},
		"X_odd": {"1"},
	}, netip.Addr{})
	if err != nil || read.User != "ann" || read.APIKey != "k\U0010FFE9" || read.TooLarge {
		t.Errorf("%+v %v", read, err)
	}
	if _, isSent := read.Headers["Authorization"]; isSent || read.Headers["X-Plan"] != "free" || len(read.Headers) != 3 {
		t.Errorf("%v", read.Headers)
	}
	read, err = few.Read(lines{"X-User-Id": {"ann"}, "X-Plan": {"free"}, "X-Other": {"1"}}, netip.Addr{})
	if err != nil || read.User != "ann" || len(read.Headers) != 1 {
		t.Errorf("%+v %v", read, err)
	}
	read, err = all.Read(lines{"X-Long": {string(make([]byte, 40_000))}}, netip.Addr{})
	if err != nil || !read.TooLarge {
		t.Errorf("a large header is sent: %v", err)
	}
}

func TestDifferentBytesAreDifferentText(t *testing.T) {
	for bytes, expected := range map[string]string{
		"café": "café", "caf\xe9": "caf\U0010FFE9", "\xff\xfe": "\U0010FFFF\U0010FFFE",
		"\U0010FFE9": "\U0010FFF4\U0010FF8F\U0010FFBF\U0010FFA9", "\U0010FF00": "\U0010FF00", "": "",
	} {
		if found := Text(bytes); found != expected {
			t.Errorf("%q: found %q, expected %q", bytes, found, expected)
		}
	}
}

func TestMethods(t *testing.T) {
	for method, isBad := range map[string]bool{
		"post": true, "Get": true, "version-control": true, "POST": false, "M-SEARCH": false, "posts": false, "custom": false,
	} {
		if (CheckMethod(method) != nil) != isBad {
			t.Errorf("%s", method)
		}
	}
}

func TestTargets(t *testing.T) {
	for target, expected := range map[string]string{
		"/a?b": "/a", "/a/?b?c": "/a/", "*": "*", "http://h/a?b": "/a", "http://h": "/", "http://h?x": "",
		"//h/a": "//h/a", "": "", "h:80": "h:80",
	} {
		if found := TargetPath(target); found != expected {
			t.Errorf("%q: found %q", target, found)
		}
	}
}

func FuzzPaths(f *testing.F) {
	for _, seed := range []string{"/a", "/%61;x/../b", "//h/x", `/\%2f`, "*"} {
		f.Add(seed)
	}
	set, _ := NewPathSet([]string{"/**/a*/**/{x}", "/?*?/**"}, true)
	f.Fuzz(func(t *testing.T, target string) {
		path, err := ReadPath(target)
		if err != nil {
			return
		}
		set.ContainsBoth(path)
		set.ContainsEither(path)
		// The normal form is its own normal form, unless an escape was escaped.
		again, err := normalForm(path.withSlash)
		if err == nil && !containsAny(path.withSlash, "%;\\") && again != path.withSlash {
			t.Errorf("%q: %q becomes %q", target, path.withSlash, again)
		}
	})
}

func containsAny(text, chars string) bool {
	for i := range text {
		for j := range chars {
			if text[i] == chars[j] {
				return true
			}
		}
	}
	return false
}
