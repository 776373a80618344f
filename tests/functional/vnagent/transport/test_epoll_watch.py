# SPDX-License-Identifier: Apache-2.0
"""The epoll registration of a connection's socket (proc(5), fdinfo of an epoll), and how often it changes."""

import select
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

from daemonkit.fairness.lease import Lease
from tests.functional.vnagent.connection_links import (
    SMALL,
    ConnectionLink,
    connected_link,
    iterate,
    no_room,
    replaced,
    run,
    until,
)
from vnagent.transport.handler import EndReason
from vnagent.transport.poller import SocketPoller
from vnagent.transport.tunnel import Tunnel


class CountingEpoll:
    """Counts the calls of epoll_ctl."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name in {"register", "modify", "unregister"}:
            self.calls.append(name)
        return getattr(self._real, name)


def mask(link: ConnectionLink) -> int | None:
    """The events of the socket that the kernel reports, beside those that it always does."""
    epoll, fd = link.transport.group.epoll, link.transport._fd  # noqa: SLF001 - the kernel's name for it
    for line in Path(f"/proc/self/fdinfo/{epoll.fileno()}").read_text().splitlines():
        if line.startswith("tfd:") and int(line.split()[1]) == fd:
            return int(line.split()[3], 16) & ~(select.EPOLLERR | select.EPOLLHUP)
    return None


def test_epoll_is_modified_only_for_changed_events() -> None:
    async def body(poller: SocketPoller) -> None:
        async with connected_link(poller, is_server=True) as link:
            with replaced(poller.shared, "epoll", CountingEpoll) as counting:
                assert mask(link) == select.EPOLLIN
                link.transport.pause()
                link.transport.pause()
                assert (counting.calls, mask(link)) == (["modify"], select.EPOLLRDHUP)
                link.transport.resume()
                link.transport.close()
                assert (counting.calls, mask(link)) == (["modify"] * 2, select.EPOLLIN)

    run(body)


def has_moved(link: ConnectionLink, before: int) -> bool:
    return link.has_more_than(before) or link.has_ended()


def test_data_of_a_reset_kubelet_is_still_read() -> None:
    """It is out of epoll while it is paused, and back at each resume."""

    async def body(poller: SocketPoller) -> None:
        async with connected_link(poller, is_server=False) as link:
            faults: list[object] = []
            poller.loop.set_exception_handler(lambda _loop, context: faults.append(context["exception"]))
            link.transport.pause()
            link.far.write(b"a" * 100_000)
            link.far.push()
            await until(lambda: link.far.has_arrived)
            link.far.reset()
            await until(lambda: mask(link) is None)
            link.handler.at_data = link.transport.pause
            for _ in range(100):
                before = len(link.handler.received)
                link.transport.resume()
                assert mask(link) in {None, select.EPOLLIN}
                await until(partial(has_moved, link, before))
                if link.handler.ends:
                    break
                await until(lambda: mask(link) is None or link.handler.ends != [])
            assert (faults, link.handler.ends) == ([], [EndReason.RESET])

    run(body)


def test_a_tunnel_without_an_epoll_watch_ends() -> None:
    """Neither `on_close` was called nor the kubelet's socket closed, for good."""

    async def body(poller: SocketPoller) -> None:
        poller.loop.set_exception_handler(lambda _loop, _context: None)
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(
                connected_link(poller, is_server=True, buffer_bytes=SMALL)
            )
            kubelet = await stack.enter_async_context(connected_link(poller, is_server=False))
            closed: list[Tunnel] = []
            Tunnel(client.transport, kubelet.transport, Lease(lambda: None), None, closed.append)
            kubelet.far.write(b"x" * 600_000)
            await until(lambda: mask(kubelet) == select.EPOLLRDHUP, kubelet.far.push)
            kubelet.far.reset()
            await until(lambda: mask(kubelet) is None)
            with no_room(poller.shared, "epoll"):
                for _ in range(4_000):
                    client.far.pull()
                    await iterate(1)
            assert len(closed) == 1
            assert kubelet.transport.tls is None

    run(body)


def test_a_reset_after_the_kubelets_close_is_no_error() -> None:
    """The channel ended in the first half of the event: the second half changed a closed descriptor."""

    async def body(poller: SocketPoller) -> None:
        faults: list[object] = []
        poller.loop.set_exception_handler(lambda _loop, context: faults.append(context["exception"]))
        async with connected_link(poller, is_server=False, buffer_bytes=SMALL) as link:
            link.transport.pause()
            link.transport.write(b"a" * 400_000)
            link.transport.close()
            await iterate(20)
            link.far.reset()
            await until(lambda: link.transport.tls is None)
            assert faults == []

    run(body)
