# SPDX-License-Identifier: Apache-2.0
"""A kernel without room to watch another socket: epoll_ctl(2) fails with ENOSPC or ENOMEM. The connection
ends and leaks nothing."""

import errno
import socket
import ssl
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from daemonkit.admission.handshake_accounts import HandshakeAccounts
from tenancy.registry import Registry
from tests.functional.vnagent.agent_states import ThreadOnlyAccounts, new_state, open_client_for
from tests.functional.vnagent.connection_links import FailureRecorder, contexts, iterate, no_room, run, until
from tests.functional.vnagent.tls_peer import TlsPeer, loopback_pair
from vnagent.downstream.handshakes import Handshakes
from vnagent.metrics import AgentMetrics
from vnagent.state import AgentState
from vnagent.transport.poller import SocketPoller
from vnagent.upstream.pool import UpstreamAddress, UpstreamPool


def state_with_context(poller: SocketPoller, directory: Path) -> AgentState:
    state = new_state(poller, directory)
    state.serve_tenants(Registry(), contexts()[0], ())
    return state


def has_ended(sock: socket.socket) -> bool:
    try:
        return sock.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def test_a_client_without_an_epoll_watch_leaves_nothing(tmp_path: Path) -> None:
    """Its socket stayed open for good, and its channel in the table of all."""

    async def body(poller: SocketPoller) -> None:
        state = state_with_context(poller, tmp_path)
        near, far = loopback_pair()
        with no_room(poller.shared, "epoll"):
            open_client_for(state, HandshakeAccounts())(near, "127.0.0.1", None, None)
        try:
            assert has_ended(far)
            assert (poller.by_fd, poller.shared.size, state.connections) == ({}, 0, set())
        finally:
            far.close()

    run(body)


def test_a_dial_without_an_epoll_watch_is_unreachable() -> None:
    """Its socket and its slot in the pool leaked once."""

    async def body(poller: SocketPoller) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            address = UpstreamAddress("127.0.0.1", listener.getsockname()[1], "far")
            pool = UpstreamPool(poller, address, ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
            exchange = FailureRecorder()
            with no_room(poller.own, "epoll"):
                pool.acquire(exchange, b"", timeout_s=None, is_upgrade=False)
                pool.dial_spare()
            await iterate(2)
            assert exchange.failures == ["kubelet-unreachable"]
            assert (pool.open_count, poller.by_fd, poller.own.size) == (0, {}, 0)

    run(body)


class FullMemory:
    """OpenSSL has no memory for another connection."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def wrap_bio(self, *_: object) -> ssl.SSLObject:
        raise self._error


@pytest.mark.parametrize("error", [ssl.SSLError(1, "malloc failure"), MemoryError()], ids=repr)
def test_a_dial_without_memory_fails_alone(error: BaseException) -> None:
    async def body(poller: SocketPoller) -> None:
        context = cast(ssl.SSLContext, FullMemory(error))
        pool = UpstreamPool(poller, UpstreamAddress("127.0.0.1", 1, "far"), context)
        exchange = FailureRecorder()
        pool.acquire(exchange, b"", timeout_s=None, is_upgrade=True)
        await iterate(4)
        assert exchange.failures == ["kubelet-unreachable"]
        assert (pool.open_count, poller.by_fd) == (0, {})

    run(body)


class FullState:
    """The part of the state that `Handshakes` uses. `open_client` has no room for the first connection."""

    def __init__(self, poller: SocketPoller) -> None:
        self._context, _ = contexts()
        self.poller = poller
        self.is_draining = False
        self.metrics = AgentMetrics()
        self.taken = 0

    def context_for(self, _token_tenant: str | None) -> ssl.SSLContext:
        return self._context

    def has_taken(self, count: int) -> bool:
        return self.taken == count

    def open_client(self, sock: socket.socket, *_: object) -> None:
        sock.close()
        self.taken += 1
        if self.taken == 1:
            raise OSError(errno.ENOSPC, "no watches left")


def handshakes_of(poller: SocketPoller, state: FullState) -> Handshakes:
    return Handshakes(poller.loop, cast(AgentState, state), ThreadOnlyAccounts(), state.open_client)


def test_a_connection_without_an_epoll_watch_ends_at_once() -> None:
    """It stayed for 9 s, each with a traceback in the log."""

    async def body(poller: SocketPoller) -> None:
        handshakes = handshakes_of(poller, FullState(poller))
        handshakes.start()
        near, far = loopback_pair()
        try:
            with no_room(handshakes, "_epoll"):
                handshakes.accept(near, "127.0.0.1")
            assert has_ended(far)
            assert len(handshakes) == 0
        finally:
            handshakes.stop()
            far.close()

    run(body)


def test_thread_handshakes_continue_after_a_failure() -> None:
    """The thread counted as busy for good, and no handshake ran in it any more."""

    async def body(poller: SocketPoller) -> None:
        faults: list[object] = []
        poller.loop.set_exception_handler(lambda _loop, context: faults.append(context["exception"]))
        state = FullState(poller)
        handshakes = handshakes_of(poller, state)
        handshakes.start()
        _, client = contexts()
        try:
            for count in (1, 2):
                near, far = loopback_pair()
                handshakes.accept(near, "127.0.0.1")
                end = TlsPeer(far, client, is_server=False)
                end.handshake()
                await until(partial(state.has_taken, count), end.push, end.pull)
                end.close()
            assert [type(each) for each in faults] == [OSError]
        finally:
            handshakes.stop()

    run(body)
