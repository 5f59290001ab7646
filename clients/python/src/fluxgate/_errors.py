"""The exceptions of this package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

if TYPE_CHECKING:
    from ._decision import Decision


class FluxGateError(Exception):
    """The base of all exceptions of this package."""


class Denied(FluxGateError):
    """A hold was denied. `decision` says why, and when to try again."""

    def __init__(self, decision: Decision) -> None:
        super().__init__(_why(decision))
        self.decision = decision


class Unavailable(FluxGateError):
    """The service did not answer within the deadline, or not with a decision.

    Raised if `on_error` is `raise`, and by calls that `on_error` cannot decide, such as a
    settlement. `__cause__` has the error of the connection, if there was one.
    """


class InvalidRequest(FluxGateError):
    """The service rejected the call: an unknown rule, an address that is none, a wrong URL.

    This is an error of the program. It is raised even if `on_error` is not `raise`.
    """

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(f"the service answers {status}: {detail}")
        self.status = status
        self.detail = detail


class HoldEnded(FluxGateError):
    """The hold was settled, released or has expired."""


def _why(decision: Decision) -> str:
    limits = ", ".join(decision.violated) or decision.outcome
    retry: Optional[float] = decision.retry_after
    when = "never passes" if retry is None else f"retry after {retry:.3f} s"
    return f"denied by {limits}; {when}"
