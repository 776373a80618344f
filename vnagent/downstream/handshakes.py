# SPDX-License-Identifier: Apache-2.0
"""Connections without an identity: they wait for their first byte, then for their handshake.

A silent connection costs a socket and an entry here, and no TLS object. When its first byte comes, the
accounts (`daemonkit.admission.handshake_accounts`) decide where the handshake runs: on the event loop, where
it is fastest, or in one thread, in which OpenSSL works without the interpreter's lock. The
thread serves accounts by their costs (`daemonkit.admission.fair_queue`): one of expensive chains, or of
many hellos, waits behind all others. Long chains have a queue of their own and at most half of the thread, so
that short chains from the same address are served meanwhile.

Only the thread's one running step touches that connection's cipher. Sockets belong to the loop.
"""

import asyncio
import fcntl
import functools
import itertools
import select
import socket
import ssl
import sys
import termios
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from daemonkit.admission.connection_slots import ConnectionSlots, client_address_of
from daemonkit.admission.fair_queue import FairQueue
from daemonkit.admission.handshake_accounts import HandshakeAccounts
from vnagent.downstream.token_port import TokenPort
from vnagent.state import AgentState
from vnagent.transport.cipher import Cipher
from vnagent.transport.event_loop import watcher_of
from vnagent.transport.handler import EndReason
from vnagent.transport.tls_connection import MAX_HANDSHAKE_BYTES

# Connections that are silent, or wait for the thread: a socket and 1 KB each. A flood of 1 500 a second
# evicts one after 2.7 s; an honest client sends its hello within milliseconds.
MAX_WAITING = 4_096
# Handshakes that have begun in the thread, of 43 KB each. The client address that has most loses its oldest.
MAX_BEGUN = 512
# Hello and flight of a short chain: two certificates of RSA-4096, or four of RSA-2048.
SHORT_BYTES = 6 * 1024
# From accept to identity, in the thread. An honest one needs milliseconds; Go's client waits 10 s.
HANDSHAKE_S = 9.0
_SWEEP_S = 0.5
# Of those whose time is over, how many end in one iteration of the loop, 0.02 ms each.
ENDED_AT_ONCE = 64
# Of one iteration of the loop, some 0.03 ms each.
_EVENTS = 8
_READ = select.EPOLLIN | select.EPOLLRDHUP
_GONE = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR

OpenClient = Callable[[socket.socket, str, Cipher | None, TokenPort | None], None]


class _PendingConnection:
    """A connection without an identity. It waits and is charged by `account`."""

    __slots__ = (
        "account",
        "bytes_left",
        "cipher",
        "client_address",
        "deadline",
        "fd",
        "is_ended",
        "is_long",
        "sock",
        "token_port",
    )

    def __init__(
        self, sock: socket.socket, client_address: str, deadline: float, token_port: TokenPort | None
    ) -> None:
        self.sock = sock
        self.token_port = token_port
        self.fd = sock.fileno()
        self.client_address = client_address
        self.account = client_address
        self.deadline = deadline
        self.bytes_left = MAX_HANDSHAKE_BYTES
        self.cipher: Cipher | None = None
        self.is_ended = False
        self.is_long = False


class Handshakes:
    """Takes connections from the listener and opens those whose handshake may run."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        state: AgentState,
        accounts: HandshakeAccounts,
        open_client: OpenClient,
    ) -> None:
        """`open_client` serves a socket from its client address, with the cipher of a completed handshake,
        and the port for tokens if it was accepted there."""
        self._loop = loop
        self._watcher = watcher_of(loop)
        self._state = state
        self._accounts = accounts
        self._open_client = open_client
        self._epoll = select.epoll()
        self._by_fd: dict[int, _PendingConnection] = {}  # the oldest first
        self._waiting: ConnectionSlots[_PendingConnection] = ConnectionSlots(MAX_WAITING)
        self._started: ConnectionSlots[_PendingConnection] = ConnectionSlots(MAX_BEGUN)
        self._short: FairQueue[_PendingConnection] = FairQueue()
        self._long: FairQueue[_PendingConnection] = FairQueue()
        self._next_long_s = 0.0
        self._long_timer: asyncio.TimerHandle | None = None
        # The thread starts with its first handshake.
        self._executor = ThreadPoolExecutor(1, "handshakes")
        self._is_busy = False
        self._is_stopped = False
        self._sweep_timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._watcher.watch(self._epoll.fileno(), self._dispatch)
        self._sweep()

    async def end_all(self) -> None:
        """End all handshakes in progress, in steps, and begin none any more."""
        await self._state.poller.end_each(list(self._by_fd.values()), self._end)
        self.stop()

    def stop(self) -> None:
        """End the handshakes that are left, and begin none any more."""
        if self._is_stopped:
            return
        self._is_stopped = True
        for timer in (self._sweep_timer, self._long_timer):
            if timer is not None:
                timer.cancel()
        for pending in list(self._by_fd.values()):
            self._end(pending)
        self._watcher.unwatch(self._epoll.fileno())
        self._epoll.close()
        self._executor.shutdown(wait=False, cancel_futures=True)

    def __len__(self) -> int:
        """Connections whose handshake is to begin, or runs in the thread."""
        return len(self._by_fd)

    # ---- before the first byte

    def accept(self, sock: socket.socket, host: str, token_port: TokenPort | None = None) -> None:
        """Take a connection from a listener, or close it while no tenant is served there."""
        if self._context_for(token_port) is None or self._state.is_draining or self._is_stopped:
            sock.close()
            return
        deadline = self._loop.time() + HANDSHAKE_S
        pending = _PendingConnection(sock, client_address_of(host), deadline, token_port)
        evicted = self._waiting.add(pending, pending.client_address)
        if evicted is not None:
            self._evict(evicted)
        self._by_fd[pending.fd] = pending
        try:
            self._epoll.register(pending.fd, _READ)
        except OSError:  # the kernel has no room to watch it
            self._end(pending)

    def _context_for(self, token_port: TokenPort | None) -> ssl.SSLContext | None:
        return self._state.context_for(None if token_port is None else token_port.tenant)

    def make_room(self) -> bool:
        """Close one connection, for its descriptor; False if there is none."""
        evicted = self._waiting.evict() or self._started.evict()
        if evicted is None:
            return False
        self._evict(evicted)
        return True

    def _dispatch(self) -> None:
        has_started = False
        for fd, events in self._epoll.poll(0, _EVENTS):
            pending = self._by_fd.get(fd)
            if pending is None:
                continue
            if events & _GONE:
                self._end(pending)
            elif has_started and pending.cipher is None:
                # One for each iteration of the loop: open connections are served between two of them.
                # This one is still readable, and reported again.
                continue
            elif pending.cipher is None and self._try_begin_on_loop(pending.client_address):
                has_started = True
                self._epoll.unregister(fd)
                self._release(pending)
                self._state.metrics.handshakes["loop"].inc()
                self._open_client(pending.sock, pending.client_address, None, pending.token_port)
            else:
                self._epoll.modify(fd, 0)
                self._enqueue(pending)
                self._advance()

    def _try_begin_on_loop(self, client_address: str) -> bool:
        # Of an authority's clients some have no connection that counts: their keys are not registered.
        is_shared = self._state.poller.has_other_tenants(self._accounts.tenant_of(client_address))
        return self._accounts.try_begin_on_loop(client_address, self._loop.time(), is_shared=is_shared)

    def _enqueue(self, pending: _PendingConnection) -> None:
        pending.account = self._accounts.account_of(pending.client_address)
        arrived_bytes = int.from_bytes(fcntl.ioctl(pending.sock, termios.FIONREAD, bytes(4)), sys.byteorder)
        pending.is_long = MAX_HANDSHAKE_BYTES - pending.bytes_left + arrived_bytes > SHORT_BYTES
        (self._long if pending.is_long else self._short).add(pending, pending.account)

    # ---- in the thread

    def _advance(self) -> None:
        """Give the thread its next step, if it has none. Data waits in the socket until then."""
        while not self._is_busy and not self._is_stopped:
            pending = self._next()
            if pending is None:
                return
            data = self._receive(pending)
            if not data:
                continue
            if pending.cipher is None and not self._begin(pending):
                continue
            self._is_busy = True
            future = self._loop.run_in_executor(self._executor, _step, pending, data)
            future.add_done_callback(functools.partial(self._on_step_done, pending))

    def _next(self) -> _PendingConnection | None:
        now_s = self._loop.time()
        pending = self._long.pop() if now_s >= self._next_long_s else None
        if pending is None:
            pending = self._short.pop()
        if pending is None and len(self._long) and self._long_timer is None:
            self._long_timer = self._loop.call_later(self._next_long_s - now_s, self._on_long_due)
        return pending

    def _on_long_due(self) -> None:
        self._long_timer = None
        self._advance()

    def _receive(self, pending: _PendingConnection) -> bytes:
        try:
            data = pending.sock.recv(pending.bytes_left)
        except (BlockingIOError, InterruptedError):
            self._epoll.modify(pending.fd, _READ)
            return b""
        except OSError:
            data = b""
        if not data:
            self._end(pending)
        pending.bytes_left -= len(data)
        return data

    def _begin(self, pending: _PendingConnection) -> bool:
        context = self._context_for(pending.token_port)
        if context is None:
            self._end(pending)
            return False
        self._waiting.discard(pending)
        evicted = self._started.add(pending, pending.client_address)
        if evicted is not None:
            self._evict(evicted)
        self._state.metrics.handshakes["thread"].inc()
        pending.cipher = Cipher(context, is_server=True, has_own_bios=True)
        return True

    def _on_step_done(
        self, pending: _PendingConnection, done: "asyncio.Future[tuple[EndReason | None, float]]"
    ) -> None:
        if done.cancelled() or self._is_stopped:
            return
        error = done.exception()
        if error is not None:
            self._loop.call_exception_handler(
                {"message": "handshake step raised, a bug of vn-agent", "exception": error}
            )
        failed, spent_s = (EndReason.HANDSHAKE_FAILED, 0.0) if error is not None else done.result()
        self._state.metrics.handshake_seconds["thread"].inc(spent_s)
        (self._long if pending.is_long else self._short).charge(pending.account, spent_s)
        cipher = pending.cipher
        if cipher is None:
            raise AssertionError("a step has a cipher")
        if pending.is_long:
            # Short chains have the thread, or its core, for as long as this took.
            self._next_long_s = self._loop.time() + spent_s
        self._is_busy = False
        try:
            if pending.is_ended:
                self._charge(pending, cipher)
            else:
                self._continue(pending, cipher, failed)
        finally:
            self._advance()

    def _continue(self, pending: _PendingConnection, cipher: Cipher, failed: EndReason | None) -> None:
        if failed is None and cipher.is_handshake_done:
            self._epoll.unregister(pending.fd)
            self._forget(pending)
            self._open_client(pending.sock, pending.client_address, cipher, pending.token_port)
            return
        if failed is None and not pending.bytes_left:
            failed = EndReason.HANDSHAKE_TOO_LARGE
        outgoing, cipher.outgoing = cipher.outgoing, None
        try:
            # A flight or an alert: some 4 KB, which fit into the empty buffer of a new socket.
            if outgoing is not None and pending.sock.send(b"".join(outgoing)) < sum(map(len, outgoing)):
                failed = failed or EndReason.HANDSHAKE_FAILED
        except OSError:
            failed = failed or EndReason.RESET
        if failed is None:
            self._epoll.modify(pending.fd, _READ)
            return
        self._state.metrics.count_handshake_failure(failed)
        self._end(pending)

    # ---- the end

    def _forget(self, pending: _PendingConnection) -> None:
        self._release(pending)
        self._short.discard(pending)
        self._long.discard(pending)
        self._started.discard(pending)

    def _release(self, pending: _PendingConnection) -> None:
        """Forget a connection that is in no queue of the thread."""
        pending.is_ended = True
        del self._by_fd[pending.fd]
        self._waiting.discard(pending)

    def _evict(self, pending: _PendingConnection) -> None:
        self._state.metrics.evictions.inc()
        self._end(pending)

    def _end(self, pending: _PendingConnection) -> None:
        if pending.is_ended:
            return
        self._forget(pending)
        if pending.cipher is not None:
            self._charge(pending, pending.cipher)
        pending.sock.close()

    def _charge(self, pending: _PendingConnection, cipher: Cipher) -> None:
        now_s = self._loop.time()
        self._accounts.charge(pending.client_address, "", cipher.cost, now_s, is_on_loop=False)

    def _sweep(self) -> None:
        now_s = self._loop.time()
        late = []
        for pending in itertools.islice(self._by_fd.values(), ENDED_AT_ONCE):
            if pending.deadline > now_s:
                break
            late.append(pending)
        # At once if there may be more: behind what is ready now.
        wait_s = 0.0 if len(late) == ENDED_AT_ONCE else _SWEEP_S
        self._sweep_timer = self._loop.call_later(wait_s, self._sweep)
        for pending in late:
            self._end(pending)


def _step(pending: _PendingConnection, data: bytes) -> tuple[EndReason | None, float]:
    """In the thread: continue a handshake. Returns the reason of a failure, and its CPU seconds."""
    cipher = pending.cipher
    if cipher is None:
        raise AssertionError("a step has a cipher")
    before_s = cipher.cost.cpu_s
    failed = cipher.handshake(data)
    return failed, cipher.cost.cpu_s - before_s
