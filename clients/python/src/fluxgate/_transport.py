"""Blocking connections to the service."""

from __future__ import annotations

import ipaddress
import os
import select
import socket
import threading
import time
import weakref
from typing import Any, Callable, List, Optional, Tuple

from ._calls import MAX_IDLE, Settings
from ._wire import BadResponse, Response, ResponseParser

# How long the addresses of a name are used.
_ADDRESSES_FOR = 30.0

Address = Tuple[int, Any]


class DeadlineExceeded(OSError):
    """The deadline has passed."""

    def __init__(self) -> None:
        super().__init__("no answer within the deadline")


def _remaining(end: float) -> float:
    left = end - time.monotonic()
    if left <= 0:
        raise DeadlineExceeded
    return left


class Connection:
    """A connection, used by one call at a time."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.parser: Optional[ResponseParser] = None
        self.idle_since = 0.0
        self._poll: Any = None
        if hasattr(select, "poll"):
            self._poll = select.poll()
            self._poll.register(sock.fileno(), select.POLLIN)

    def is_usable(self) -> bool:
        """Returns whether the server has neither closed an idle connection nor sent anything."""
        if time.monotonic() - self.idle_since > MAX_IDLE:
            return False
        if self._poll is not None:
            return not self._poll.poll(0)
        return not select.select([self.sock], [], [], 0)[0]

    def call(self, request: bytes, end: float) -> Response:
        """Sends a request and returns the response."""
        self.parser = ResponseParser()
        sock = self.sock
        try:
            sock.settimeout(_remaining(end))
            sock.sendall(request)
            while True:
                sock.settimeout(_remaining(end))
                response = self.parser.feed(sock.recv(65536))
                if response is not None:
                    return response
        except socket.timeout:
            raise DeadlineExceeded from None

    def close(self) -> None:
        """Closes the connection."""
        try:
            self.sock.close()
        except OSError:
            pass


class Transport:
    """A bounded pool of connections. Threads share it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.is_closed = False
        self._lock = threading.Lock()
        # The last is the most recently used.
        self._idle: List[Connection] = []
        self._addresses: List[Address] = []
        self._addresses_until = 0.0
        try:
            version = ipaddress.ip_address(settings.host).version
            family = socket.AF_INET if version == 4 else socket.AF_INET6
            self._addresses = [(family, (settings.host, settings.port))]
            self._addresses_until = float("inf")
        except ValueError:
            pass
        _transports.add(self)

    def call(
        self,
        path: str,
        body: bytes,
        deadline: Optional[float] = None,
        on_late: Optional[Callable[[Connection], bool]] = None,
    ) -> Response:
        """Posts a body. A call that fails after it was sent is not repeated.

        If it misses its deadline, `on_late` may take over the connection: the answer may still
        come, and grant something.
        """
        end = time.monotonic() + (self.settings.deadline if deadline is None else deadline)
        connection = self._take() or self._connect(end)
        try:
            response = connection.call(self.settings.request(path, body), end)
        except BaseException as error:
            # A failed connection answers no more. An exception from outside, such as an
            # interrupt, is as good as a deadline.
            is_broken = isinstance(error, (OSError, BadResponse))
            is_late = not is_broken or isinstance(error, DeadlineExceeded)
            if not (is_late and on_late is not None and on_late(connection)):
                connection.close()
            raise
        self.give_back(connection, response)
        return response

    def give_back(self, connection: Connection, response: Response) -> None:
        """Keeps a connection for the next call, if there is room for it."""
        if response.keep_alive:
            connection.idle_since = time.monotonic()
            with self._lock:
                if not self.is_closed and len(self._idle) < self.settings.pool_size:
                    self._idle.append(connection)
                    return
        connection.close()

    def close(self) -> None:
        """Closes idle connections. Later calls open one each."""
        with self._lock:
            self.is_closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def idle_connections(self) -> int:
        """Returns how many connections are kept."""
        return len(self._idle)

    def _take(self) -> Optional[Connection]:
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection = self._idle.pop()
            if connection.is_usable():
                return connection
            connection.close()

    def _connect(self, end: float) -> Connection:
        error: Optional[OSError] = None
        for family, address in self._resolve(end):
            sock = socket.socket(family, socket.SOCK_STREAM)
            try:
                sock.settimeout(_remaining(end))
                sock.connect(address)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                tls = self.settings.tls
                if tls is not None:
                    sock.settimeout(_remaining(end))
                    sock = tls.wrap_socket(sock, server_hostname=self.settings.host)
                return Connection(sock)
            except socket.timeout:
                sock.close()
                self._forget_addresses()
                raise DeadlineExceeded from None
            except OSError as failed:
                sock.close()
                error = failed
            except BaseException:
                sock.close()
                raise
        self._forget_addresses()
        raise error or OSError(f"{self.settings.host} has no address")

    def _forget_addresses(self) -> None:
        if self._addresses_until != float("inf"):
            self._addresses_until = 0.0

    def _resolve(self, end: float) -> List[Address]:
        if time.monotonic() < self._addresses_until:
            return self._addresses
        # `getaddrinfo` knows no timeout, so a thread waits for it.
        found: List[Address] = []
        failed: List[OSError] = []
        host, port = self.settings.host, self.settings.port

        def resolve() -> None:
            try:
                infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
                found.extend((info[0], info[4]) for info in infos)
            except OSError as error:
                failed.append(error)

        thread = threading.Thread(target=resolve, name="fluxgate-resolve", daemon=True)
        thread.start()
        thread.join(_remaining(end))
        if failed:
            raise failed[0]
        if thread.is_alive() or not found:
            raise DeadlineExceeded
        self._addresses, self._addresses_until = found, time.monotonic() + _ADDRESSES_FOR
        return found

    def _after_fork(self) -> None:
        # The parent goes on using its connections; here they are only closed.
        idle, self._idle = self._idle, []
        self._lock = threading.Lock()
        for connection in idle:
            connection.close()


_transports: weakref.WeakSet[Transport] = weakref.WeakSet()


def _after_fork() -> None:
    for transport in list(_transports):
        transport._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
