"""Bounds on time that hold on a busy machine.

A bound is on what the client does, not on how long it waits for a processor. A thread that sleeps
all the time measures for how long this process did not run when it could have; that time does not
count.
"""

import contextlib
import threading
import time
import unittest
from collections import deque
from pathlib import Path

_TICK = 0.005


class _Meter(threading.Thread):
    """Records when this process should have run and did not."""

    def __init__(self):
        super().__init__(name="stalls", daemon=True)
        self._pauses = deque(maxlen=50_000)
        self._due = time.monotonic() + _TICK
        self.start()

    def run(self):
        while True:
            time.sleep(_TICK)
            now = time.monotonic()
            # A sleep always takes a little longer.
            if now > self._due + _TICK:
                self._pauses.append((self._due, now))
            self._due = now + _TICK

    def pauses(self, begin, end):
        """Returns how long each pause within this time was, the present one included."""
        present = (self._due, time.monotonic())
        for since, until in (present, *reversed(tuple(self._pauses))):
            if until <= begin:
                return
            yield max(0.0, min(end, until) - max(begin, since))


_meter = _Meter()


def stalled(begin, end=None):
    """Returns for how long this process stood still since `begin`."""
    return sum(_meter.pauses(begin, time.monotonic() if end is None else end))


def elapsed(begin, end=None):
    """Returns how long this process has run since `begin`."""
    end = time.monotonic() if end is None else end
    return end - begin - stalled(begin, end)


def _waits(pid):
    """Returns for how long each thread of a process has waited for a processor."""
    waits = {}
    for file in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):
            waits[file.parent.name] = int(file.read_text().split()[1]) / 1e9
    return waits


class Delay:
    """What the machine delays from now on: this process, and a service."""

    def __init__(self, service):
        self._begin = time.monotonic()
        self._pid = service.process.pid
        self._waits = _waits(self._pid)

    def total(self):
        """Returns for how long this process stood still, or a thread of the service."""
        waits = _waits(self._pid).items()
        since = [wait - self._waits.get(thread, 0.0) for thread, wait in waits]
        return max([stalled(self._begin), *since])


@contextlib.contextmanager
def bearing(pause):
    """Skips a test in which something must happen every `pause` seconds, if it fails after the
    machine kept this process from doing anything for longer than that, at a stretch."""
    begin = time.monotonic()
    try:
        yield
    except AssertionError as error:
        worst = max(_meter.pauses(begin, time.monotonic()), default=0.0)
        if worst <= pause:
            raise
        text = f"the machine paused this test for {worst * 1000:.0f} ms: {error}"
        raise unittest.SkipTest(text) from error
