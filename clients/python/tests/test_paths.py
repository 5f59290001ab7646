"""Paths, addresses and names in the forms that the gateway has for them."""

import unittest

from fluxgate._addresses import TrustedProxies, parse_address
from fluxgate._filter import Filter, fold
from fluxgate._path import Ambiguous, PathPatterns, RequestPath, lossless


class Paths(unittest.TestCase):
    def test_forms(self):
        for raw, normal in [
            ("/", None),
            ("/api/x", None),
            ("/api/.well-known/..x/...", None),
            ("/%61pi/x", "/api/x"),
            ("/api%2fx", "/api/x"),
            ("/api\\x", "/api/x"),
            ("/api%5cx", "/api/x"),
            ("//api///x//", "/api/x/"),
            ("/api/", "/api/"),
            ("/api;v=1/x", "/api/x"),
            ("/api%3bv=1/x", "/api/x"),
            ("/a/;x/b", "/a/b"),
            ("/;", "/"),
            ("/%2561pi", "/%61pi"),
            ("/%252e%252e/x", "/%2e%2e/x"),
            ("/%25", "/%"),
            ("/%zz", None),
            ("/%", None),
            ("/%6", None),
            ("/caf%C3%a9", "/café"),
        ]:
            path = RequestPath(raw.encode())
            self.assertEqual((path.raw, path.normal_path), (raw, normal), raw)
        self.assertEqual(RequestPath(b"*").raw, "/*")
        self.assertEqual(RequestPath(b"").raw, "/")
        self.assertEqual(RequestPath(b"/caf\xe9").raw, "/caf\U0010ffe9")

    def test_paths_with_other_readings(self):
        for path in [
            "x", "http://host/x", "%2fapi", "/.", "/..", "/./x", "/a/../x", "/a/..", "/%2e%2e/x",
            "/.%2E/x", "/..;/x", "/.;x", "/..%3ba/x", "/a%2f../x", "/a%5C..%5cx", "/a\\..\\x",
            "//..//x", "/x;a/../y", "/a%00", "/a;%00/x", "/a%0a", "/a%0D/b", "/a%1f/x", "/a%7F",
            "/a\n", "/a%80", "/a%ff", "/%c0%af", "/%c3;%a9", "/a/%ed%a0%80/b", "/api;%2fy/x",
            "/api;a%5Cy/x", "/api;\\y", "/a%3bx%2fy", "/a#b",
        ]:  # fmt: skip
            with self.subTest(path), self.assertRaises(Ambiguous):
                RequestPath(path.encode())

    def test_which_forms_are_compared(self):
        for raw, forms, exact in [
            ("/a", ["/a"], ["/a"]),
            ("/a/", ["/a/", "/a"], ["/a/"]),
            ("/%61/", ["/%61/", "/a/", "/a"], ["/%61/", "/a/"]),
            ("//h/a/", ["//h/a/", "/h/a/", "/h/a", "/a/", "/a"], ["//h/a/", "/h/a/", "/a/"]),
            ("/\\h\\%61", ["/\\h\\%61", "/h/a", "/a"], ["/\\h\\%61", "/h/a", "/a"]),
        ]:
            path = RequestPath(raw.encode())
            self.assertEqual(set(path.forms()), set(forms), raw)
            self.assertEqual(path.exact_forms(), exact, raw)

    def test_patterns(self):
        for pattern, matching, others in [
            ("/**", ["/", "/a", "/a/b"], []),
            ("/api/**", ["/api", "/api/", "/api/x/y"], ["/apis", "/x/api"]),
            ("/a/*/c", ["/a/b/c", "/a//c"], ["/a/c", "/a/b/b/c"]),
            ("/a/{id}/c", ["/a/b/c"], ["/a//c"]),
            ("/a?", ["/ab"], ["/a", "/a/", "/abc"]),
            ("/a.b*", ["/a.b", "/a.bc"], ["/axb"]),
            ("/**/x", ["/x", "/a/x", "/a/b/x"], ["/x/", "/ax"]),
            ("/a/", ["/a/"], ["/a"]),
        ]:
            patterns = PathPatterns([pattern])
            for path in matching:
                self.assertTrue(patterns.matches(path), (pattern, path))
            for path in others:
                self.assertFalse(patterns.matches(path), (pattern, path))
        for pattern in ["api", "", "/a{b}", "/{a", "/a**", "/**b"]:
            with self.subTest(pattern), self.assertRaises(ValueError):
                PathPatterns([pattern])
        with self.assertRaises(TypeError):
            PathPatterns("/api/**")

    def test_case_is_ignored_if_asked_for(self):
        patterns = PathPatterns(["/Api/**"], ignores_case=True)
        self.assertTrue(patterns.matches_either(RequestPath(b"/%41PI/x", ignores_case=True)))
        self.assertFalse(PathPatterns(["/Api/**"]).matches_either(RequestPath(b"/api/x")))


class Addresses(unittest.TestCase):
    def test_addresses(self):
        for text, address in [
            ("192.0.2.1", "192.0.2.1"),
            ("192.0.2.1:80", "192.0.2.1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("[2001:db8::1]:80", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("2001:DB8:0::1", "2001:db8::1"),
        ]:
            self.assertEqual(str(parse_address(text)), address, text)
        for text in [
            "", "x", "192.0.2", "192.0.2.256", "192.0.2.01", "0x7f.0.0.1", "1.2.3.4:", "1.2.3.4:x",
            "1.2.3.4:65536", "1.2.3.4:-1", "[1.2.3.4]", "[::1", "[::1]x", "::1%eth0", "fe80::1%25e",
            "1.2.3.4 ", "\u0661.2.3.4", "1.2.3.4:\u0661", "_hidden", "unknown",
        ]:  # fmt: skip
            self.assertIsNone(parse_address(text), text)

    def test_networks(self):
        for trusted, peer, expected in [
            (["10.0.0.0/8"], "10.1.1.1", "192.0.2.1"),
            (["10.1.1.1"], "10.1.1.1", "192.0.2.1"),
            (["10.0.0.1/8"], "10.1.1.1", "192.0.2.1"),
            (["::ffff:10.0.0.0/104"], "10.1.1.1", "192.0.2.1"),
            (["10.0.0.0/8"], "::ffff:10.1.1.1", "192.0.2.1"),
            (["10.0.0.0/8"], "11.1.1.1", "11.1.1.1"),
            (["fd00::/8"], "10.1.1.1", "10.1.1.1"),
            (["0.0.0.0/0"], "::1", "::1"),
            ([], "10.1.1.1", "10.1.1.1"),
        ]:
            self.assertEqual(TrustedProxies(trusted).client_ip(peer, ["192.0.2.1"]), expected)
        self.assertIsNone(TrustedProxies(["10.0.0.0/8"]).client_ip(None, ["192.0.2.1"]))
        self.assertIsNone(TrustedProxies().client_ip("unix:", []))
        for network in ["10.0.0.0/33", "x", "", "10.0.0"]:
            with self.subTest(network), self.assertRaises(ValueError):
                TrustedProxies([network])
        with self.assertRaises(TypeError):
            TrustedProxies("10.0.0.0/8")


class Names(unittest.TestCase):
    def test_names_that_servers_take_for_one_another(self):
        for name in ["X_User_Id", "X.User~Id", "_X-User-Id.", "x-user-id"]:
            self.assertEqual(fold(name), "x_user_id", name)
        for name in ["X-UserId", "X--User-Id", "X-User-Ids"]:
            self.assertNotEqual(fold(name), "x_user_id", name)

    def test_bytes_are_told_apart(self):
        texts = [b"jos\xe9", b"jos\xc3\xa9", "jos\U0010ffe9".encode(), b"jos\xe8", b"jos\xf4"]
        self.assertEqual(len({lossless(text) for text in texts}), len(texts))
        self.assertEqual(lossless("é".encode()), "é")

    def read(self, *headers, **options):
        lines = [(name.lower(), value) for name, value in headers]
        return Filter("set", **options).read(None, "GET", b"/x", lines, "192.0.2.1")

    def test_what_is_sent(self):
        body = self.read(
            ("X-User-Id", b" ann "),
            ("X-API-Key", b"k"),
            ("Cookie", b"a"),
            ("Authorization", b"b"),
            ("Accept", b"x"),
            ("Accept", b"y"),
            ("odd_name", b"z"),
        )
        self.assertEqual(body["headers"], {"x-user-id": "ann", "x-api-key": "k", "accept": "x"})
        self.assertEqual((body["user"], body["api_key"], body["ip"]), ("ann", "k", "192.0.2.1"))
        body = self.read(("X-Plan", b"pro"), ("X-Other", b"1"), headers=["X-Plan"])
        self.assertEqual(body["headers"], {"x-plan": "pro"})

    def test_functions_replace_the_headers(self):
        body = self.read(
            ("X-User-Id", b"ann"),
            user=lambda _: "bob",
            api_key=lambda _: None,
            ip=lambda _: "2001:db8::1",
            attributes=lambda _: {"tenant": "t1", "beta": True, "n": 1},
            cost=lambda _: 3,
        )
        self.assertEqual((body["user"], body["ip"], body["cost"]), ("bob", "2001:db8::1", 3))
        self.assertEqual(body["attributes"], {"tenant": "t1", "beta": "true", "n": "1"})
        self.assertNotIn("api_key", body)
        # A function that returns no address cannot make the service reject the call.
        self.assertEqual(self.read(ip=lambda _: "nowhere")["ip"], "192.0.2.1")

    def test_values_that_servers_clean_in_different_ways(self):
        for value in [
            b"\xc2\xa0ann",
            b"ann\xa0",
            b"\xef\xbb\xbfann",
            b"=?utf-8?q?ann?=",
            b"ann\x85",
        ]:
            with self.subTest(value), self.assertRaises(Ambiguous):
                self.read(("X-User-Id", value))
        for value in [b"jos\xe9", "é".encode(), b"a?=b", b""]:
            self.read(("X-User-Id", value))

    def test_only_named_headers_are_checked_if_some_are_named(self):
        twice = [("X-Tag", b"1"), ("X-Tag", b"2")]
        with self.assertRaises(Ambiguous):
            self.read(*twice)
        self.read(*twice, headers=["X-Plan"])
        with self.assertRaises(Ambiguous):
            self.read(*twice, headers=["x-tag"])
        with self.assertRaises(Ambiguous):
            self.read(("X_Tag", b"1"), headers=["x-tag"])
        with self.assertRaises(Ambiguous):
            self.read(("X-Odd-Name", b"1"), headers=["x_odd_name"])


if __name__ == "__main__":
    unittest.main()
