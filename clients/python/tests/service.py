"""A real service, a proxy with faults in front of it, and raw HTTP requests."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
BINARY = os.environ.get("FLUXGATE") or str(ROOT / "target/debug/fluxgate")
CONFORMANCE = json.loads((ROOT / "clients/conformance.json").read_text())

_PID = os.getpid()
#: A loopback address of this process. On 127.0.0.1 another process could take a port that is free
#: before a service listens on it, or while it restarts.
HOST = f"127.{1 + (_PID >> 16)}.{_PID >> 8 & 255}.{_PID & 255}"
_ports = itertools.count(10_000)


def free_port():
    """Returns a port of HOST that is given to nothing else. The kernel only gives higher ones."""
    return next(_ports)


class Service:
    """The binary with a config. `${API}` and `${GATEWAY}` become free addresses."""

    def __init__(self, config):
        self.port = free_port()
        self.gateway_port = free_port()
        self.url = f"http://{HOST}:{self.port}"
        self.folder = tempfile.mkdtemp(prefix="fluxgate-")
        config = config.replace("${API}", f"{HOST}:{self.port}")
        config = config.replace("${GATEWAY}", f"{HOST}:{self.gateway_port}")
        Path(self.folder, "config.yaml").write_text(config)
        self._start()

    def _start(self):
        with open(Path(self.folder, "log"), "ab") as log:
            self.process = subprocess.Popen(
                [BINARY, "run", "--config", "config.yaml"],
                cwd=self.folder,
                stdout=log,
                stderr=log,
            )
        end = time.monotonic() + 60
        while True:
            try:
                with urllib.request.urlopen(f"{self.url}/livez", timeout=1):
                    return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > end:
                    text = Path(self.folder, "log").read_text()
                    self.close()
                    raise RuntimeError(f"{BINARY} does not start: {text}") from None
                time.sleep(0.005)

    def restart(self):
        """Ends the process and starts another."""
        self._stop()
        self._start()

    def metric(self, name):
        """Returns the sum of a metric."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=5) as response:
            text = response.read().decode()
        lines = re.findall(rf"^{name}(?:\{{.*\}})? (\S+)$", text, re.M)
        return sum(float(line) for line in lines)

    def _stop(self):
        self.process.kill()
        self.process.wait()

    def close(self):
        self._stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class FaultProxy:
    """Stands between a client and the service. The modes are those of clients/README.md."""

    def __init__(self, target, mode="up", host=HOST):
        self._target = target
        self._host = host
        self._lock = threading.Lock()
        self._connections = set()
        self._listener = None
        self._asked = 0
        self.mode = "up"
        self.port = free_port() if host == HOST else 0
        self.set_mode(mode)

    @property
    def url(self):
        return f"http://{self._host}:{self.port}"

    def set_mode(self, mode):
        if mode in ("down", "restart"):
            self._stop_listening()
        if mode == "restart":
            time.sleep(0.2)
            mode = "up"
        self.mode = mode
        if mode != "down" and self._listener is None:
            listener = socket.socket()
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((self._host, self.port))
            listener.listen(512)
            self.port = listener.getsockname()[1]
            self._listener = listener
            threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def asked(self):
        """Returns how many requests came since the last call."""
        with self._lock:
            asked, self._asked = self._asked, 0
            return asked

    def connections(self):
        """Returns how many connections are open."""
        with self._lock:
            return len(self._connections)

    def close(self):
        self._stop_listening()

    def _stop_listening(self):
        listener, self._listener = self._listener, None
        if listener is not None:
            # `shutdown` wakes the thread that accepts.
            try:
                listener.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            listener.close()
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            _shut(connection)

    def _accept(self, listener):
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with self._lock:
                self._connections.add(client)
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        server = None
        try:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while True:
                data = client.recv(65536)
                if not data:
                    return
                with self._lock:
                    self._asked += data.count(b"POST /v1/")
                mode = self.mode
                if mode == "down":
                    return
                if mode == "reset":
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    return
                if mode == "garbage":
                    return client.sendall(b"garbage\r\n\r\n")
                if mode == "cut":
                    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                    return client.sendall(head + b"Content-Length: 100\r\n\r\n" + b'{"allowed"')
                if mode == "error":
                    head = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 4\r\n\r\n"
                    client.sendall(head + b"oops")
                    continue
                if mode == "slow":
                    time.sleep(1)
                if server is None:
                    server = socket.create_connection((HOST, self._target))
                    server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    with self._lock:
                        self._connections.add(server)
                    threading.Thread(
                        target=self._answer, args=(server, client), daemon=True
                    ).start()
                server.sendall(data)
        except OSError:
            pass
        finally:
            self._drop(client)
            if server is not None:
                _shut(server)

    def _answer(self, server, client):
        try:
            while True:
                data = server.recv(65536)
                if not data or self.mode == "swallow":
                    return
                client.sendall(data)
        except OSError:
            pass
        finally:
            _shut(client)
            self._drop(server)

    def _drop(self, sock):
        with self._lock:
            self._connections.discard(sock)
        sock.close()


def _shut(sock):
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass


class RawRequest:
    """A request that is sent exactly as it stands."""

    def __init__(self, port, method, path, headers):
        self._sock = socket.create_connection((HOST, port), timeout=30)
        lines = [f"{method} {path} HTTP/1.1", "Host: localhost"]
        if method in ("POST", "PUT", "PATCH"):
            lines.append("Content-Length: 0")
        lines += [f"{name}: {value}" for name, value in headers]
        lines += ["Connection: close", "", ""]
        self._sock.sendall("\r\n".join(lines).encode("latin-1"))

    def response(self):
        """Returns status, headers by their names in lower case, and the body."""
        data = b""
        try:
            while True:
                part = self._sock.recv(65536)
                if not part:
                    break
                data += part
        except ConnectionResetError:
            pass
        self._sock.close()
        head, _, body = data.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        status = int(first.split(" ")[1]) if first.startswith("HTTP/") else None
        headers = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        if headers.get("transfer-encoding", "").lower() == "chunked":
            body = _unchunked(body)
        return status, headers, body

    def abort(self):
        """Closes the connection."""
        self._sock.close()


def _unchunked(data):
    body = b""
    while data:
        size, _, rest = data.partition(b"\r\n")
        count = int(size or b"0", 16)
        if not count:
            break
        body += rest[:count]
        data = rest[count + 2 :]
    return body
