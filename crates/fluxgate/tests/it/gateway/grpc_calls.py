"""A gRPC service and its client, which share no code with the gateway.

    grpc_calls.py serve            prints its address, and serves until its input ends
    grpc_calls.py call ADDRESS     makes calls of every kind, and prints a line for each that is as expected
    grpc_calls.py status ADDRESS   makes one call, and prints its code, message and trailing metadata as JSON
"""

import json
import sys
import threading
import time
from concurrent import futures

import grpc

BIG = 10 * 1024 * 1024
OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
DETAILS = "grpc-status-details-bin"
MESSAGE = "50% of é\n"
# A `google.rpc.Status` with the same code and message, as grpc-go demands.
STATUS = b"\x08\x09\x12\x0a" + MESSAGE.encode()
cancelled = threading.Event()


def echo(request, context):
    sent = dict(context.invocation_metadata())
    context.send_initial_metadata([("x-initial", sent.get("x-sent", "")), ("x-initial-bin", sent.get("x-sent-bin", b""))])
    context.set_trailing_metadata([("x-trailing", "t"), ("x-trailing-bin", b"\x00\xff")])
    return request


def count(request, context):
    for number in range(int(request)):
        yield str(number).encode()


def add(requests, context):
    return str(sum(int(request) for request in requests)).encode()


def converse(requests, context):
    for request in requests:
        yield request + b"!"


def remaining(request, context):
    return str(context.time_remaining()).encode()


def sleep(request, context):
    time.sleep(5)
    return b""


def endless(request, context):
    context.add_callback(cancelled.set)
    while context.is_active():
        yield b"x" * 1000
        time.sleep(0.01)


def was_cancelled(request, context):
    return str(cancelled.wait(10)).encode()


def fail(request, context):
    context.set_trailing_metadata([(DETAILS, STATUS)])
    context.abort(grpc.StatusCode.FAILED_PRECONDITION, MESSAGE)


class Service(grpc.GenericRpcHandler):
    HANDLERS = {
        "Echo": grpc.unary_unary_rpc_method_handler(echo),
        "Count": grpc.unary_stream_rpc_method_handler(count),
        "Add": grpc.stream_unary_rpc_method_handler(add),
        "Converse": grpc.stream_stream_rpc_method_handler(converse),
        "Remaining": grpc.unary_unary_rpc_method_handler(remaining),
        "Sleep": grpc.unary_unary_rpc_method_handler(sleep),
        "Endless": grpc.unary_stream_rpc_method_handler(endless),
        "WasCancelled": grpc.unary_unary_rpc_method_handler(was_cancelled),
        "Fail": grpc.unary_unary_rpc_method_handler(fail),
    }

    def service(self, details):
        return self.HANDLERS.get(details.method.removeprefix("/test.Service/"))


def serve():
    server = grpc.server(futures.ThreadPoolExecutor(16), options=OPTIONS)
    server.add_generic_rpc_handlers([Service()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(f"127.0.0.1:{port}", flush=True)
    sys.stdin.read()
    server.stop(0)


def expect(what, condition, seen):
    if not condition:
        print(f"{what}: {seen!r}", flush=True)
        sys.exit(1)
    print(what, flush=True)


def error_of(call, *arguments, **options):
    try:
        return call(*arguments, **options)
    except grpc.RpcError as error:
        return error


def call(address):
    channel = grpc.insecure_channel(address, options=OPTIONS)
    path = "/test.Service/{}".format
    unary = lambda name: channel.unary_unary(path(name))

    sent = [("x-sent", "s"), ("x-sent-bin", b"\x00\x01")]
    answer, details = unary("Echo").with_call(b"hello", metadata=sent, timeout=10)
    initial, trailing = dict(details.initial_metadata()), dict(details.trailing_metadata())
    seen = (answer, initial.get("x-initial"), initial.get("x-initial-bin"), trailing)
    wanted = (b"hello", "s", b"\x00\x01", {"x-trailing": "t", "x-trailing-bin": b"\x00\xff"})
    expect("unary", seen == wanted, seen)

    big = bytes(range(256)) * (BIG // 256)
    answer = unary("Echo")(big, timeout=60)
    expect("large", answer == big, len(answer))

    numbers = list(channel.unary_stream(path("Count"))(b"500", timeout=30))
    expect("server streaming", numbers == [str(n).encode() for n in range(500)], numbers)

    total = channel.stream_unary(path("Add"))((str(n).encode() for n in range(500)), timeout=30)
    expect("client streaming", total == str(sum(range(500))).encode(), total)

    turns = threading.Semaphore(0)

    def words():
        for word in (b"to", b"and", b"fro"):
            yield word
            turns.acquire()

    heard = []
    for word in channel.stream_stream(path("Converse"))(words(), timeout=30):
        heard.append(word)
        turns.release()
    expect("both streaming", heard == [b"to!", b"and!", b"fro!"], heard)

    left = float(unary("Remaining")(b"", timeout=7))
    # The library rounds it up.
    expect("deadline is passed on", 5 < left < 8, left)
    error = error_of(unary("Sleep"), b"", timeout=0.3)
    expect("deadline", error.code() == grpc.StatusCode.DEADLINE_EXCEEDED, error)

    stream = channel.unary_stream(path("Endless"))(b"")
    next(stream)
    stream.cancel()
    expect("cancelled", unary("WasCancelled")(b"", timeout=20) == b"True", "no")

    error = error_of(unary("Fail"), b"", timeout=10)
    seen = (error.code(), error.details(), dict(error.trailing_metadata()).get(DETAILS))
    wanted = (grpc.StatusCode.FAILED_PRECONDITION, MESSAGE, STATUS)
    expect("details", seen == wanted, seen)

    error = error_of(unary("Unknown"), b"", timeout=10)
    expect("unknown", error.code() == grpc.StatusCode.UNIMPLEMENTED, error)


def status(address):
    with grpc.insecure_channel(address) as channel:
        error = error_of(channel.unary_unary("/test.Service/Echo"), b"hello", timeout=20)
        if isinstance(error, bytes):
            print(json.dumps({"code": 0}))
            return
        metadata = {name: value for name, value in error.trailing_metadata() if isinstance(value, str)}
        initial = {name: value for name, value in error.initial_metadata() if isinstance(value, str)}
        code = error.code().value[0]
        print(json.dumps({"code": code, "message": error.details(), "metadata": initial | metadata}))


match sys.argv[1]:
    case "serve":
        serve()
    case "call":
        call(sys.argv[2])
    case "status":
        status(sys.argv[2])
