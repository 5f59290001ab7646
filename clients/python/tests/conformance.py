"""Runs clients/conformance.json: python -m tests.conformance [DOOR …] [--case TEXT]

The doors are the two clients and each framework. Cases run side by side, since most of their time
is sleep. One that fails after the machine delayed it for longer than it bears is skipped, with the
reason.
"""

from __future__ import annotations

import argparse
import asyncio
import concurrent.futures
import contextlib
import faulthandler
import json
import re
import signal
import sys
import threading
import time
import traceback

import fluxgate

from . import apps, stalls
from .service import CONFORMANCE, HOST, FaultProxy, RawRequest, Service

# What a door cannot do, with the reason.
LACKS = {
    # The gateway itself, which the clients refuse like.
    "gateway": {},
    "client": {},
    "async": {},
    "asgi": {},
    "fastapi": {"raw_methods": "FastAPI answers 405 before its dependencies run"},
    "wsgi": {
        "raw_headers": "a WSGI server joins header lines, and folds names",
        "disconnect": "a WSGI server does not say that a client has left",
    },
    "flask": {
        "raw_headers": "a WSGI server joins header lines, and folds names",
        "disconnect": "a WSGI server does not say that a client has left",
    },
}
# Only the main thread of Python can be interrupted.
IN_MAIN_THREAD = "interrupt"


class Delayed(Exception):
    """A case that failed after the machine delayed it for longer than it bears."""


class Mismatch(Exception):
    pass


def main():
    # A hang shows where it is.
    faulthandler.dump_traceback_later(900, exit=True)
    parser = argparse.ArgumentParser()
    parser.add_argument("doors", nargs="*", default=[])
    parser.add_argument("--case", default="")
    parser.add_argument("--jobs", type=int, default=8)
    options = parser.parse_args()
    doors = options.doors or list(LACKS)
    work, skipped, alone = [], {}, []
    for door in doors:
        kind = "client" if door in ("client", "async") else "http"
        for case in CONFORMANCE["cases"]:
            if case["kind"] != kind or options.case not in case["name"]:
                continue
            if door == "gateway" and not is_of_gateway(case):
                continue
            needs = [need for need in case.get("needs", []) if need in LACKS[door]]
            if needs:
                skipped.setdefault((door, LACKS[door][needs[0]]), []).append(case["name"])
            elif IN_MAIN_THREAD in case.get("needs", []) and door == "client":
                alone.append((door, case))
            else:
                work.append((door, case))
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        errors = list(pool.map(lambda item: run_case(*item), work))
    errors += [run_case(*item) for item in alone]
    passed, failed, delayed = 0, 0, 0
    for (door, case), error in zip(work + alone, errors):
        if error is None:
            passed += 1
        elif isinstance(error, Delayed):
            delayed += 1
            print(f"skipped {door}: {case['name']}: {error}")
        else:
            failed += 1
            print(f"FAILED {door}: {case['name']}\n{error}")
    for (door, reason), names in skipped.items():
        print(f"{door}: {len(names)} skipped: {reason}")
    print(f"conformance: {passed} passed, {failed} failed, {delayed} skipped on a busy machine")
    sys.exit(1 if failed or not passed else 0)


def is_of_gateway(case):
    """Returns whether the gateway can run a case, and answers like middleware."""
    has_faults = {"service", "client"} & set(case) or any("asked" in it for it in case["steps"])
    # It does not start without its rule set, and drops headers that middleware can only refuse.
    is_other = case["middleware"]["rule_set"] == "unknown" or "alike_names" in case.get("needs", [])
    return not has_faults and not is_other


def run_case(door, case):
    """Runs a case. Returns the reason if it fails, or None."""
    delayed = 0.0
    try:
        with Run(door, case) as run:
            delay = stalls.Delay(run.service)
            try:
                for at, step in enumerate(case["steps"]):
                    try:
                        run.step(step)
                    except Mismatch as error:
                        raise Mismatch(f"step {at}: {error}\n    {json.dumps(step)}") from None
            finally:
                delayed = delay.total() * 1000
    except Mismatch as error:
        if "bears_ms" not in case or delayed <= case["bears_ms"]:
            return str(error)
        return Delayed(f"the machine delayed it for {delayed:.0f} ms: {error}")
    except Exception:
        return traceback.format_exc()
    return None


class Run:
    """A case with its service, proxy, client and server."""

    def __init__(self, door, case):
        self.door = door
        self.case = case
        self.holds = {}
        self.requests = {}
        self.runs = apps.Runs()

    def __enter__(self):
        # If something does not start, what has started is closed.
        with contextlib.ExitStack() as stack:
            config = "\n".join(CONFORMANCE["configs"][self.case.get("config", "main")])
            if self.door == "gateway":
                self.start_gateway(stack, config)
            else:
                self.start(stack, config)
            stack.callback(self.abort_requests)
            self.started = stack.pop_all()
        return self

    def __exit__(self, *_):
        self.started.close()

    def start(self, stack, config):
        case = self.case
        self.service = stack.enter_context(Service(config))
        self.proxy = FaultProxy(self.service.port, case.get("service", "up"))
        stack.callback(self.proxy.close)
        settings = {"deadline_ms": 10_000, "on_error": "allow", **case.get("client", {})}
        options = {"on_error": settings["on_error"], "deadline": settings["deadline_ms"] / 1000}
        self.client = stack.enter_context(fluxgate.Client(self.proxy.url, **options))
        if self.door == "async":
            self.loop = asyncio.new_event_loop()
            self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
            self.thread.start()
            self.async_client = fluxgate.AsyncClient(self.proxy.url, **options)
            stack.callback(self.stop_loop)
        if case["kind"] == "http":
            make = getattr(apps, self.door)
            self.server = make(self.client, dict(case["middleware"]), self.runs)
            stack.callback(self.server.close)

    def start_gateway(self, stack, config):
        """Lets the gateway limit the requests, with the middleware's settings as its filter."""
        upstream = apps.Werkzeug(apps.wsgi_app(self.runs))
        stack.callback(upstream.close)
        route = {"id": "all", "upstreams": [f"http://{HOST}:{upstream.port}"], "filters": ["main"]}
        gateway = {"filters": {"main": self.case["middleware"]}, "gateway": {"routes": [route]}}
        # JSON is YAML.
        parts = [f"{name}: {json.dumps(value)}" for name, value in gateway.items()]
        config = config.replace("{ api: ", '{ gateway: "${GATEWAY}", api: ')
        self.service = stack.enter_context(Service("\n".join([config, *parts])))
        self.client = stack.enter_context(fluxgate.Client(self.service.url, deadline=10))
        self.server = apps.Server(self.service.gateway_port, None)

    def abort_requests(self):
        for request in self.requests.values():
            request.abort()

    def stop_loop(self):
        self.await_(self.async_client.close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()

    def await_(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(60)

    def step(self, step):
        for _ in range(step.get("times", 1)):
            begin = time.monotonic()
            self.one(step)
            end = time.monotonic()
            if "elapsed_ms" in step:
                low, high = step["elapsed_ms"]
                took, ran = (end - begin) * 1000, stalls.elapsed(begin, end) * 1000
                # A timer may end slightly early.
                if took < low - 5 or ran > high:
                    raise Mismatch(f"took {ran:.0f} of {took:.0f} ms, expected {low} to {high}")

    def one(self, step):
        if "call" in step:
            self.call(step)
        elif "start" in step:
            self.requests[step["start"]] = self.send(step["request"])
        elif "request" in step:
            runs = self.runs.count
            self.expect_response(self.send(step["request"]).response(), step["expect"], runs)
        elif "finish" in step:
            response = self.requests.pop(step["finish"]).response()
            self.expect_response(response, step.get("expect", {}), None)
        elif "abort" in step:
            self.requests.pop(step["abort"]).abort()
        elif "service" in step:
            self.proxy.set_mode(step["service"])
        elif "sleep_ms" in step:
            time.sleep(step["sleep_ms"] / 1000)
            if "slots_held" in step:
                self.wait_for_slots(step["slots_held"])
        elif "asked" in step:
            expect(self.proxy.asked(), step["asked"], "asked")
        elif "handler_runs" in step:
            expect(self.runs.count, step["handler_runs"], "handler_runs")
        else:
            raise Mismatch("unknown step")

    def wait_for_slots(self, count):
        end = time.monotonic() + 0.4
        while (held := self.service.metric("fluxgate_slots_held")) != count:
            if time.monotonic() > end:
                raise Mismatch(f"{held} slots are held, expected {count}")
            time.sleep(0.01)

    def send(self, request):
        method, headers = request.get("method", "GET"), request.get("headers", [])
        return RawRequest(self.server.port, method, request["path"], headers)

    def expect_response(self, response, expected, runs):
        status, headers, body = response
        actual = {"status": status, "headers": headers, "text": body.decode("utf-8", "replace")}
        if runs is not None:
            actual["handler_ran"] = self.runs.count > runs
        elif "handler_ran" in expected:
            actual["handler_ran"] = self.runs.count > 0
        if "body" in expected:
            try:
                actual["body"] = json.loads(body)
            except ValueError:
                actual["body"] = None
        expect(actual, expected, "response")

    def call(self, step):
        try:
            actual = self.perform(step)
        except fluxgate.Denied as error:
            actual = {"error": "denied", "decision": decision(error.decision)}
        except fluxgate.InvalidRequest as error:
            actual = {"error": "invalid", "status": error.status}
        except fluxgate.Unavailable:
            actual = {"error": "unavailable"}
        except fluxgate.HoldEnded:
            actual = {"error": "ended"}
        except (KeyboardInterrupt, concurrent.futures.CancelledError):
            actual = {"error": "interrupted"}
        expected = step.get("expect", {})
        if "error" in actual and "error" not in expected:
            raise Mismatch(f"unexpected {actual}")
        expect(actual, expected, step["call"])

    def perform(self, step):
        call, args = step["call"], dict(step["args"])
        is_async = self.door == "async"
        client = self.async_client if is_async else self.client

        def done(result):
            return self.await_(result) if is_async else result

        for name in ("max_wait", "hold"):
            if f"{name}_ms" in args:
                target = "hold_for" if name == "hold" else name
                args[target] = args.pop(f"{name}_ms") / 1000
        if call == "wait" and "interrupt_after_ms" in step:
            after = step["interrupt_after_ms"] / 1000
            if is_async:
                future = asyncio.run_coroutine_threadsafe(client.wait(**args), self.loop)
                threading.Timer(after, future.cancel).start()
                return decision(future.result())
            signal.signal(signal.SIGALRM, interrupt)
            signal.setitimer(signal.ITIMER_REAL, after)
            return decision(client.wait(**args))
        if call in ("check", "peek", "wait"):
            return decision(done(getattr(client, call)(**args)))
        if call == "batch":
            return {"decisions": [decision(it) for it in done(client.batch(args["checks"]))]}
        if call == "consume":
            result = done(client.consume(**args))
            return {
                "allowed": result.allowed,
                "remaining": result.remaining,
                "retry_after_ms": millis(result.retry_after),
                "outcome": result.outcome,
            }
        if call == "hold":
            hold = done(take(client, args)) if is_async else client.hold(**args)
            self.holds[step.get("as")] = hold
            return decision(hold.decision)
        hold = self.holds[args.pop("hold")]
        if call == "settle":
            settled = done(hold.settle(**args))
            return {"charged": settled.charged, "uncharged": settled.uncharged}
        if call == "renew":
            return {"renewed": done(hold.renew())}
        if call == "release":
            return {"released": done(hold.release())}
        if call == "leave":
            if is_async:
                done(hold.__aexit__(None, None, None))
            else:
                hold.__exit__(None, None, None)
            return {}
        raise Mismatch("unknown call")


async def take(client, args):
    return await client.hold(**args)


def interrupt(*_):
    raise KeyboardInterrupt


def decision(it):
    """Returns a decision in the form of the file."""
    return {
        "allowed": it.allowed,
        "outcome": it.outcome,
        "rule": it.rule,
        "band": it.band,
        "limit": it.limit,
        "remaining": it.remaining,
        "retry_after_ms": millis(it.retry_after),
        "reset_after_ms": millis(it.reset_after),
        "delay_ms": millis(it.delay),
        "violated": list(it.violated),
        "status": it.status,
        "headers": {name.lower(): value for name, value in it.headers.items()},
    }


def millis(seconds):
    return None if seconds is None else round(seconds * 1000)


def expect(actual, expected, where):
    """Compares a value with an expectation."""
    if isinstance(expected, dict) and set(expected) == {"regex"}:
        if not isinstance(actual, str) or not re.search(expected["regex"], actual):
            raise Mismatch(f"{where} is {actual!r}, expected {expected}")
    elif isinstance(expected, dict) and set(expected) == {"between"}:
        low, high = expected["between"]
        if not isinstance(actual, (int, float)) or not low <= actual <= high:
            raise Mismatch(f"{where} is {actual!r}, expected {low} to {high}")
    elif isinstance(expected, dict):
        if not isinstance(actual, dict):
            raise Mismatch(f"{where} is {actual!r}, expected {expected}")
        for name, value in expected.items():
            # Names of headers are in any case.
            key = name.lower() if where.endswith("headers") else name
            expect(actual.get(key), value, f"{where}.{name}")
    elif isinstance(expected, list):
        if not isinstance(actual, list) or len(actual) != len(expected):
            raise Mismatch(f"{where} is {actual!r}, expected {expected}")
        for at, (one, other) in enumerate(zip(actual, expected)):
            expect(one, other, f"{where}[{at}]")
    elif actual != expected:
        raise Mismatch(f"{where} is {actual!r}, expected {expected!r}")


if __name__ == "__main__":
    main()
