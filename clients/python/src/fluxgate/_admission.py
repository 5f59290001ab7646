"""Decides requests for middleware: the check, the wait, and the hold of an admitted request."""

from __future__ import annotations

import threading
from typing import Any, Awaitable, Callable, Dict, Optional, Union

from ._async_client import AsyncClient
from ._calls import SETTLE, hold_body, log
from ._client import Client
from ._decision import TOO_LARGE, Decision
from ._errors import InvalidRequest
from ._filter import Permits
from ._holds import KeptHold

AnyClient = Union[Client, AsyncClient]


class Admitted:
    """A decided request, and its hold if it has one.

    The hold is settled as reserved when the response has ended: a release would return the units
    of other rules that the request was charged.
    """

    __slots__ = ("_client", "_kept", "decision")

    def __init__(self, client: AnyClient, decision: Decision, kept: Optional[KeptHold]) -> None:
        self.decision = decision
        self._client = client
        self._kept = kept

    @property
    def is_held(self) -> bool:
        """Whether a hold is to be ended."""
        return self._kept is not None

    def end(self) -> None:
        """Ends the hold, once."""
        kept, self._kept = self._kept, None
        if kept is not None and isinstance(self._client, Client):
            self._client._keeper.drop(kept)
            self._client._finish(SETTLE, hold_body(kept.id), kept.expires)

    async def end_async(self) -> None:
        """Ends the hold, once."""
        kept, self._kept = self._kept, None
        if kept is not None and isinstance(self._client, AsyncClient):
            self._client._state().drop(kept)
            await self._client._finish(SETTLE, hold_body(kept.id), kept.expires)


class Admission:
    """The decisions of one middleware."""

    def __init__(self, client: AnyClient, permits: Permits) -> None:
        if not isinstance(client, (Client, AsyncClient)):
            raise TypeError(f"client is a Client or an AsyncClient, not {client!r}")
        self._client = client
        self._permits = permits
        self._settings = client._settings
        self._has_warned = False

    def decide(self, body: Dict[str, Any]) -> Admitted:
        """Decides a request, and waits if it must."""
        client = blocking(self._client)
        permit = _Permit(self._permits)
        try:
            decision = client._check(body)
            if decision.delay <= 0 and decision.hold is None:
                return Admitted(client, decision, None)
            decision, kept = client._wait(body, decision, None, permit.take)
        except InvalidRequest as error:
            decision, kept = self._instead(error), None
        finally:
            permit.give_back()
        return Admitted(client, decision, kept)

    async def decide_async(
        self, body: Dict[str, Any], sleep: Callable[[float], Awaitable[Any]]
    ) -> Admitted:
        """Decides a request, and waits if it must."""
        client = for_asyncio(self._client)
        permit = _Permit(self._permits)
        try:
            decision = await client._check(body)
            if decision.delay <= 0 and decision.hold is None:
                return Admitted(client, decision, None)
            decision, kept = await client._wait(body, decision, None, permit.take, sleep)
        except InvalidRequest as error:
            decision, kept = self._instead(error), None
        finally:
            permit.give_back()
        return Admitted(client, decision, kept)

    async def close_derived(self) -> None:
        """Closes what a client that was derived for asyncio has on this event loop."""
        if isinstance(self._client, Client) and self._client._derived is not None:
            await self._client._derived.close()

    @staticmethod
    def too_large() -> Decision:
        """Returns the decision on a request whose headers do not fit into a call."""
        return TOO_LARGE

    def _instead(self, error: InvalidRequest) -> Decision:
        """Decides a request that the service rejects: the program is wrong, not its client."""
        if not self._has_warned:
            self._has_warned = True
            url, effect = self._settings.url, self._settings.effect
            log.error(
                "FluxGate at %s rejects the calls of the middleware: %s; %s", url, error, effect
            )
        return self._settings.instead(error)


_deriving = threading.Lock()


def blocking(client: AnyClient) -> Client:
    """Returns a client that blocks: this one, or one derived from it."""
    if isinstance(client, Client):
        return client
    if client._derived is not None:
        return client._derived
    with _deriving:
        if client._derived is None:
            client._derived = Client._with(client._settings)
        return client._derived


def for_asyncio(client: AnyClient) -> AsyncClient:
    """Returns a client for asyncio: this one, or one derived from it."""
    if isinstance(client, AsyncClient):
        return client
    if client._derived is not None:
        return client._derived
    with _deriving:
        if client._derived is None:
            client._derived = AsyncClient._with(client._settings)
        return client._derived


class _Permit:
    """A permit to wait, if one was needed."""

    __slots__ = ("_is_taken", "_permits")

    def __init__(self, permits: Permits) -> None:
        self._permits = permits
        self._is_taken = False

    def take(self) -> bool:
        self._is_taken = self._permits.take()
        return self._is_taken

    def give_back(self) -> None:
        if self._is_taken:
            self._permits.give_back()
