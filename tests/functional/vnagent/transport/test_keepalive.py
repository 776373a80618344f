# SPDX-License-Identifier: Apache-2.0
"""A vanished peer: its kernel answers nothing. A socket filter that drops all it receives stands for it."""

import contextlib
import ctypes
import socket
import struct
import time
from collections.abc import Iterator

import pytest

from daemonkit.keepalive import KEEPALIVE_S, keep_alive
from tests import waiting
from tests.functional.vnagent.connection_links import connected_link, run, until
from vnagent.transport import poller as polling
from vnagent.transport import tls_connection
from vnagent.transport.keepalive import INFO_BYTES, SILENT_MS, has_vanished
from vnagent.transport.poller import SocketPoller

# linux/filter.h: `ret #0`, which takes 0 bytes of each packet.
_SO_ATTACH_FILTER = 26
_DROP_ALL = struct.pack("=HBBI", 0x06, 0, 0, 0)
KEEPALIVE = {
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE): 1,
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE): 30,
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL): 15,
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT): 7,
}


def vanish(sock: socket.socket) -> None:
    """From now on the socket receives nothing, and so answers nothing."""
    instructions = ctypes.create_string_buffer(_DROP_ALL, len(_DROP_ALL))
    program = struct.pack("@HxxxxxxP", 1, ctypes.addressof(instructions))
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)


@contextlib.contextmanager
def tcp_pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        far = stack.enter_context(socket.create_connection(listener.getsockname()))
        near = stack.enter_context(listener.accept()[0])
        near.setblocking(False)
        yield near, far


def info_of(sock: socket.socket) -> bytes:
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, INFO_BYTES)


def fill(sock: socket.socket) -> None:
    with contextlib.suppress(BlockingIOError):
        while True:
            sock.send(bytes(65536))


def test_the_options_end_an_idle_peer_within_150_s() -> None:
    with tcp_pair() as (near, _):
        keep_alive(near)
        assert {option: near.getsockopt(*option) for option in KEEPALIVE} == KEEPALIVE
    assert KEEPALIVE_S <= 150
    assert SILENT_MS / 1000 + SocketPoller.PERIOD_S * polling.CHECKED_PARTS <= 150


def test_a_peer_that_answers_nothing_has_vanished() -> None:
    """A few seconds of it: the last five of nine retransmissions take the rest of two minutes."""
    with tcp_pair() as (near, far):
        vanish(far)
        near.send(b"x")
        assert not has_vanished(info_of(near))
        assert waiting.holds_within(lambda: has_vanished(info_of(near), silent_ms=1_000), 30.0)
        # Not yet: two minutes have to pass.
        assert not has_vanished(info_of(near))


def test_a_client_that_reads_nothing_has_not() -> None:
    """`kubectl logs -f | less` has no room for hours, and answers each question."""
    with tcp_pair() as (near, far):
        far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        fill(near)
        end_s = time.monotonic() + 4.0
        while time.monotonic() < end_s:
            assert not has_vanished(info_of(near), silent_ms=0)
            time.sleep(0.05)  # pace: the kernel's questions come after 0.2, 0.4, 0.8 and 1.6 s


@pytest.mark.parametrize(
    ("retransmits", "probes", "last_ack_ms", "expected"),
    [
        (0, 0, 3_600_000, False),  # idle: keepalive's business
        (1, 0, 120_000, False),
        (5, 0, 119_999, False),
        (5, 0, 120_000, True),
        (0, 1, 3_600_000, False),
        (0, 2, 240_000, True),
        (15, 15, 0, False),
    ],
)
def test_what_is_taken_for_vanished(retransmits: int, probes: int, last_ack_ms: int, expected: bool) -> None:
    info = struct.pack("=BBBB52xI", 1, 0, retransmits, probes, last_ack_ms)
    assert has_vanished(info) is expected
    assert not has_vanished(info[:-1])


@pytest.mark.parametrize("is_server", [True, False])
def test_each_peer_is_checked_in_turn(is_server: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The handler of a connection to a vanished peer gets that, whether it reads or is paused."""
    seen: list[bytes] = []

    def vanished(info: bytes) -> bool:
        seen.append(info)
        return True

    async def body(poller: SocketPoller) -> None:
        monkeypatch.setattr(polling, "CHECKED_PARTS", 1)
        async with connected_link(poller, is_server=is_server) as link:
            monkeypatch.setattr(tls_connection, "has_vanished", vanished)
            link.transport.pause()
            await until(link.has_ended)
            assert [len(info) for info in seen] == [INFO_BYTES]
            assert [reason.name for reason in link.handler.ends] == ["RESET"]

    run(body)
