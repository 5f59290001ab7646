"""Asks once over HTTP/2, with so many headers of so many bytes each, and prints the status.

    large_head.py ADDRESS HEADERS BYTES
"""

import socket
import sys

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ResponseReceived

host, port = sys.argv[1].rsplit(":", 1)
count, length = int(sys.argv[2]), int(sys.argv[3])
connection = H2Connection(H2Configuration(client_side=True, header_encoding="ascii"))
stream = socket.create_connection((host, int(port)), 20)
connection.initiate_connection()
headers = [
    (":method", "GET"),
    (":path", "/livez"),
    (":scheme", "http"),
    (":authority", sys.argv[1]),
]
headers += [(f"x-{number}", "a" * length) for number in range(count)]
connection.send_headers(1, headers, end_stream=True)
stream.sendall(connection.data_to_send())
while True:
    received = stream.recv(65536)
    if not received:
        sys.exit("the connection ended without an answer")
    for event in connection.receive_data(received):
        if isinstance(event, ResponseReceived):
            print(dict(event.headers)[":status"])
            sys.exit()
