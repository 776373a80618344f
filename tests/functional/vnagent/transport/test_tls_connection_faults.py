# SPDX-License-Identifier: Apache-2.0
"""Peers that cause useless work, failing handlers, and short memory: the connection ends, and no other is
affected."""

import asyncio
import resource
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from daemonkit.run.process_limits import return_large_blocks
from tests.functional.vnagent.connection_links import (
    SMALL,
    both_sides,
    connected_link,
    iterate,
    new_context,
    new_link,
    run,
    until,
)
from tests.functional.vnagent.transport.key_updates import UPDATE_BYTES, KeyUpdates
from vnagent.transport import tls_connection
from vnagent.transport.handler import EndReason
from vnagent.transport.poller import SocketPoller

_MEBIBYTE = 1 << 20
# On the wire: header, data, content type and tag (RFC 8446, 5.2).
RECORD_OF_A_BYTE = 5 + 1 + 1 + 16


@both_sides
@pytest.mark.parametrize("moment", ["on_handshake", "on_data", "on_batch_end", "on_writable", "on_deadline"])
def test_a_failing_handler_ends_its_own_connection(is_server: bool, moment: str) -> None:
    """The next bytes would follow a gap."""

    async def body(poller: SocketPoller) -> None:
        contexts: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: contexts.append(context))
        async with connected_link(poller, is_server=is_server) as other:
            with new_link(poller, is_server=is_server, buffer_bytes=SMALL) as link:

                def fail(*_: object) -> None:
                    setattr(link.handler, moment, lambda *_: None)
                    raise MemoryError

                setattr(link.handler, moment, fail)
                link.transport.start()
                # Our last flight of a handshake leaves with the handler's first bytes.
                await until(
                    lambda: (
                        link.handler.events != [] and (link.far.is_handshake_done or link.handler.ends != [])
                    ),
                    *link.movers,
                )
                if link.far.is_handshake_done:
                    link.far.write(b"first")
                if moment == "on_writable":
                    while not link.transport.await_if_congested():
                        link.transport.write(bytes(20_000))
                        link.transport.flush()
                elif moment == "on_deadline":
                    link.transport.deadline = poller.now
                await until(lambda: link.handler.ends == [EndReason.BROKEN], *link.movers)
                received = bytes(link.handler.received)
                if link.far.is_handshake_done:
                    link.far.write(b"second")
                link.far.push()
                await iterate(20)
                assert bytes(link.handler.received) == received
                assert [type(context["exception"]) for context in contexts] == [MemoryError]
                other.far.write(b"unharmed")
                await until(lambda: bytes(other.handler.received) == b"unharmed", *other.movers)

    run(body)


def test_a_handler_failing_at_the_end_ends_its_connection() -> None:
    async def body(poller: SocketPoller) -> None:
        contexts: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: contexts.append(context))
        async with connected_link(poller, is_server=True) as link:

            def fail(reason: str) -> None:
                raise MemoryError(reason)

            link.handler.on_end = fail  # type: ignore[method-assign] # what is tested
            link.far.finish(with_notify=True)
            await until(lambda: poller.by_fd == {})
            assert len(contexts) == 1

    run(body)


def test_unread_key_update_replies_end_the_connection(tmp_path: Path) -> None:
    keylog = tmp_path / "keys"
    client = new_context(is_server=False)
    client.keylog_filename = str(keylog)

    async def body(poller: SocketPoller) -> None:
        async with connected_link(poller, is_server=True, buffer_bytes=SMALL, far_context=client) as link:
            link.far.push()
            updates = KeyUpdates(keylog)
            # The peer reads the replies that it causes: in total more than may wait unread.
            for _ in range(500):
                link.far.write_raw(updates.next())
            await until(lambda: link.far.push() and link.far.has_arrived, link.far.drain)
            assert link.handler.ends == []
            link.transport.write(bytes(1_000_000))
            link.transport.flush()
            assert link.transport.has_unsent
            for _ in range(650):
                link.far.write_raw(updates.next())
            await until(lambda: link.handler.ends == [EndReason.BROKEN], link.far.push)

    run(body)


def test_key_updates_are_bounded_by_rate(tmp_path: Path) -> None:
    """Each costs 10 us of everyone's loop. A peer that reads the replies may send 32 KiB in 32 s."""
    keylog = tmp_path / "keys"
    client = new_context(is_server=False)
    client.keylog_filename = str(keylog)

    async def body(poller: SocketPoller) -> None:
        async with connected_link(poller, is_server=True, far_context=client) as link:
            link.far.push()
            updates = KeyUpdates(keylog)
            batch = tls_connection.IDLE_BYTES // UPDATE_BYTES
            for _ in range(3):
                for _ in range(batch):
                    link.far.write_raw(updates.next())
                await until(lambda: link.far.push() and link.far.has_arrived, link.far.drain)
                assert link.handler.ends == []
                poller.now += tls_connection.IDLE_S  # until the next sweep
            for _ in range(20_000):
                link.far.write_raw(updates.next())
            await until(lambda: link.handler.ends == [EndReason.BROKEN], link.far.push, link.far.drain)
            assert link.transport.idle_bytes <= tls_connection.IDLE_BYTES + tls_connection.FIRST_RECEIVE_BYTES

    run(body)


@both_sides
def test_small_records_are_received_in_small_pieces(is_server: bool) -> None:
    """Each costs as much as a large one. Tunnels with records of one byte once delayed everyone by 2.3 ms at
    each event, and by 9 ms if the kubelet sent them: each write of a container may be a record."""
    taken: list[int] = []

    async def body(poller: SocketPoller) -> None:
        async with connected_link(poller, is_server=is_server) as link:
            large, small = bytes(_MEBIBYTE), 20_000
            link.handler.at_data = lambda: taken.append(len(link.handler.received))
            link.far.write(large)
            await until(lambda: link.has_received(_MEBIBYTE), link.far.push)
            assert max(b - a for a, b in pairwise(taken)) > 16_384  # in few events
            taken.clear()
            for _ in range(small):
                link.far.write(b"x")
            await until(lambda: link.has_received(_MEBIBYTE + small), link.far.push)
            # After the first piece, which announces the rest.
            most = tls_connection.FIRST_RECEIVE_BYTES // RECORD_OF_A_BYTE + 1
            assert max(b - a for a, b in pairwise(taken)) <= most
            taken.clear()
            link.far.write(large)
            await until(lambda: link.has_received(2 * _MEBIBYTE + small), link.far.push)
            assert max(b - a for a, b in pairwise(taken)) > 16_384

    run(body)


def test_alternating_record_sizes_earn_no_large_receives() -> None:
    """64 KiB of large records between small ones: had the receives doubled with them, the next one would have
    had 5 700 records of a byte."""
    taken: list[int] = []

    async def body(poller: SocketPoller) -> None:
        async with connected_link(poller, is_server=False) as link:
            link.handler.at_data = lambda: taken.append(len(link.handler.received))
            size = 0
            for _ in range(10):
                for _ in range(10_000):
                    link.far.write(b"x")
                link.far.write(bytes(64 << 10))
                size += 10_000 + (64 << 10)
            await until(lambda: link.has_received(size), link.far.push)
            small = [b - a for a, b in pairwise(taken) if b - a < 4096]
            assert max(small) <= (32 << 10) // RECORD_OF_A_BYTE + 1

    run(body)


_SHORT_OF_MEMORY = """
import asyncio, resource, sys
from tests.functional.vnagent.connection_links import running_poller, connected_link, until

async def main():
    async with (
        running_poller() as poller,
        connected_link(poller, is_server=True) as first,
        connected_link(poller, is_server=True) as other,
    ):
        page = bytes(48 << 20)
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (30 << 20), resource.RLIM_INFINITY))
        try:
            first.transport.write(page)
        except MemoryError:
            print("short of memory")
        first.transport.abort()
        first.far.close()
        other.transport.write(b"whole")
        other.transport.flush()
        await until(lambda: bytes(other.far.received) == b"whole", other.far.pull)
        print("whole")

asyncio.run(main())
"""


def test_a_memory_error_breaks_its_own_connection_only() -> None:
    ended = subprocess.run(
        (sys.executable, "-c", _SHORT_OF_MEMORY), capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.stdout, ended.returncode) == ("short of memory\nwhole\n", 0), ended.stderr


def test_a_large_page_leaves_no_large_buffer_behind() -> None:
    # How many freed blocks the allocator keeps depends on the tests before this one.
    assert return_large_blocks()

    async def body(poller: SocketPoller) -> None:
        async with connected_link(poller, is_server=True) as link:
            page = bytes(64 * _MEBIBYTE)
            grown_kib = _resident_kib()
            link.transport.write(page)
            link.transport.abort()
            link.far.close()
            assert _resident_kib() - grown_kib < 8 * 1024

    run(body)


def _resident_kib() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() // 1024
