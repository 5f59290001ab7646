"""Paths in the forms in which servers read them, and patterns for them."""

from __future__ import annotations

import re
from typing import Iterable, List, Optional, Pattern, Tuple


class Ambiguous(Exception):
    """Servers could read the request in different ways, so it is answered with 400."""


_SPECIAL = re.compile(rb"[%\\;\x00-\x1f\x7f]|/[/.]")
_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})")


class RequestPath:
    """The raw form and the normal form of a path.

    In the normal form every percent escape is decoded once, `\\` is `/`, each segment is cut at its
    first `;`, repeated slashes are merged, and a slash at the end is dropped.
    """

    __slots__ = ("_behind_host", "_first", "ignores_case", "normal_with_slash", "raw")

    def __init__(self, raw: bytes, ignores_case: bool = False) -> None:
        if raw == b"*":
            raw = b"/*"
        elif not raw:
            raw = b"/"
        elif not raw.startswith(b"/"):
            raise Ambiguous("the target is not a path")
        if b"#" in raw:
            raise Ambiguous("the path has a `#` in it")
        self.raw = lossless(raw)
        self.ignores_case = ignores_case
        self._first = self.raw
        self.normal_with_slash = self.raw
        self._behind_host: Optional[str] = None
        if _SPECIAL.search(raw):
            self.normal_with_slash = _normal(raw)
            rest = _behind_host(raw)
            if rest is not None:
                self._behind_host = _normal(rest)
        if ignores_case:
            self._first = _lower(self._first)
            self.normal_with_slash = _lower(self.normal_with_slash)
            if self._behind_host is not None:
                self._behind_host = _lower(self._behind_host)

    @property
    def normal_path(self) -> Optional[str]:
        """The field `normal_path` of a check: None if the path has only one form."""
        normal = self.normal_with_slash
        return None if _without_slash(normal) == self.raw else normal

    def exact_forms(self) -> List[str]:
        """Returns the forms that exceptions compare, with the slash at the end."""
        forms = [self._first]
        if self.normal_with_slash != self._first:
            forms.append(self.normal_with_slash)
        if self._behind_host is not None:
            forms.append(self._behind_host)
        return forms

    def forms(self) -> List[str]:
        """Returns the forms that rules match."""
        exact = self.exact_forms()
        return (
            exact
            + [_without_slash(self.normal_with_slash)]
            + [_without_slash(form) for form in exact[2:]]
        )


class PathPatterns:
    """Patterns: `?` is one character, `*` within a segment, `{name}` one segment, `**` any."""

    def __init__(self, patterns: Iterable[str], ignores_case: bool = False) -> None:
        if isinstance(patterns, str):
            raise TypeError("patterns are a list of strings, not one string")
        flags = re.ASCII | (re.IGNORECASE if ignores_case else 0)
        self._patterns: Tuple[Pattern[str], ...] = tuple(
            re.compile(_regex(pattern), flags) for pattern in patterns
        )

    def __bool__(self) -> bool:
        return bool(self._patterns)

    def matches(self, path: str) -> bool:
        """Returns whether one of them matches."""
        return any(pattern.fullmatch(path) for pattern in self._patterns)

    def matches_either(self, path: RequestPath) -> bool:
        """Returns whether one of them matches a form of the path."""
        return any(self.matches(form) for form in path.forms())

    def matches_both(self, path: RequestPath) -> bool:
        """Returns whether every form of the path is matched."""
        return all(self.matches(form) for form in path.exact_forms())


def lossless(data: bytes) -> str:
    """Returns bytes as text, so that different bytes are always different text.

    A byte that is not part of UTF-8 becomes a character of a private-use area, and so do the bytes
    of such a character.
    """
    if data.isascii():
        return data.decode("ascii")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = ""
    else:
        if b"\xf4" not in data:
            return text
    parts: List[str] = []
    for char in data.decode("utf-8", "surrogateescape"):
        code = ord(char)
        if 0xDC80 <= code <= 0xDCFF:
            parts.append(chr(0x10FF00 + code - 0xDC00))
        elif code >= 0x10FF80:
            parts.extend(chr(0x10FF00 + byte) for byte in char.encode("utf-8"))
        else:
            parts.append(char)
    return "".join(parts)


def _normal(path: bytes) -> str:
    """Returns the normal form with its slash at the end."""
    normal = bytearray()
    is_cut = False
    at = 0
    while at < len(path):
        escape = _ESCAPE.match(path, at) if path[at] == 0x25 else None
        if escape is not None:
            byte, is_plain_slash, at = int(escape[1], 16), False, at + 3
        else:
            byte, is_plain_slash, at = path[at], path[at] == 0x2F, at + 1
        if byte < 0x20 or byte == 0x7F:
            raise Ambiguous("the path has a control character in it")
        if byte in b"/\\":
            if is_cut and not is_plain_slash:
                raise Ambiguous("the path has an escaped slash or a backslash behind a `;`")
            is_cut = False
            if not normal.endswith(b"/"):
                normal.append(0x2F)
        elif byte == 0x3B:
            is_cut = True
        elif not is_cut:
            normal.append(byte)
    if any(segment in (b".", b"..") for segment in bytes(normal).split(b"/")):
        raise Ambiguous("the path has `.` or `..` in it")
    try:
        return normal.decode("utf-8")
    except UnicodeDecodeError:
        raise Ambiguous("the path is not UTF-8 when its escapes are decoded") from None


def _behind_host(path: bytes) -> Optional[bytes]:
    """Returns what servers that parse `//host/x` as a URL take for the path."""
    if path[1:2] not in (b"/", b"\\"):
        return None
    slashes = [at for at in (path.find(b"/", 2), path.find(b"\\", 2)) if at >= 0]
    return path[min(slashes) :] if slashes else b"/"


def _without_slash(path: str) -> str:
    return path[:-1] if len(path) > 1 and path.endswith("/") else path


def _lower(text: str) -> str:
    return "".join(char.lower() if char.isascii() else char for char in text)


def _regex(pattern: str) -> str:
    if not pattern.startswith("/"):
        raise ValueError(f"the pattern {pattern!r} does not begin with `/`")
    regex = ""
    for segment in pattern[1:].split("/"):
        if segment == "**":
            regex += r"(?:/[^/]*)*"
        elif re.fullmatch(r"\{[^{}]*\}", segment):
            regex += r"/[^/]+"
        elif "{" in segment or "}" in segment:
            raise ValueError(f"the pattern {pattern!r} has a brace within a segment; write `*`")
        elif "**" in segment:
            raise ValueError(f"the pattern {pattern!r} has `**` within a segment; write `*`")
        else:
            parts = (
                "[^/]*" if char == "*" else "[^/]" if char == "?" else re.escape(char)
                for char in segment
            )
            regex += "/" + "".join(parts)
    return f"(?s:{regex})"
