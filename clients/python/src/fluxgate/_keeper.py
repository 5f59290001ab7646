"""The background thread of a client: renews holds, repeats releases, undoes late grants."""

from __future__ import annotations

import os
import selectors
import socket
import ssl
import threading
import time
import weakref
from collections import deque
from typing import Deque, Dict, List, Optional, Tuple

from ._calls import (
    FAILURES,
    LATE_ANSWER,
    MAX_LATE_ANSWERS,
    RENEW,
    RETRY,
    is_final,
    log,
    undo_of,
)
from ._errors import FluxGateError
from ._holds import KeptHold, Renewals
from ._transport import Connection, Transport
from ._wire import BadResponse

# How long the thread stays without work: starting one for every request would cost more.
_LINGER = 5.0


class _Repeat:
    """A call that is repeated until it succeeds or its hold has expired."""

    __slots__ = ("body", "next", "path", "until")

    def __init__(self, path: str, body: bytes, until: float) -> None:
        self.path = path
        self.body = body
        self.next = time.monotonic()
        self.until = until


class Keeper:
    """One thread for all holds of a client, which runs only while there is work."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._start_empty()
        _keepers.add(self)

    def _start_empty(self) -> None:
        self._lock = threading.Lock()
        self._thread: Optional[threading.Thread] = None
        self._wake: Optional[socket.socket] = None
        self._is_closed = False
        # When the thread wakes up by itself.
        self._wakes_at = 0.0
        self._renewals = Renewals()
        self._repeats: List[_Repeat] = []
        self._new_late: List[Connection] = []
        self._late_count = 0
        # Calls for holds that were garbage collected, which may happen at any point, even while
        # this thread has the lock.
        self._orphans: Deque[Tuple[str, str, bytes, float]] = deque()

    def keep(self, hold: KeptHold) -> None:
        """Renews a hold from now on."""
        with self._lock:
            self._renewals.add(hold)
            self._ensure_thread(self._renewals.due)

    def drop(self, hold: KeptHold) -> None:
        """Renews a hold no longer."""
        with self._lock:
            self._renewals.drop(hold.id)

    def adopt(self, hold: KeptHold, path: str, body: bytes) -> None:
        """Ends a hold that was garbage collected. Takes no lock."""
        self._orphans.append((hold.id, path, body, hold.expires))
        self._signal()

    def repeat(self, path: str, body: bytes, until: float) -> None:
        """Makes a call in the background, again and again until then."""
        with self._lock:
            repeat = _Repeat(path, body, until)
            self._repeats.append(repeat)
            self._ensure_thread(repeat.next)

    def take_late(self, connection: Connection) -> bool:
        """Waits for an answer that missed its deadline, to undo what it grants."""
        with self._lock:
            if self._is_closed or self._late_count >= MAX_LATE_ANSWERS:
                return False
            self._late_count += 1
            connection.idle_since = time.monotonic()
            self._new_late.append(connection)
            self._ensure_thread(0.0)
            return True

    def close(self) -> None:
        """Ends the thread. Calls that are to be repeated are made once more."""
        with self._lock:
            self._is_closed = True
            thread = self._thread
            self._signal()
        if thread is not None and thread is not threading.current_thread():
            thread.join(2.0)

    def _ensure_thread(self, due: float) -> None:
        if self._is_closed:
            return
        if self._thread is None:
            own, self._wake = socket.socketpair()
            self._wakes_at = 0.0
            self._thread = threading.Thread(
                target=self._run, args=(own,), name="fluxgate-keeper", daemon=True
            )
            self._thread.start()
        elif due < self._wakes_at:
            self._signal()

    def _signal(self) -> None:
        wake = self._wake
        if wake is not None:
            self._wakes_at = 0.0
            try:
                wake.send(b"x")
            except OSError:
                pass

    def _run(self, wake: socket.socket) -> None:
        wake.setblocking(False)
        selector = selectors.DefaultSelector()
        selector.register(wake, selectors.EVENT_READ)
        late: Dict[int, Tuple[Connection, float]] = {}
        idle_since = time.monotonic()
        try:
            while True:
                with self._lock:
                    now = time.monotonic()
                    while self._orphans:
                        hold, path, body, until = self._orphans.popleft()
                        self._renewals.drop(hold)
                        self._repeats.append(_Repeat(path, body, until))
                    for connection in self._new_late:
                        late[connection.sock.fileno()] = (connection, now + LATE_ANSWER)
                        connection.sock.setblocking(False)
                        selector.register(connection.sock, selectors.EVENT_READ)
                    self._new_late.clear()
                    has_work = bool(self._renewals or self._repeats or late)
                    if has_work:
                        idle_since = now
                    if self._is_closed or now >= idle_since + _LINGER:
                        self._end_thread()
                        break
                    due = [idle_since + _LINGER]
                    if self._renewals:
                        due.append(self._renewals.due)
                    due += [repeat.next for repeat in self._repeats]
                    due += [until for _, until in late.values()]
                    self._wakes_at = min(due)
                for key, _ in selector.select(max(0.0, self._wakes_at - now)):
                    if key.fileobj is wake:
                        _drain(wake)
                    else:
                        self._read_late(selector, late, key.fd)
                self._expire_late(selector, late)
                self._renew_due()
                self._repeat_due()
        except Exception:
            # It must not end a program, and must not go unseen.
            log.exception("the background thread failed")
            with self._lock:
                self._end_thread()
        finally:
            for fd in list(late):
                self._drop_late(selector, late, fd).close()
            selector.close()
            wake.close()
        self._repeat_once()

    def _end_thread(self) -> None:
        """Lets the next piece of work start another thread."""
        self._thread = None
        if self._wake is not None:
            self._wake.close()
            self._wake = None

    def _renew_due(self) -> None:
        with self._lock:
            renewals = self._renewals.take_due()
        for renewal in renewals:
            try:
                are_held = renewal.read(self._transport.call(RENEW, renewal.body))
            except (*FAILURES, FluxGateError):
                with self._lock:
                    self._renewals.failed(renewal)
            else:
                with self._lock:
                    self._renewals.succeeded(renewal, are_held)

    def _repeat_due(self) -> None:
        now = time.monotonic()
        with self._lock:
            due = [repeat for repeat in self._repeats if repeat.next <= now]
        for repeat in due:
            is_done = self._try(repeat)
            with self._lock:
                now = time.monotonic()
                repeat.next = now + RETRY
                if (is_done or now >= repeat.until) and repeat in self._repeats:
                    self._repeats.remove(repeat)
            if not is_done and now >= repeat.until:
                log.warning("a hold could not be released, and has expired")

    def _repeat_once(self) -> None:
        with self._lock:
            if not self._is_closed:
                return
            left, self._repeats = self._repeats, []
        end = time.monotonic() + 1.0
        for repeat in left:
            if time.monotonic() < end:
                self._try(repeat)

    def _try(self, repeat: _Repeat) -> bool:
        try:
            response = self._transport.call(repeat.path, repeat.body)
        except (OSError, BadResponse):
            return False
        return is_final(response)

    def _read_late(
        self,
        selector: selectors.BaseSelector,
        late: Dict[int, Tuple[Connection, float]],
        fd: int,
    ) -> None:
        connection = late[fd][0]
        assert connection.parser is not None
        try:
            response = connection.parser.feed(connection.sock.recv(65536))
        except (BlockingIOError, InterruptedError, ssl.SSLWantReadError):
            return
        except (OSError, BadResponse):
            self._drop_late(selector, late, fd).close()
            return
        if response is None:
            return
        self._drop_late(selector, late, fd)
        self._transport.give_back(connection, response)
        undo = undo_of(response)
        if undo is not None:
            self.repeat(*undo, until=time.monotonic() + LATE_ANSWER)

    def _expire_late(
        self, selector: selectors.BaseSelector, late: Dict[int, Tuple[Connection, float]]
    ) -> None:
        now = time.monotonic()
        for fd in [fd for fd, (_, until) in late.items() if until <= now]:
            self._drop_late(selector, late, fd).close()

    def _drop_late(
        self,
        selector: selectors.BaseSelector,
        late: Dict[int, Tuple[Connection, float]],
        fd: int,
    ) -> Connection:
        connection, _ = late.pop(fd)
        selector.unregister(connection.sock)
        with self._lock:
            self._late_count -= 1
        return connection

    def _after_fork(self) -> None:
        # The holds belong to the parent, and threads do not survive a fork.
        wake = self._wake
        self._start_empty()
        if wake is not None:
            wake.close()


def _drain(wake: socket.socket) -> None:
    try:
        while wake.recv(1024):
            pass
    except OSError:
        pass


_keepers: weakref.WeakSet[Keeper] = weakref.WeakSet()


def _after_fork() -> None:
    for keeper in list(_keepers):
        keeper._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
