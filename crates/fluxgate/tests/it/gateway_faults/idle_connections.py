"""Opens many connections: every other has asked something, the rest nothing.

Says `open`, waits for a line, then asks on each of them and says how many were
answered.
"""

import resource
import socket
import sys

host, port = sys.argv[1].rsplit(":", 1)
count = int(sys.argv[2])
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
ASK = b"GET /idle HTTP/1.1\r\nHost: a\r\n\r\n"


def answered(connection):
    got = b""
    while not got.endswith(b"\r\n\r\nok"):
        piece = connection.recv(4096)
        if not piece:
            return False
        got += piece
    return got.startswith(b"HTTP/1.1 200 ")


connections = []
for number in range(count):
    connection = socket.create_connection((host, int(port)), timeout=30)
    if number % 2:
        connection.sendall(ASK)
        assert answered(connection)
    connections.append(connection)
print("open", flush=True)
sys.stdin.readline()
total = 0
for connection in connections:
    connection.sendall(ASK)
    total += answered(connection)
print(total, "answered", flush=True)
