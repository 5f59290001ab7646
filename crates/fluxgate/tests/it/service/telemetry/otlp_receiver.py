"""An OTLP collector that writes each span to standard error as JSON.

Requests are parsed by the official definitions of OTLP. The response to an invalid one
is 400, and the error is written too.
"""

import base64
import json
import string
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
)


def write(line):
    print(json.dumps(line), file=sys.stderr, flush=True)


def as_proto3(value, name=None):
    """Converts ids from hexadecimal, as OTLP has them, to base64, as proto3 JSON has them."""
    if isinstance(value, dict):
        return {key: as_proto3(item, key) for key, item in value.items()}
    if isinstance(value, list):
        return [as_proto3(item) for item in value]
    digits = {"traceId": 32, "spanId": 16, "parentSpanId": 16}.get(name)
    if digits is None:
        return value
    if len(value) != digits or set(value) - set(string.hexdigits.lower()):
        raise ValueError(f"{name} is {value!r}")
    return base64.b64encode(bytes.fromhex(value)).decode()


class Collector(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            request = ExportTraceServiceRequest()
            text = json.dumps(as_proto3(json.loads(body)))
            json_format.Parse(text, request)
            for resource in request.resource_spans:
                for scope in resource.scope_spans:
                    for span in scope.spans:
                        self.write_span(resource.resource, scope.scope, span)
            self.send_response(200)
        except Exception as error:
            write({"error": repr(error), "body": body.decode(errors="replace")})
            self.send_response(400)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def write_span(self, resource, scope, span):
        values = lambda pairs: {pair.key: pair.value.string_value for pair in pairs}
        write(
            {
                "path": self.path,
                "content_type": self.headers["Content-Type"],
                "authorization": self.headers["Authorization"],
                "resource": values(resource.attributes),
                "scope": scope.name,
                "name": span.name,
                "kind": int(span.kind),
                "trace_id": span.trace_id.hex(),
                "span_id": span.span_id.hex(),
                "parent_span_id": span.parent_span_id.hex(),
                "flags": span.flags,
                "start": span.start_time_unix_nano,
                "end": span.end_time_unix_nano,
                "attributes": values(span.attributes),
                "status": int(span.status.code),
            }
        )

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    def handle_error(self, request, client_address):
        # A service that ends does not wait long for the response to its last spans.
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


server = Server(("127.0.0.1", 0), Collector)
write({"port": server.server_port})
server.serve_forever()
