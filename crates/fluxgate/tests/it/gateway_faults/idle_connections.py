"""Opens many connections and sends a request over every other one.

Prints `open`, waits for a line, then sends a request over each connection and prints
how many were answered.

    idle_connections.py ADDRESS COUNT
"""

import resource
import socket
import sys

host, port = sys.argv[1].rsplit(":", 1)
count = int(sys.argv[2])
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
REQUEST = b"GET /idle HTTP/1.1\r\nHost: a\r\n\r\n"


def is_answered(connection):
    response = b""
    while not response.endswith(b"\r\n\r\nok"):
        piece = connection.recv(4096)
        if not piece:
            return False
        response += piece
    return response.startswith(b"HTTP/1.1 200 ")


connections = []
for number in range(count):
    connection = socket.create_connection((host, int(port)), timeout=30)
    if number % 2:
        connection.sendall(REQUEST)
        assert is_answered(connection)
    connections.append(connection)
print("open", flush=True)
sys.stdin.readline()
total = 0
for connection in connections:
    connection.sendall(REQUEST)
    total += is_answered(connection)
print(total, "answered", flush=True)
