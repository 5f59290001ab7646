"""Sends requests over several HTTP/2 connections, with several streams on each, until the
server sends GOAWAY. Prints how many streams were answered and lost.

    http2_load.py ADDRESS CONNECTIONS STREAMS
"""

import asyncio
import json
import sys

import h2.config
import h2.connection
import h2.events
import h2.exceptions

host, port = sys.argv[1].rsplit(":", 1)
connections, streams = int(sys.argv[2]), int(sys.argv[3])
totals = {"answered": 0, "lost": 0, "refused": 0, "announced": 0}
HEADERS = [(":method", "GET"), (":path", "/x"), (":scheme", "http"), (":authority", "a")]


async def send_requests():
    reader, writer = await asyncio.open_connection(host, int(port))
    connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    connection.initiate_connection()
    open_streams = {}
    last = None

    def open_stream():
        stream = connection.get_next_available_stream_id()
        connection.send_headers(stream, HEADERS, end_stream=True)
        open_streams[stream] = None

    for _ in range(streams):
        open_stream()
    while open_streams:
        try:
            writer.write(connection.data_to_send())
            await writer.drain()
            data = await asyncio.wait_for(reader.read(65536), 20)
        except OSError:
            data = b""
        if not data:
            break
        # h2 would stop reading at GOAWAY, but frames of open streams may follow.
        for event in connection.receive_data(without_goaway(data, connection)):
            if isinstance(event, h2.events.ResponseReceived):
                open_streams[event.stream_id] = dict(event.headers)[b":status"]
            elif isinstance(event, h2.events.DataReceived):
                connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, h2.events.StreamEnded):
                status = open_streams.pop(event.stream_id)
                totals["answered" if status == b"200" else "lost"] += 1
                if connection.last_stream_id is None:
                    open_stream()
            elif isinstance(event, h2.events.StreamReset):
                del open_streams[event.stream_id]
                totals["refused" if event.error_code == 7 else "lost"] += 1
        last = connection.last_stream_id
        if last is not None:
            # Streams after the last one served may be retried elsewhere.
            for stream in [stream for stream in open_streams if stream > last]:
                del open_streams[stream]
                totals["refused"] += 1
    totals["lost"] += len(open_streams)
    totals["announced"] += last is not None
    writer.close()


def without_goaway(data, connection):
    """Removes GOAWAY frames, at which h2 would close the connection, and records them."""
    pending = getattr(connection, "pending", b"") + data
    out = b""
    while len(pending) >= 9:
        size = 9 + int.from_bytes(pending[:3], "big")
        if len(pending) < size:
            break
        frame, pending = pending[:size], pending[size:]
        if frame[3] == 7:
            assert frame[13:17] == b"\0\0\0\0", f"GOAWAY with an error: {frame}"
            connection.last_stream_id = int.from_bytes(frame[9:13], "big") & 0x7FFFFFFF
        else:
            out += frame
    connection.pending = pending
    return out


h2.connection.H2Connection.last_stream_id = None


async def main():
    tasks = [asyncio.create_task(send_requests()) for _ in range(connections)]
    while totals["answered"] < connections * streams * 5:
        await asyncio.sleep(0.01)
        for task in tasks:
            if task.done():
                task.result()
    print("under load", flush=True)
    await asyncio.gather(*tasks)
    print(json.dumps(totals), flush=True)


asyncio.run(asyncio.wait_for(main(), 60))
