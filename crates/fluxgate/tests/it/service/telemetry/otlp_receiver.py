"""An OTLP collector that writes each span, and each point of a metric, to standard error as JSON.

Requests are parsed by the official definitions of OTLP. The response to an invalid one
is 400, and the error is written too.
"""

import base64
import json
import string
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
)


def write(line):
    # In one piece: requests are answered by threads.
    sys.stderr.write(json.dumps(line) + "\n")
    sys.stderr.flush()


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


def values(pairs):
    """Returns attributes as a dictionary."""
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


class Collector(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            text = json.dumps(as_proto3(json.loads(body)))
            if self.path.endswith("/metrics"):
                self.write_metrics(json_format.Parse(text, ExportMetricsServiceRequest()))
            else:
                self.write_spans(json_format.Parse(text, ExportTraceServiceRequest()))
            self.send_response(200)
        except Exception as error:
            write({"error": repr(error), "body": body.decode(errors="replace")})
            self.send_response(400)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def write_spans(self, request):
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                for span in scope.spans:
                    self.write_span(resource.resource, scope.scope, span)

    def write_metrics(self, request):
        for resource in request.resource_metrics:
            for scope in resource.scope_metrics:
                names = [metric.name for metric in scope.metrics]
                assert len(set(names)) == len(names), names
                for metric in scope.metrics:
                    self.write_metric(resource.resource, scope.scope, metric)

    def write_metric(self, resource, scope, metric):
        kind = metric.WhichOneof("data")
        data = getattr(metric, kind)
        if kind != "gauge":
            assert data.aggregation_temporality == 2, metric
        for point in data.data_points:
            line = {
                "metric": metric.name,
                "unit": metric.unit,
                "kind": kind,
                "path": self.path,
                "scope": scope.name,
                "resource": values(resource.attributes),
                "attributes": values(point.attributes),
                "start": point.start_time_unix_nano,
                "time": point.time_unix_nano,
            }
            if kind == "histogram":
                assert len(point.bucket_counts) == len(point.explicit_bounds) + 1, point
                assert sum(point.bucket_counts) == point.count, point
                line |= {"count": point.count, "sum": point.sum}
            else:
                line["value"] = getattr(point, point.WhichOneof("value"))
            write(line)

    def write_span(self, resource, scope, span):
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
