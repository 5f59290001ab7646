"""Every call of the client, blocking and with asyncio: python calls.py [URL]"""

import asyncio
import sys

from fluxgate import AsyncClient, Client, Denied

URL = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8081"


def blocking():
    fg = Client(URL, on_error="allow", deadline=0.1)

    # Decide and charge. Times are in seconds; a retry_after of None means never.
    decision = fg.check("pages", user="ann", path="/reports", method="GET")
    if not decision.allowed:
        print(decision.outcome, decision.retry_after, decision.violated)

    # Decide without charging.
    print(fg.peek("pages", user="ann").remaining, "left")

    # Several checks in one call, decided separately.
    for decision in fg.batch([{"rule_set": "pages", "user": "bob"}] * 2):
        print(decision.outcome, decision.remaining)

    # A limit that comes with the call.
    sent = fg.consume("mail", "ann", capacity=5, refill_tokens_per_second=0.5)
    print("sent" if sent else f"wait {sent.retry_after} s")

    # Sleep until a rule with `on_exceed: wait` lets the request pass, for at most 2 s.
    fg.wait("pages", user="cleo", max_wait=2)

    # Hold a slot, or units whose real number is known later. Raises Denied.
    try:
        with fg.hold("jobs", user="ann", cost=3) as hold:
            used = 2  # … the work; the hold is renewed while it runs
            hold.settle(used)  # without it, the hold is released at the end
    except Denied as denied:
        print("try again in", denied.decision.retry_after)

    fg.close()


async def with_asyncio():
    async with AsyncClient(URL) as fg:
        decision = await fg.check("pages", user="dora")
        print(decision.outcome, decision.remaining)
        async with fg.hold("jobs", user="dora"):
            ...  # released at the end of the block


blocking()
asyncio.run(with_asyncio())
