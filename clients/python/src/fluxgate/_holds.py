"""Holds, as both clients keep them: without sockets, threads or tasks."""

from __future__ import annotations

import time
from typing import Dict, List, Mapping, Optional, Tuple

from ._calls import (
    MAX_RENEWED,
    RELEASE,
    SETTLE,
    Text,
    encode,
    hold_body,
    log,
    read_renewed,
    settle_body,
    span,
)
from ._decision import Decision
from ._errors import FluxGateError, HoldEnded
from ._wire import Response


class KeptHold:
    """A hold that is renewed."""

    __slots__ = ("__weakref__", "expires", "id", "is_lost", "span")

    def __init__(self, hold: str, for_seconds: float) -> None:
        self.id = hold
        #: How long it lives after a renewal.
        self.span = for_seconds
        self.expires = time.monotonic() + for_seconds
        #: Whether the service said that it has ended.
        self.is_lost = False

    @classmethod
    def of(cls, decision: Decision) -> Optional[KeptHold]:
        """Returns the hold of a decision, if it has one."""
        if decision.hold is None or decision.hold_for is None:
            return None
        return cls(decision.hold, decision.hold_for)


class Renewals:
    """The holds that a client renews, and when. Threads need a lock around it."""

    def __init__(self) -> None:
        self._holds: Dict[str, KeptHold] = {}
        #: When they are renewed next, if there are any.
        self.due = float("inf")

    def __bool__(self) -> bool:
        return bool(self._holds)

    def add(self, hold: KeptHold) -> None:
        """Renews a hold from now on."""
        due = time.monotonic() + hold.span / 3
        # With others it only comes sooner: a short hold that comes and goes must not put them off.
        self.due = min(self.due, due) if self._holds else due
        self._holds[hold.id] = hold

    def drop(self, hold: str) -> bool:
        """Renews a hold no longer. Returns whether it was renewed."""
        return self._holds.pop(hold, None) is not None

    def take_due(self) -> List[Renewal]:
        """Returns the calls that are due, and sets when they are due again."""
        now = time.monotonic()
        if not self._holds or now < self.due:
            return []
        holds = list(self._holds.values())
        self.due = now + min(hold.span for hold in holds) / 3
        return [Renewal(holds[at : at + MAX_RENEWED]) for at in range(0, len(holds), MAX_RENEWED)]

    def failed(self, renewal: Renewal) -> None:
        """Puts the next try of a renewal earlier: it may be in time."""
        shortest = min(hold.span for hold in renewal.holds)
        self.due = min(self.due, renewal.sent_at + max(0.1, shortest / 9))

    def succeeded(self, renewal: Renewal, are_held: List[bool]) -> None:
        """Records which holds a renewal has extended."""
        for hold, is_held in zip(renewal.holds, are_held):
            if is_held:
                hold.expires = renewal.sent_at + hold.span
            elif self.drop(hold.id):
                # Otherwise it was released before the answer came.
                hold.is_lost = True
                log.warning("a hold has expired while it was in use")


class Renewal:
    """One call that renews many holds."""

    def __init__(self, holds: List[KeptHold]) -> None:
        self.holds = holds
        self.sent_at = time.monotonic()
        # All for the longest of the times. The service cuts it to what the rules allow.
        longest = max(hold.span for hold in holds)
        self.body = encode({"holds": [hold.id for hold in holds], "hold_for": span(longest)})

    def read(self, response: Response) -> List[bool]:
        """Returns for each hold whether it is still held."""
        return read_renewed(response, len(self.holds))


class OpenHold:
    """The state of a charge that is not final, whichever client has it."""

    def __init__(self, decision: Decision, kept: Optional[KeptHold]) -> None:
        self._kept = kept
        self._has_ended = kept is None
        # A settlement that failed and is repeated in place of the release.
        self._settlement: Optional[bytes] = None
        #: The decision that allowed it.
        self.decision = decision

    @property
    def id(self) -> Optional[str]:
        """The id, or None if nothing is held: no rule applies, or the service failed open."""
        return self._kept.id if self._kept is not None else None

    @property
    def is_open(self) -> bool:
        """Whether it is held, as far as is known here."""
        return not self._has_ended and self._kept is not None and not self._kept.is_lost

    def _begin_settlement(
        self, cost: Optional[int], attributes: Optional[Mapping[str, Text]]
    ) -> Optional[bytes]:
        """Returns the body of a settlement, or None if nothing is held."""
        if self._kept is None:
            return None
        if self._has_ended:
            raise HoldEnded("the hold was settled or released before")
        self._settlement = settle_body(self._kept.id, cost, attributes)
        return self._settlement

    def _reject_settlement(self, error: FluxGateError) -> None:
        """Records that the service has rejected a settlement."""
        if isinstance(error, HoldEnded):
            self._end()
        else:
            # It would be rejected again.
            self._settlement = None

    def _record_renewal(self, is_held: bool, for_seconds: float) -> None:
        if self._kept is None:
            return
        if is_held:
            self._kept.expires = time.monotonic() + for_seconds
        else:
            self._kept.is_lost = True
            self._end()

    def _last_call(self, kept: KeptHold) -> Tuple[str, bytes]:
        """Returns the call that ends the hold: a release, or the settlement that failed."""
        if self._settlement is not None:
            return SETTLE, self._settlement
        return RELEASE, hold_body(kept.id)

    def _end(self) -> None:
        """Ends the hold here: it is renewed no longer."""
        raise NotImplementedError
