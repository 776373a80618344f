# SPDX-License-Identifier: Apache-2.0
"""The fake kubelet's responses and recorded requests, for a client of this module."""

import asyncio
import dataclasses
import socket
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from devkit.kubelet import server as kubelet_server
from devkit.kubelet.replies import FakeReply, ReplyEnd, Tunnel, switching
from devkit.kubelet.server import FakeKubelet, FakePod, kubelet_context
from devkit.pki import Authority
from tests.cases.client import CaseClient, PeerEnd
from tests.waiting import wait_until

pytestmark = pytest.mark.functional

POD = FakePod("a-web", "shop", "s-1", containers=("app",), injected=("mesh",))
UPGRADE = (
    b"POST /exec/a-web/shop/app?command=id&output=1 HTTP/1.1\r\nHost: n\r\n"
    b"Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n"
)


class Peer:
    """A kubelet and a client certificate that it accepts."""

    def __init__(self, directory: Path) -> None:
        servers, clients = Authority.create("servers"), Authority.create("clients")
        cert, key = servers.issue("node-1", sans_dns=["node-1"]).write(directory, "kubelet")
        tls = kubelet_context(str(cert), str(key), clients.cert_pem.decode())
        self.kubelet = FakeKubelet([POD], tls=tls)
        self.kubelet.start()
        self.context = ssl.create_default_context(cadata=servers.cert_pem.decode())
        self.context.load_cert_chain(*clients.issue("agent").write(directory, "agent"))

    def connect(self) -> ssl.SSLSocket:
        raw = socket.create_connection(("127.0.0.1", self.kubelet.port), timeout=5)
        return self.context.wrap_socket(raw, server_hostname="node-1", suppress_ragged_eofs=False)


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[Peer]:
    it = Peer(tmp_path)
    yield it
    it.kubelet.stop()


def read_until(sock: ssl.SSLSocket, expected: bytes) -> bytes:
    """Everything up to and with `expected`; the socket's timeout is the deadline."""
    got = b""
    while expected not in got:
        data = sock.recv(65536)
        assert data, f"EOF after {got!r}"
        got += data
    return got


def wait_for_end(peer: Peer) -> None:
    wait_until(lambda: peer.kubelet.exchanges[-1].ended_s is not None, within_s=5)


def test_a_client_certificate_is_required(peer: Peer) -> None:
    unverified = ssl.create_default_context()
    unverified.check_hostname = False
    unverified.verify_mode = ssl.CERT_NONE
    with CaseClient(("127.0.0.1", peer.kubelet.port), unverified) as client:
        client.handshake()
        assert client.receive_until_end(5)
    assert client.end in (PeerEnd.ALERT, PeerEnd.EOF)  # asyncio may close before the alert is out
    assert client.received == b""
    assert peer.kubelet.exchanges == []


def test_requests_are_recorded_byte_for_byte(peer: Peer) -> None:
    with peer.connect() as sock:
        for path in (b"/containerLogs/a-web/shop/app?tailLines=5", b"/nothing"):
            head = b"GET " + path + b" HTTP/1.1\r\nHost: n\r\nX-A:  b \r\n\r\n"
            sock.sendall(head)
            read_until(sock, b"0\r\n\r\n" if b"tail" in path else b"page not found\n")
            assert peer.kubelet.exchanges[-1].head == head
    first, second = peer.kubelet.exchanges
    assert first.connection == second.connection == 1
    assert (first.status, second.status) == (200, 404)
    assert first.query == [("tailLines", "5")]
    assert first.values("x-a") == ["b"]


def test_exec_greets_and_echoes(peer: Peer) -> None:
    with peer.connect() as sock:
        sock.sendall(UPGRADE)
        got = read_until(sock, b"s-1 id\n")
        assert got.startswith(b"HTTP/1.1 101 Switching Protocols\r\n")
        assert b"X-Stream-Protocol-Version: v4.channel.k8s.io\r\n" in got
        sock.sendall(b"ping")
        assert read_until(sock, b"ping") == b"ping"
    wait_for_end(peer)
    exchange = peer.kubelet.exchanges[0]
    assert bytes(exchange.after.head) == b"ping"
    assert bytes(exchange.sent.head).endswith(b"id\nping")


def test_a_delayed_byte_does_not_count_as_sent(peer: Peer) -> None:
    has_read, may_respond = threading.Event(), threading.Event()

    def slowly(data: bytes) -> bytes:
        has_read.set()
        assert may_respond.wait(10)
        return data

    peer.kubelet.script = lambda exchange: dataclasses.replace(
        switching(exchange, Tunnel.ECHO), answer=slowly
    )
    with peer.connect() as sock:
        sock.sendall(UPGRADE)
        read_until(sock, b"\r\n\r\n")
        sock.sendall(b"what is your name")
        assert has_read.wait(10)
        (exchange,) = peer.kubelet.exchanges
        assert (exchange.after.count, exchange.answered_bytes, exchange.sent.count) == (17, 0, 0)
        may_respond.set()
        assert read_until(sock, b"name") == b"what is your name"
        assert (exchange.answered_bytes, exchange.sent.count) == (17, 17)


def test_bytes_after_a_refused_upgrade_are_recorded(peer: Peer) -> None:
    peer.kubelet.script = lambda exchange: FakeReply(403, body=b"no") if exchange.is_upgrade else None
    with peer.connect() as sock:
        sock.sendall(UPGRADE + b"GET /configz HTTP/1.1\r\nHost: x\r\n\r\n")
        read_until(sock, b"marker-machine")
    refused, smuggled = peer.kubelet.exchanges
    assert bytes(refused.after.head).startswith(b"GET /configz")
    assert smuggled.path == "/configz"


def test_follow_ends_when_the_client_closes(peer: Peer) -> None:
    with peer.connect() as sock:
        sock.sendall(b"GET /containerLogs/a-web/shop/app?follow=true HTTP/1.1\r\nHost: n\r\n\r\n")
        read_until(sock, b"marker-s-1")
        assert peer.kubelet.exchanges[0].ended_s is None
        peer.kubelet.append_log("a-web", "shop", "app", "one more")
        read_until(sock, b"one more\n")
    wait_for_end(peer)


@pytest.mark.parametrize(
    ("ending", "seen"),
    [
        (ReplyEnd.CLOSE, PeerEnd.CLOSE_NOTIFY),
        (ReplyEnd.ABORT, PeerEnd.EOF),
        (ReplyEnd.RESET, PeerEnd.RESET),
    ],
)
def test_close_abort_and_reset_differ(peer: Peer, ending: ReplyEnd, seen: PeerEnd) -> None:
    peer.kubelet.script = lambda _: FakeReply(raw=b"half a rep", ending=ending)
    with CaseClient(("127.0.0.1", peer.kubelet.port), peer.context, sni="node-1") as client:
        assert client.handshake()
        client.send(b"GET /pods HTTP/1.1\r\nHost: n\r\n\r\n")
        assert client.receive_until_end(5)
    assert client.end is seen


def test_bytes_during_a_delay_are_recorded(peer: Peer) -> None:
    peer.kubelet.script = lambda _: FakeReply(101, delay_s=0.3, tunnel=Tunnel.ECHO)
    with peer.connect() as sock:
        sock.sendall(UPGRADE)
        sock.sendall(b"early")
        assert read_until(sock, b"early").startswith(b"HTTP/1.1 101")
    assert bytes(peer.kubelet.exchanges[0].after.head) == b"early"


def test_a_restart_keeps_the_port(peer: Peer) -> None:
    port = peer.kubelet.port
    with peer.connect() as sock:
        sock.sendall(b"GET /healthz HTTP/1.1\r\nHost: n\r\n\r\n")
        read_until(sock, b"\r\n\r\nok")
        peer.kubelet.pause()
        with pytest.raises((ssl.SSLError, ConnectionError)):
            sock.recv(1)
    with pytest.raises(ConnectionRefusedError):
        peer.connect()
    peer.kubelet.resume()
    assert peer.kubelet.port == port
    with peer.connect() as sock:
        sock.sendall(b"GET /healthz HTTP/1.1\r\nHost: n\r\n\r\n")
        read_until(sock, b"\r\n\r\nok")


def test_a_large_body_is_sent_whole(peer: Peer) -> None:
    body = b"0123456789abcdef" * 65536 * 4
    peer.kubelet.script = lambda _: FakeReply(body=body, ending=ReplyEnd.CLOSE)
    with peer.connect() as sock:
        sock.sendall(b"GET /pods HTTP/1.1\r\nHost: n\r\n\r\n")
        got = b""
        while data := sock.recv(1 << 20):
            got += data
    assert got.endswith(body)
    assert len(got.split(b"\r\n\r\n", 1)[1]) == len(body)


def test_cutting_connections_ignores_new_ones(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut_when_both_are_there(writer: asyncio.StreamWriter) -> None:
        if peer.kubelet.connections_open == 2:
            reset(writer)
        else:
            asyncio.get_running_loop().call_soon(cut_when_both_are_there, writer)

    reset = kubelet_server._reset  # noqa: SLF001 - what another connection must come before
    monkeypatch.setattr(kubelet_server, "_reset", cut_when_both_are_there)
    with peer.connect() as first:
        first.sendall(b"GET /pods HTTP/1.1\r\nHost: n\r\n\r\n")
        read_until(first, b"HTTP/1.1 200")
        with ThreadPoolExecutor(1) as pool:
            dropping = pool.submit(peer.kubelet.drop_connections)
            with peer.connect():
                dropping.result(5)
                assert peer.kubelet.connections_open == 1
