"""The client for asyncio."""

import asyncio
import gc
import time
import unittest
from unittest import mock

import fluxgate
from fluxgate import AsyncClient, Denied
from fluxgate._async_transport import Connection

from .service import FaultProxy, Service
from .stalls import bearing, elapsed
from .test_client import CONFIG, Answering, sockets


async def wait_until(holds, seconds=20.0):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it does not come true"
        await asyncio.sleep(0.01)


class Async(unittest.IsolatedAsyncioTestCase):
    def setUp(self):
        self.service = Service(CONFIG)
        self.addCleanup(self.service.close)
        self.proxy = FaultProxy(self.service.port)
        self.addCleanup(self.proxy.close)
        self.sockets = sockets()

    async def asyncSetUp(self):
        self.fg = AsyncClient(self.proxy.url, deadline=10, on_error="raise")

    async def asyncTearDown(self):
        await self.fg.close()
        await wait_until(lambda: self.proxy.connections() == 0)
        self.assertEqual(len(asyncio.all_tasks()), 1, asyncio.all_tasks())

    def slots(self):
        return self.service.metric("fluxgate_slots_held")

    async def test_calls_at_once_share_connections(self):
        decisions = await asyncio.gather(*(self.fg.check("costs", user="ann") for _ in range(100)))
        self.assertEqual(sum(decision.allowed for decision in decisions), 10)
        kept = self.fg._state().transport.idle_connections()
        self.assertTrue(1 <= kept <= 64, kept)
        for _ in range(10):
            await self.fg.peek("costs", user="ann")
        self.assertEqual(self.fg._state().transport.idle_connections(), kept)

    async def test_holds(self):
        async with self.fg.hold("slots", user="ann") as hold:
            self.assertTrue(hold.is_open and hold.id)
            with self.assertRaises(Denied):
                async with self.fg.hold("slots", user="ann"):
                    self.fail("entered")
        self.assertEqual(self.slots(), 0)
        hold = await self.fg.hold("slots", user="ann")
        self.assertEqual(self.slots(), 1)
        async with hold:
            self.assertEqual((await hold.settle()).charged, 1)
        self.assertEqual(self.slots(), 0)

    async def test_a_hold_is_released_when_its_task_is_cancelled(self):
        async def work():
            async with self.fg.hold("late-slots", user="ann"):
                await asyncio.sleep(30)

        task = asyncio.ensure_future(work())
        await wait_until(lambda: self.slots() == 1)
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        await wait_until(lambda: self.slots() == 0)

    async def test_a_hold_that_is_forgotten_is_released(self):
        hold = await self.fg.hold("late-slots", user="ann")
        self.assertEqual(self.slots(), 1)
        del hold
        gc.collect()
        await wait_until(lambda: self.slots() == 0)

    async def test_a_hold_of_a_wait_is_the_callers(self):
        decision = await self.fg.wait("slots", user="ann")
        self.proxy.asked()
        await asyncio.sleep(1.2)
        self.assertEqual(self.proxy.asked(), 0)
        self.assertFalse(await self.fg.release(decision.hold))

    async def test_one_call_renews_all_holds(self):
        with bearing(1.0):
            holds = [await self.fg.hold("four-seconds", user=f"user-{at}") for at in range(50)]
            self.proxy.asked()
            await asyncio.sleep(3)
            self.assertIn(self.proxy.asked(), range(1, 5))
            self.assertEqual(self.slots(), 50)
            released = await asyncio.gather(*(hold.release() for hold in holds))
            self.assertTrue(all(released))
            self.assertEqual(self.slots(), 0)

    async def test_a_cancelled_check_leaves_no_slot(self):
        self.proxy.set_mode("slow")
        task = asyncio.ensure_future(self.fg.check("late-slots", user="ann"))
        await asyncio.sleep(0.3)
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        self.proxy.set_mode("up")
        await asyncio.sleep(1.2)
        await wait_until(lambda: self.slots() == 0)
        self.assertEqual(self.service.metric("fluxgate_holds"), 0)

    async def test_a_check_that_is_cancelled_when_it_is_answered_leaves_no_slot(self):
        original = Connection._feed

        def feed_and_cancel(connection, data):
            original(connection, data)
            task.cancel()

        task = asyncio.ensure_future(self.fg.check("late-slots", user="ann"))
        with mock.patch.object(Connection, "_feed", feed_and_cancel):
            with self.assertRaises(asyncio.CancelledError):
                await task
        await wait_until(lambda: self.slots() == 0)
        self.assertEqual(self.service.metric("fluxgate_holds"), 0)

    async def test_the_deadline_covers_everything(self):
        def trickle(sock):
            sock.recv(65536)
            for byte in b"HTTP/1.1 200 OK\r\n" + b"A: x\r\n" * 100:
                sock.sendall(bytes([byte]))
                time.sleep(0.02)

        with Answering(trickle) as server:
            async with AsyncClient(server.url, deadline=0.2) as fg:
                begin = time.monotonic()
                self.assertEqual((await fg.check("set")).outcome, "failed_open")
                self.assertLess(elapsed(begin), 0.4)

    async def test_a_connection_that_the_service_closed_is_not_used(self):
        await self.fg.peek("api-limits")
        for _ in range(5):
            self.proxy.set_mode("down")
            self.proxy.set_mode("up")
            await wait_until(lambda: self.proxy.connections() == 0)
            self.assertTrue((await self.fg.peek("api-limits")).allowed)

    async def test_errors(self):
        with self.assertRaises(fluxgate.InvalidRequest) as raised:
            await self.fg.check("api-limits", ip="nowhere")
        self.assertEqual(raised.exception.status, 400)
        self.proxy.set_mode("reset")
        with self.assertRaises(fluxgate.Unavailable) as raised:
            await self.fg.check("api-limits")
        self.assertIsInstance(raised.exception.__cause__, ConnectionResetError)


class Loops(unittest.TestCase):
    def test_a_client_may_be_used_on_several_loops(self):
        with Service(CONFIG) as service:
            fg = AsyncClient(service.url, deadline=10, on_error="raise")

            async def once(remaining):
                decision = await fg.check("api-limits", user="ann")
                self.assertEqual(decision.remaining, remaining)
                await fg.close()

            for remaining in (1, 0):
                asyncio.run(once(remaining))
            self.assertEqual(len(fg._states), 0)


if __name__ == "__main__":
    unittest.main()
