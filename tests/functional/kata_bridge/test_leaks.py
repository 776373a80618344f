# SPDX-License-Identifier: Apache-2.0
"""Removed guests and refused agents leave nothing behind."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path

import pytest
import pytest_asyncio

from kata_bridge.channels.agent.relay import MAX_HANDSHAKES
from kata_bridge.guest_certificates import SERVER_NAME, GuestCertificates
from tests.functional.kata_bridge.bridge_process import DEADLINE_S, BridgeNode, bridged
from tests.waiting import wait_until

pytestmark = [pytest.mark.asyncio, pytest.mark.slow, pytest.mark.timeout(600)]

LIVES, AT_ONCE = 150, 10
# What half of the lives may add to the process after the other half. Certificates that are not
# forgotten, channels that are kept or streams that are not ended are some 10 to 100 KB for each.
ROOM_KIB = 3_072
STORM, CROWD = 3_000, 200
# What a second storm may add to the first. Connections of the kind are some 80 KB each while they last.
STORM_ROOM_KIB = 6_144


@pytest_asyncio.fixture
async def node(short_dir: Path) -> AsyncIterator[BridgeNode]:
    async with bridged(short_dir) as made:
        yield made


async def lives(node: BridgeNode, begin: int, count: int) -> None:
    """So many guests' lives, some of them at once."""
    for first in range(begin, begin + count, AT_ONCE):
        numbers = range(first, min(first + AT_ONCE, begin + count))
        async with asyncio.TaskGroup() as group:
            for number in numbers:
                group.create_task(node.run_guest(f"guest{number}", number + 1))


async def test_removed_guests_leave_nothing_behind(node: BridgeNode) -> None:
    # Warm: modules that the first guest needs are loaded, pools are filled.
    await lives(node, 0, 40)
    base = await asyncio.to_thread(node.settled_usage)
    assert (base.guests, base.certificates, base.connections) == (0, 0, 0)
    memory_kib = [node.resident_kib()]
    for half in range(2):
        await lives(node, 1_000 * (half + 1), LIVES)
        assert await asyncio.to_thread(node.excess_over, base) == ""
        memory_kib.append(node.resident_kib())
    assert memory_kib[2] - memory_kib[1] < ROOM_KIB, memory_kib


def refused(context: ssl.SSLContext, connection: socket.socket) -> None:
    """Be refused for a certificate."""
    with context.wrap_socket(connection, server_hostname=SERVER_NAME) as tls:
        tls.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        while tls.recv(65_536):
            pass


def garbage(_: ssl.SSLContext, connection: socket.socket) -> None:
    connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
    connection.recv(100)


def half_open(context: ssl.SSLContext, connection: socket.socket) -> None:
    """Begin a handshake and go."""
    outgoing = ssl.MemoryBIO()
    tls = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=SERVER_NAME)
    with suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    connection.sendall(outgoing.read())
    connection.recv(1)


KINDS: tuple[Callable[[ssl.SSLContext, socket.socket], None], ...] = (refused, garbage, half_open)


async def storm(node: BridgeNode, context: ssl.SSLContext, count: int) -> None:
    """So many attempts, of many addresses."""
    numbers = iter(range(count))

    def one(number: int) -> None:
        source = (f"127.0.{number % 7 + 1}.{number % 200 + 1}", 0)
        with (
            suppress(OSError),
            socket.create_connection(
                ("127.0.0.1", node.port), DEADLINE_S, source_address=source
            ) as connection,
        ):
            KINDS[number % len(KINDS)](context, connection)

    async def some() -> None:
        for number in numbers:
            await asyncio.to_thread(one, number)

    async with asyncio.TaskGroup() as group:
        for _ in range(16):
            group.create_task(some())


async def test_refused_attaches_leave_nothing_behind(node: BridgeNode, short_dir: Path) -> None:
    other_ca = GuestCertificates.open(short_dir / "other-ca").issue("guest").directory
    context = ssl.create_default_context(cafile=str(short_dir / "state" / "ca.crt"))
    context.load_cert_chain(other_ca / "tls.crt", other_ca / "tls.key")
    context.set_alpn_protocols(["h2"])
    await lives(node, 0, 1)
    await storm(node, context, STORM)
    base = await asyncio.to_thread(node.settled_usage)
    memory_kib = node.resident_kib()
    await storm(node, context, STORM)
    assert await asyncio.to_thread(node.excess_over, base) == ""
    assert node.resident_kib() - memory_kib < STORM_ROOM_KIB
    # And it was no standstill.
    await lives(node, 1, 1)


async def test_silent_handshakes_lose_their_slots(node: BridgeNode) -> None:
    """Clients with a valid certificate stay silent; an honest guest attaches beside them."""
    await lives(node, 0, 1)  # gRPC opens some descriptors of its own at the first connection
    pod = await node.add_pod("silent")
    directory = node.directory / "state" / "sandboxes" / "silent"
    base = await asyncio.to_thread(node.settled_usage)
    context = ssl.create_default_context(cafile=str(directory / "ca.crt"))
    context.load_cert_chain(directory / "tls.crt", directory / "tls.key")
    context.set_alpn_protocols(["h2"])
    loop = asyncio.get_running_loop()
    dialling = [
        loop.create_task(
            asyncio.open_connection(
                "127.0.0.1",
                node.port,
                ssl=context,
                server_hostname=SERVER_NAME,
                ssl_handshake_timeout=DEADLINE_S,
                local_addr=(f"127.0.1.{number + 1}", 0),
            )
        )
        for number in range(CROWD)
    ]
    try:
        # All handshake slots are in use, and other clients wait before it.
        await asyncio.to_thread(wait_until, lambda: node.usage().connections > MAX_HANDSHAKES)
        await asyncio.wait_for(node.run_guest("honest", 1), DEADLINE_S)
        descriptors = node.usage().descriptors
        # Three for each that has a slot, one for each that waits.
        assert descriptors <= base.descriptors + CROWD + 2 * MAX_HANDSHAKES + 20
    finally:
        for task in dialling:
            task.cancel()
        for result in await asyncio.gather(*dialling, return_exceptions=True):
            if isinstance(result, tuple):
                result[1].transport.abort()
    await node.remove_pod(pod)
    assert await asyncio.to_thread(node.excess_over, base) == ""
