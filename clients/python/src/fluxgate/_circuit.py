"""Stops asking a service that fails, so that not every request pays the deadline."""

from __future__ import annotations

import threading
import time
from typing import Optional

FAILURES = 3
PAUSE = 0.5


class Circuit:
    """After three failures in a row no call is made for 500 ms, then one at a time.

    A success closes it. Every call that `admit` lets through ends with `succeeded`, `failed` or
    `abandoned`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failures = 0
        self._open_until = 0.0
        self._is_probing = False

    def admit(self) -> Optional[bool]:
        """Returns None if the service must not be asked now, else whether the call is a probe."""
        # A plain read: the common case takes no lock.
        if self._failures < FAILURES:
            return False
        with self._lock:
            if self._failures < FAILURES:
                return False
            if self._is_probing or time.monotonic() < self._open_until:
                return None
            self._is_probing = True
            return True

    @property
    def is_open(self) -> bool:
        """Whether the service failed the last calls."""
        return self._failures >= FAILURES

    def succeeded(self) -> bool:
        """Records an answer. Returns whether the service had failed before."""
        if not self._failures:
            return False
        with self._lock:
            had_failed = self._failures > 0
            self._failures = 0
            self._is_probing = False
            return had_failed

    def failed(self, is_probe: bool) -> bool:
        """Records a failure. Returns whether it is the first in a row."""
        with self._lock:
            self._failures += 1
            # A call that began before the circuit opened must not keep it open for longer.
            if self._failures == FAILURES or is_probe:
                self._open_until = time.monotonic() + PAUSE
                self._is_probing = False
            return self._failures == 1

    def abandoned(self, is_probe: bool) -> None:
        """Records a call that ended without a result, such as one that was cancelled."""
        if is_probe:
            with self._lock:
                self._is_probing = False
