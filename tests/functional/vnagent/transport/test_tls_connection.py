# SPDX-License-Identifier: Apache-2.0
"""TlsConnection over real sockets and real TLS: no wake-up is lost, one peer's bytes reach no other handler,
and a handler may act in every callback. How a connection ends: `test_tls_connection_ends`."""

import os
import tracemalloc
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest

from daemonkit.fairness.lease import Lease
from tests.functional.vnagent.connection_links import (
    SMALL,
    ConnectionLink,
    both_sides,
    connected_link,
    descriptors,
    iterate,
    new_link,
    run,
    until,
)
from tests.functional.vnagent.tls_peer import End, TlsPeer
from vnagent.core.limits import TenantUsage
from vnagent.transport.cipher import RECEIVE_BYTES
from vnagent.transport.handler import EndReason
from vnagent.transport.poller import SocketPoller
from vnagent.transport.tunnel import Tunnel

# ---- lost wake-ups


def test_data_with_the_last_flight_is_delivered() -> None:
    """Ciphertext behind the handshake has been received already: epoll never announces it."""

    async def body(poller: SocketPoller) -> None:
        with new_link(poller, is_server=True) as link:
            link.transport.start()
            link.far.handshake()
            link.far.push()
            await until(lambda: link.far.is_handshake_done, link.far.pull)
            link.far.write(b"a" * 100_000)  # after Finished, not pushed
            await until(lambda: len(link.handler.received) == 100_000, link.far.push)
            link.far.close()
            await until(link.has_ended)

    run(body)


@both_sides
def test_resume_delivers_data_from_the_kernel(is_server: bool) -> None:
    async def body(poller: SocketPoller) -> None:
        async with connected_link(poller, is_server=is_server) as link:
            link.handler.at_data = link.transport.pause
            for number in range(20):
                link.far.write(bytes([number]) * 20_000)
            await until(lambda: link.handler.received != b"", link.far.push)
            while len(link.handler.received) < 20 * 20_000:
                before = len(link.handler.received)
                await iterate(5)
                assert len(link.handler.received) == before  # paused means paused
                link.transport.resume()
                await until(partial(link.has_more_than, before), link.far.push)
            assert bytes(link.handler.received) == b"".join(bytes([n]) * 20_000 for n in range(20))
            assert link.handler.ends == []
            link.far.close()
            link.transport.resume()
            await until(link.has_ended)

    run(body)


@both_sides
@pytest.mark.parametrize("when", ["before", "at data"])
def test_an_end_during_a_pause_follows_the_data(is_server: bool, when: str) -> None:
    """A handler that paused may still have data to relay when the end comes."""

    async def body(poller: SocketPoller) -> None:
        async with connected_link(poller, is_server=is_server) as link:
            if when == "before":
                link.transport.pause()
            else:
                link.handler.at_data = link.transport.pause
            link.far.write(b"last words")
            link.far.finish(with_notify=True)
            await until(lambda: when == "before" or link.handler.received != b"")
            await iterate(50)
            assert link.handler.ends == []
            link.transport.resume()
            await until(link.has_ended)
            assert (bytes(link.handler.received), link.handler.ends) == (b"last words", [EndReason.CLOSED])

    run(body)


@both_sides
@pytest.mark.parametrize("with_notify", [True, False], ids=["notify", "fin"])
def test_an_end_that_epoll_reported_once_is_delivered(is_server: bool, with_notify: bool) -> None:
    """A close_notify without a FIN, or a FIN that had been received when the owner paused."""

    async def body(poller: SocketPoller) -> None:
        async with connected_link(poller, is_server=is_server) as link:
            paused: list[bool] = []

            def pause() -> None:
                paused.append(True)
                link.transport.pause()

            link.handler.at_batch_end = pause
            if with_notify:
                link.far.notify()
                link.far.push()
            else:
                link.far.finish(with_notify=False)
            await until(lambda: paused == [True])
            await iterate(50)
            assert link.handler.ends == []
            link.handler.at_batch_end = lambda: None
            link.transport.resume()
            await until(link.has_ended)
            assert link.handler.ends == [EndReason.CLOSED]

    run(body)


# ---- what all channels share

NO_RECORD = b"\x17\x03\x03\x00\x20" + b"no record" * 4000


def speaks_no_tls(far: TlsPeer) -> None:
    far.write_raw(NO_RECORD)


def writes_after_close_notify(far: TlsPeer) -> None:
    far.finish(with_notify=True, behind=NO_RECORD)


@both_sides
@pytest.mark.parametrize(
    ("leave", "is_handshake_done"),
    [(speaks_no_tls, False), (speaks_no_tls, True), (writes_after_close_notify, True)],
)
def test_leftovers_of_one_peer_reach_no_other(
    is_server: bool, leave: Callable[[TlsPeer], None], is_handshake_done: bool
) -> None:
    async def body(poller: SocketPoller) -> None:
        async with connected_link(poller, is_server=is_server) as other:
            with new_link(poller, is_server=is_server) as link:
                link.transport.start()
                if is_handshake_done:
                    await until(
                        lambda: link.handler.events == ["handshake"] and link.far.is_handshake_done,
                        *link.movers,
                    )
                sent = os.urandom(10_000)
                other.transport.write(sent)  # and is not flushed before the one beside it has ended
                leave(link.far)
                await until(link.has_ended, link.far.push)
                link.transport.close()
                other.transport.flush()
                other.far.write(sent)
                await until(lambda: other.has_received(len(sent)), *other.movers)
                await until(lambda: len(other.far.received) == len(sent), other.far.pull)
                assert (bytes(other.handler.received), bytes(other.far.received)) == (sent, sent)
                assert other.handler.ends == []

    run(body)


@both_sides
def test_on_data_may_close_another_connection(is_server: bool) -> None:
    """close_notify reads the data of its own peer only."""

    async def body(poller: SocketPoller) -> None:
        async with (
            connected_link(poller, is_server=is_server) as link,
            connected_link(poller, is_server=is_server) as other,
        ):
            link.handler.at_data = other.transport.close
            sent = os.urandom(RECEIVE_BYTES * 2)
            link.far.write(sent)
            await until(lambda: link.has_received(len(sent)), link.far.push)
            await until(lambda: other.far.end is not None, other.far.pull)
            assert (bytes(link.handler.received), link.handler.ends) == (sent, [])
            assert other.far.end is End.CLOSE_NOTIFY

    run(body)


@both_sides
@pytest.mark.parametrize("act", ["pause", "close", "abort"])
def test_on_data_may_act_on_its_connection(is_server: bool, act: str) -> None:
    """Closing one end may close the other inside its own read loop."""

    async def body(poller: SocketPoller) -> None:
        async with connected_link(poller, is_server=is_server) as link:
            link.handler.at_data = getattr(link.transport, act)
            for _ in range(5):
                link.far.write(b"a" * 60_000)
            await until(lambda: link.handler.received != b"", link.far.push)
            await iterate(20)
            # One piece: what one receive brings, with the record that the one before it left incomplete.
            assert len(link.handler.received) <= RECEIVE_BYTES + 16_384
            assert link.handler.ends == []

    run(body)


@pytest.mark.parametrize("act", ["close", "abort"])
def test_on_handshake_may_act_on_its_connection(act: str) -> None:
    async def body(poller: SocketPoller) -> None:
        with new_link(poller, is_server=True) as link:
            link.handler.at_handshake = getattr(link.transport, act)
            link.transport.start()
            await until(lambda: link.far.end is not None, link.far.push, link.far.pull)
            assert link.handler.events == ["handshake"]
            link.far.close()
            await until(lambda: poller.by_fd == {})

    run(body)


def test_a_deadline_is_called_once_and_keeps_the_connection() -> None:
    async def body(poller: SocketPoller) -> None:
        async with connected_link(poller, is_server=True) as link:
            link.transport.deadline = poller.now
            await until(lambda: "deadline" in link.handler.events)
            link.far.write(b"still here")
            await until(lambda: bytes(link.handler.received) == b"still here", link.far.push)
            assert link.handler.events == ["handshake", "deadline"]

    run(body)


# ---- back-pressure


@both_sides
def test_many_small_writes_to_a_stalled_peer(is_server: bool) -> None:
    """A quiet log's lines are flushed one by one; they may wait by the thousand."""

    async def body(poller: SocketPoller) -> None:
        async with connected_link(poller, is_server=is_server, buffer_bytes=SMALL) as link:
            sent = b""
            while not link.transport.await_if_congested():
                line = b"%06d\n" % len(sent)
                sent += line
                link.transport.write(line)
                link.transport.flush()
            await until(lambda: "writable" in link.handler.events, link.far.pull)
            link.transport.close()
            await until(lambda: link.far.end is not None, link.far.pull)
            assert bytes(link.far.received) == sent
            assert link.handler.ends == []

    run(body)


@both_sides
def test_congestion_ends_with_one_on_writable(is_server: bool) -> None:
    async def body(poller: SocketPoller) -> None:
        async with connected_link(poller, is_server=is_server, buffer_bytes=SMALL) as link:
            for _ in range(2):
                link.handler.events.clear()
                while not link.transport.await_if_congested():
                    link.transport.write(b"a" * 10_000)
                    link.transport.flush()
                await until(lambda: link.handler.events != [], link.far.pull)
                await until(lambda: not link.transport.await_if_congested(), link.far.pull)
                await iterate(20)
                assert link.handler.events == ["writable"]

    run(body)


def test_unsent_memory_is_at_most_twice_the_usage() -> None:
    """A small unsent rest once kept its whole piece: 25 MiB for 200 clients that had read nearly
    everything."""

    async def body(poller: SocketPoller) -> None:
        async with connected_link(poller, is_server=True, buffer_bytes=SMALL) as link:
            use = TenantUsage()
            link.transport.bind(use)
            unsent_bytes = use.unsent_bytes
            tracemalloc.start()
            try:
                before, _ = tracemalloc.get_traced_memory()
                link.transport.write(b"a" * 120_000)
                link.transport.flush()
                await until(lambda: use.unsent_bytes < 30_000, lambda: link.far.pull(1024))
                assert use.unsent_bytes > unsent_bytes
                link.far.received.clear()
                traced_bytes, _ = tracemalloc.get_traced_memory()
                # The far end and the tracing have a few KB.
                assert traced_bytes - before < 2 * use.unsent_bytes + 20_000
            finally:
                tracemalloc.stop()

    run(body)


def test_above_its_limit_a_tenant_receives_little_at_once() -> None:
    """Their clients had taken everything so far, so that none of them is paused."""

    async def body(poller: SocketPoller) -> None:
        async with AsyncExitStack() as stack:
            use = TenantUsage(max_unsent_bytes=4 << 20)
            group = poller.group_of("ten-a", use)
            streams = []
            for _ in range(4):
                client = await stack.enter_async_context(
                    connected_link(poller, is_server=True, buffer_bytes=16 * SMALL)
                )
                kubelet = await stack.enter_async_context(connected_link(poller, is_server=False))
                for transport in (client.transport, kubelet.transport):
                    transport.join(group)
                    transport.usage = use
                Tunnel(client.transport, kubelet.transport, Lease(lambda: None), None, lambda _: None)
                streams.append((client, kubelet))
            # Until as much is received at once as ever is.
            for client, kubelet in streams:
                kubelet.far.write(b"a" * 4_000_000)
                await until(partial(has_taken, client, 4_000_000), kubelet.far.push, client.far.pull)
            assert use.unsent_bytes == 0
            use.unsent_bytes = before = use.max_unsent_bytes + 1  # of a client that reads nothing
            for _, kubelet in streams:
                kubelet.far.write(b"a" * 1_000_000)
            await until(lambda: all(one.transport.has_unsent for one, _ in streams), *pushes(streams))
            for push in 10 * pushes(streams):
                push()
                await iterate(2)
            added = use.unsent_bytes - before
            # Each stream adds at most one record that this receive completes, and the receive itself.
            assert 0 < added <= len(streams) * (16_384 + 4_096 + 100)
            use.unsent_bytes -= before

    run(body)


def pushes(streams: list[tuple[ConnectionLink, ConnectionLink]]) -> list[Callable[[], object]]:
    return [kubelet.far.push for _, kubelet in streams]


def has_taken(link: ConnectionLink, size: int) -> bool:
    return len(link.far.received) == size


# ---- the counting itself


def test_the_descriptor_check_finds_a_leak(tmp_path: Path) -> None:
    """What all tests here end with would see one that is open."""
    before = descriptors()
    with (tmp_path / "x").open("wb"):
        assert descriptors() == before + 1
