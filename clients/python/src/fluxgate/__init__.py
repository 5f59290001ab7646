"""A client of FluxGate, the distributed rate limiter.

    from fluxgate import Client

    fg = Client("http://127.0.0.1:8081", on_error="allow", deadline=0.1)
    decision = fg.check("api-limits", user="ann", path="/api/x")

`AsyncClient` is the same with `await`. `fluxgate.asgi`, `fluxgate.wsgi`, `fluxgate.fastapi` and
`fluxgate.flask` limit the requests to a server.
"""

from ._async_client import AsyncClient, AsyncHold
from ._client import Client, Hold
from ._decision import Consumed, Decision, Settled
from ._errors import Denied, FluxGateError, HoldEnded, InvalidRequest, Unavailable
from ._version import VERSION

__version__ = VERSION

__all__ = [
    "AsyncClient",
    "AsyncHold",
    "Client",
    "Consumed",
    "Decision",
    "Denied",
    "FluxGateError",
    "Hold",
    "HoldEnded",
    "InvalidRequest",
    "Settled",
    "Unavailable",
]
