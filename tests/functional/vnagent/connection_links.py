# SPDX-License-Identifier: Apache-2.0
"""A TlsConnection under test with a recording handler, and its far end."""

import asyncio
import contextlib
import errno
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar

import pytest

from devkit.pki import Authority
from tests import waiting
from tests.functional.vnagent.tls_peer import TlsPeer, loopback_pair
from vnagent.core.head import ResponseHead
from vnagent.transport.cipher import Cipher
from vnagent.transport.event_loop import AgentLoop
from vnagent.transport.handler import EndReason
from vnagent.transport.poller import SocketPoller
from vnagent.transport.tls_connection import TlsConnection

Made = TypeVar("Made")

DEADLINE_S = 10.0
SMALL = 4096  # of a socket's buffer: then nearly every send is a partial one


@cache
def _authority() -> Authority:
    return Authority.create("ca")


def new_context(*, is_server: bool) -> ssl.SSLContext:
    """TLS of a server that demands a certificate, or of a client that has one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if is_server else ssl.PROTOCOL_TLS_CLIENT)
    context.verify_mode = ssl.CERT_REQUIRED
    _authority().issue("far", sans_dns=["far"]).load_into(context)
    context.load_verify_locations(cadata=_authority().cert_pem.decode())
    return context


@cache
def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's and a client's, the same for all tests."""
    return new_context(is_server=True), new_context(is_server=False)


async def until(condition: Callable[[], bool], *movers: Callable[[], object]) -> None:
    """Iterate the loop and call `movers` until the condition holds."""
    end_s = asyncio.get_running_loop().time() + DEADLINE_S
    while not condition():
        assert asyncio.get_running_loop().time() < end_s, waiting.failure(condition, DEADLINE_S)
        for move in movers:
            move()
        await asyncio.sleep(0.0005)


async def iterate(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - the number, not the paths


@contextlib.asynccontextmanager
async def running_poller() -> AsyncIterator[SocketPoller]:
    """A poller that must leave no descriptors at the end."""
    before = descriptors()
    poller = SocketPoller(asyncio.get_running_loop())
    poller.start()
    try:
        yield poller
    finally:
        poller.stop()
    assert poller.by_fd == {}
    assert descriptors() == before


@dataclass
class RecordingHandler:
    """A handler that records its callbacks, and calls the test's actions in them."""

    events: list[str] = field(default_factory=list)
    received: bytearray = field(default_factory=bytearray)
    ends: list[EndReason] = field(default_factory=list)
    at_data: Callable[[], None] = lambda: None
    at_handshake: Callable[[], None] = lambda: None
    at_writable: Callable[[], None] = lambda: None
    at_batch_end: Callable[[], None] = lambda: None

    def on_handshake(self) -> None:
        self.events.append("handshake")
        self.at_handshake()

    def on_data(self, data: memoryview) -> None:
        self.received += data
        self.at_data()

    def on_batch_end(self) -> None:
        self.at_batch_end()

    def on_writable(self) -> None:
        self.events.append("writable")
        self.at_writable()

    def on_end(self, reason: EndReason) -> None:
        self.events.append("end")
        self.ends.append(reason)

    def on_deadline(self) -> None:
        self.events.append("deadline")


class FailureRecorder:
    """A response handler for a request that fails: it records how."""

    def __init__(self) -> None:
        self.failures: list[str] = []

    def on_response(self, head: ResponseHead) -> None:
        raise AssertionError(head)

    def on_body(self, data: memoryview) -> None:
        raise AssertionError(data)

    def on_response_end(self) -> None:
        raise AssertionError

    def on_batch_end(self) -> None:
        pass

    def on_failure(self, reason: str) -> None:
        self.failures.append(reason)


@dataclass
class ConnectionLink:
    """A connection under test with its handler, and its far end."""

    transport: TlsConnection
    handler: RecordingHandler
    far: TlsPeer

    @property
    def movers(self) -> tuple[Callable[[], object], ...]:
        return self.far.push, self.far.pull

    def has_received(self, size: int) -> bool:
        return len(self.handler.received) == size

    def has_more_than(self, size: int) -> bool:
        return len(self.handler.received) > size

    def has_ended(self) -> bool:
        return self.handler.ends != []


@contextlib.contextmanager
def new_link(
    poller: SocketPoller,
    *,
    is_server: bool,
    buffer_bytes: int | None = None,
    far_context: ssl.SSLContext | None = None,
    far_name: str = "far",
) -> Iterator[ConnectionLink]:
    """A link before its handshake; both its ends are closed at the end. `far_name`: what a server
    at the far end has to be called."""
    server, client = contexts()
    near, far = loopback_pair(buffer_bytes)
    handler = RecordingHandler()
    name = None if is_server else far_name
    # The channel owns its cipher, so the cipher's memory ends with it.
    transport = TlsConnection(
        poller,
        near,
        Cipher(server if is_server else client, is_server=is_server, server_hostname=name),
        handler,
    )
    context = far_context or (client if is_server else server)
    link = ConnectionLink(transport, handler, TlsPeer(far, context, is_server=not is_server))
    try:
        yield link
    finally:
        link.transport.abort()
        link.far.close()


@contextlib.asynccontextmanager
async def connected_link(
    poller: SocketPoller,
    *,
    is_server: bool,
    buffer_bytes: int | None = None,
    far_context: ssl.SSLContext | None = None,
) -> AsyncIterator[ConnectionLink]:
    """A link after its handshake; both its ends are closed at the end."""
    with new_link(poller, is_server=is_server, buffer_bytes=buffer_bytes, far_context=far_context) as link:
        link.transport.start()
        await until(lambda: link.handler.events == ["handshake"] and link.far.is_handshake_done, *link.movers)
        yield link


TestBody = Callable[[SocketPoller], Awaitable[None]]


def run(body: TestBody) -> None:
    async def main() -> None:
        async with running_poller() as poller:
            await body(poller)

    with asyncio.Runner(loop_factory=AgentLoop) as runner:
        runner.run(main())


both_sides = pytest.mark.parametrize("is_server", [True, False], ids=["tenant", "kubelet"])


class FullEpoll:
    """Takes no other socket."""

    def __init__(self, real: object) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def register(self, *_: object) -> None:
        raise OSError(errno.ENOSPC, "no watches left")


@contextlib.contextmanager
def replaced(holder: object, name: str, make: Callable[[Any], Made]) -> Iterator[Made]:
    """`holder.name` is meanwhile what `make` makes of it."""
    real = getattr(holder, name)
    made = make(real)
    setattr(holder, name, made)
    try:
        yield made
    finally:
        setattr(holder, name, real)


def no_room(holder: object, name: str) -> contextlib.AbstractContextManager[object]:
    """`holder.name` is an epoll that is full meanwhile."""
    return replaced(holder, name, FullEpoll)
