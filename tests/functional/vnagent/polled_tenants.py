# SPDX-License-Identifier: Apache-2.0
"""Tenants' connections at one poller, whose clock is advanced by what handlers take."""

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from tests.functional.vnagent.connection_links import ConnectionLink, connected_link, run, until
from vnagent.transport.handler import NO_USAGE
from vnagent.transport.poll_groups import TURN_S
from vnagent.transport.poller import TENANT_EVENTS, SocketPoller

# Three of them exceed a turn.
EVENT_S = 0.45 * TURN_S
MANY = 3 * TENANT_EVENTS
# Behind what was before.
_LONG_S = 100.0


class PolledTenants:
    """Opens connections, and has their events take time by the poller's clock, which this is."""

    def __init__(self, poller: SocketPoller, stack: contextlib.AsyncExitStack) -> None:
        self.poller = poller
        self.now_s = poller.clock()
        poller.clock = self.clock
        self._stack = stack
        self._took: dict[str, float] = {}

    def clock(self) -> float:
        return self.now_s

    async def links(
        self, tenant: str | None, count: int = 1, *, is_server: bool = True
    ) -> list[ConnectionLink]:
        """So many of the tenant's connections behind their handshakes; None: of clients without a tenant.
        `is_server`: of clients, else to a kubelet. The handshakes were long ago."""
        links = []
        for _ in range(count):
            link = await self._stack.enter_async_context(connected_link(self.poller, is_server=is_server))
            if tenant is not None:
                link.transport.join(self.poller.group_of(tenant, NO_USAGE))
            links.append(link)
        self.now_s += _LONG_S
        return links

    async def link(self, tenant: str, *, is_server: bool = True) -> ConnectionLink:
        """One of the tenant's connections, as `links` opens it."""
        return (await self.links(tenant, is_server=is_server))[0]

    # ---- time

    def work(self, name: str, turns: float) -> None:
        """Work of this name takes so many turns."""
        self._took[name] = self._took.get(name, 0.0) + turns * TURN_S
        self.now_s += turns * TURN_S

    def each_event(
        self, links: Iterable[ConnectionLink], turns: float, then: Callable[[], object] = lambda: None
    ) -> None:
        """Each event of these takes so many turns, as work of their tenant's name, and then does this."""

        def event(name: str) -> None:
            self.work(name, turns)
            then()

        for link in links:
            link.handler.at_data = partial(event, link.transport.group.account.name)

    def repeat(
        self, links: Iterable[ConnectionLink], turns: float, then: Callable[[], object] = lambda: None
    ) -> None:
        """As `each_event`. Each event leads to the next one of its connection; the first ones are sent."""

        def event(link: ConnectionLink) -> None:
            self.work(link.transport.group.account.name, turns)
            then()
            send([link])

        for link in links:
            link.handler.at_data = partial(event, link)
            send([link])

    def charge(self, tenant: str, turns: float) -> None:
        """Work for the tenant that is no event of a connection takes so many turns."""
        self.work(tenant, turns)
        self.poller.account_of(tenant).charge(int(turns * TURN_S * 1e9))

    async def shares(self) -> dict[str, float]:
        """The part of each name in the work of the next thousand turns."""
        self._took.clear()
        await until(lambda: sum(self._took.values()) > 1000 * TURN_S)
        whole_s = sum(self._took.values())
        return {name: took_s / whole_s for name, took_s in self._took.items()}


def polled(body: Callable[[PolledTenants], Awaitable[None]]) -> Callable[[], None]:
    """A test of this body, with a poller of its own."""

    def test() -> None:
        async def within(poller: SocketPoller) -> None:
            async with contextlib.AsyncExitStack() as stack:
                await body(PolledTenants(poller, stack))

        run(within)

    test.__name__ = getattr(body, "__name__", "test")
    test.__doc__ = body.__doc__
    return test


def send(links: Iterable[ConnectionLink], data: bytes = b"x") -> None:
    for link in links:
        link.far.write(data)
        link.far.push()


async def served_by_iteration(links: list[ConnectionLink]) -> list[int]:
    """How many links had their event, after each iteration until all had."""
    served = [0]
    while served[-1] < len(links):
        await asyncio.sleep(0)  # pace: iterations are counted
        served.append(sum(bool(link.handler.received) for link in links))
    return [now - before for before, now in itertools.pairwise(served)]
