"""Bounds on time that hold on a busy machine.

A bound is on what the client does, not on how long it waits for a processor. A thread that sleeps
all the time measures for how long this process did not run when it could have; that time does not
count. A test that fails after longer pauses than it can bear is skipped, with the reason.
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


def waited(pid):
    """Returns for how long the threads of a process have waited for a processor, at most."""
    waits = [0]
    for thread in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):
            waits.append(int(thread.read_text().split()[1]))
    return max(waits) / 1e9


@contextlib.contextmanager
def bearing(pause):
    """Skips a test that fails after this process stood still for longer than `pause`."""
    begin = time.monotonic()
    try:
        yield
    except AssertionError as error:
        worst = max(_meter.pauses(begin, time.monotonic()), default=0.0)
        if worst <= pause:
            raise
        text = f"the machine paused this test for {worst * 1000:.0f} ms: {error}"
        raise unittest.SkipTest(text) from error
