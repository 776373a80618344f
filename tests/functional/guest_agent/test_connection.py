# SPDX-License-Identifier: Apache-2.0
"""The agent's connection over real TLS, to a node that sends frames written by hand."""

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from guest_agent.connection import ConnectionLostError, Keepalive, NodeConnection, dial
from kata_bridge.guest_certificates import GuestCertificates, ServerIdentity

_DEADLINE_S = 20.0
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _SETTINGS, _PING, _WINDOW_UPDATE, _ACK = 0, 1, 4, 6, 8, 1
_NEVER = Keepalive(1_000.0, 1_000.0, 1_000.0)


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


BEGINNING = frame(_SETTINGS, 0, 0, b"") + frame(_HEADERS, 4, 1, b"\x88")


def message(text: bytes) -> bytes:
    return frame(_DATA, 0, 1, b"\0" + len(text).to_bytes(4, "big") + text)


class ScriptedNode:
    """A node with one connection at a time."""

    def __init__(self, directory: Path, identity: ServerIdentity) -> None:
        files = {"c": identity.certificate_pem, "k": identity.key_pem, "a": identity.authority_pem}
        for name, pem in files.items():
            (directory / name).write_bytes(pem)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.set_alpn_protocols(["h2"])
        self._context.verify_mode = ssl.CERT_REQUIRED
        self._context.load_cert_chain(directory / "c", directory / "k")
        self._context.load_verify_locations(directory / "a")
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(_DEADLINE_S)
        self.target = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.connection: ssl.SSLSocket | None = None
        self._data = b""

    def accept(self) -> None:
        raw, _ = self._listener.accept()
        raw.settimeout(_DEADLINE_S)
        self.connection = self._context.wrap_socket(raw, server_side=True)

    def read_beginning(self) -> None:
        """Read the agent's first frames."""
        assert self._read(len(_PREFACE)) == _PREFACE
        assert [self.frame()[0] for _ in range(3)] == [_SETTINGS, _WINDOW_UPDATE, _HEADERS]

    def send(self, data: bytes) -> None:
        assert self.connection is not None
        self.connection.sendall(data)

    def frame(self) -> tuple[int, int, bytes]:
        """The next frame: type, flags and payload."""
        head = self._read(9)
        return head[3], head[4], self._read(int.from_bytes(head[:3], "big"))

    def _read(self, count: int) -> bytes:
        assert self.connection is not None
        while len(self._data) < count:
            got = self.connection.recv(1 << 16)
            assert got, "the agent hung up"
            self._data += got
        data, self._data = self._data[:count], self._data[count:]
        return data

    def close(self) -> None:
        self._listener.close()
        if self.connection is not None:
            self.connection.close()


@pytest.fixture
def credentials(short_dir: Path) -> GuestCertificates:
    return GuestCertificates.open(short_dir / "state")


@pytest.fixture
def node(short_dir: Path, credentials: GuestCertificates) -> Iterator[ScriptedNode]:
    made = ScriptedNode(short_dir, credentials.server)
    yield made
    made.close()


def test_an_unreachable_vsock_is_an_error(credentials: GuestCertificates) -> None:
    """Few machines have a vsock loopback. The ring of User-mode Linux has working vsock."""
    with pytest.raises(ConnectionLostError, match="cannot connect"):
        dial("vsock:1:40123", credentials.issue("sb").directory, "/s/M", _NEVER)


class Dialled:
    """An agent's connections; they are closed with the test."""

    def __init__(self, node: ScriptedNode, credentials: Path) -> None:
        self._node, self._credentials = node, credentials
        self._connections: list[NodeConnection] = []

    def __call__(self, keepalive: Keepalive = _NEVER) -> NodeConnection:
        """A connection to a node that has sent nothing."""
        accepting = threading.Thread(target=self._node.accept, daemon=True)
        accepting.start()
        connection = dial(self._node.target, self._credentials, "/s/M", keepalive)
        self._connections.append(connection)
        connection.send(b"hello")
        accepting.join(_DEADLINE_S)
        self._node.read_beginning()
        assert self._node.frame() == (_DATA, 0, b"\0\0\0\0\5hello")
        return connection

    def accepted(self, keepalive: Keepalive = _NEVER) -> NodeConnection:
        """A connection to a node that has sent its headers and a message."""
        connection = self(keepalive)
        self._node.send(BEGINNING + message(b"begin"))
        assert connection.receive(soon()) == b"begin"
        assert self._node.frame() == (_SETTINGS, _ACK, b"")
        return connection

    def close(self) -> None:
        for connection in self._connections:
            connection.close()


@pytest.fixture
def dialled(node: ScriptedNode, credentials: GuestCertificates) -> Iterator[Dialled]:
    made = Dialled(node, credentials.issue("sb").directory)
    yield made
    made.close()


def soon() -> float:
    return time.monotonic() + _DEADLINE_S


def test_messages_are_sent_and_received(node: ScriptedNode, dialled: Dialled) -> None:
    connection = dialled.accepted()
    node.send(message(b"one") + message(b"two"))
    assert connection.receive(soon()) == b"one"
    # It was read together with the first one; no more bytes come.
    assert connection.receive(soon()) == b"two"
    assert connection.receive(time.monotonic()) is None
    connection.send(b"answer")
    assert node.frame() == (_DATA, 0, b"\0\0\0\0\6answer")


def test_bytes_buffered_in_tls_are_received(node: ScriptedNode, dialled: Dialled) -> None:
    connection = dialled.accepted()
    large = b"".join(message(b"x" * 16_000) for _ in range(3))
    node.send(large)
    for _ in range(3):
        assert connection.receive(soon()) == b"x" * 16_000


def test_a_large_message_follows_the_window(node: ScriptedNode, dialled: Dialled) -> None:
    connection = dialled.accepted()
    text = bytes(range(256)) * (1 << 14)
    connection.send(text)
    got: list[bytes] = []

    def read() -> None:
        count = 0
        while count < len(text) + 5:
            kind, _, payload = node.frame()
            assert kind == _DATA
            got.append(payload)
            count += len(payload)
            room = len(payload).to_bytes(4, "big")
            node.send(frame(_WINDOW_UPDATE, 0, 0, room) + frame(_WINDOW_UPDATE, 0, 1, room))
        node.send(message(b"next"))

    reading = threading.Thread(target=read, daemon=True)
    reading.start()
    assert connection.receive(soon()) == b"next"
    reading.join(_DEADLINE_S)
    assert b"".join(got)[5:] == text


def test_receive_waits_until_sends_are_flushed(node: ScriptedNode, dialled: Dialled) -> None:
    connection = dialled.accepted()
    connection.send(b"x" * 100_000)
    node.send(message(b"one"))
    assert connection.receive(time.monotonic() + 0.05) is None
    node.send(frame(_WINDOW_UPDATE, 0, 0, b"\0\1\0\0") + frame(_WINDOW_UPDATE, 0, 1, b"\0\1\0\0"))
    assert connection.receive(soon()) == b"one"


def test_a_node_that_ignores_pings_is_dropped(node: ScriptedNode, dialled: Dialled) -> None:
    connection = dialled(Keepalive(0.01, 0.05, 1_000.0))
    with pytest.raises(ConnectionLostError, match="the node does not answer pings"):
        connection.receive(soon())
    assert node.frame() == (_PING, 0, bytes(8))


def test_a_node_that_answers_pings_is_kept(node: ScriptedNode, dialled: Dialled) -> None:
    connection = dialled(Keepalive(0.01, _DEADLINE_S, 1_000.0))

    def acknowledge_pings() -> None:
        for _ in range(5):
            kind, flags, payload = node.frame()
            assert (kind, flags) == (_PING, 0)
            node.send(frame(_PING, _ACK, 0, payload))
        node.send(BEGINNING + message(b"still there"))

    replier = threading.Thread(target=acknowledge_pings, daemon=True)
    replier.start()
    assert connection.receive(soon()) == b"still there"
    replier.join(_DEADLINE_S)


def test_a_busy_agent_answers_pings(node: ScriptedNode, dialled: Dialled) -> None:
    connection = dialled.accepted(Keepalive(1_000.0, 1_000.0, 0.01))
    assert connection.receive(time.monotonic()) is None
    # No thread is in `receive` now, as during long work.
    node.send(frame(_PING, 0, 0, b"12345678") + message(b"one"))
    assert node.frame() == (_PING, _ACK, b"12345678")
    node.send(frame(_PING, 0, 0, b"12345678"))
    assert node.frame() == (_PING, _ACK, b"12345678")
    assert connection.receive(soon()) == b"one"


def test_a_closed_connection_is_an_error(node: ScriptedNode, dialled: Dialled) -> None:
    connection = dialled.accepted()
    assert node.connection is not None
    node.connection.close()
    with pytest.raises(ConnectionLostError, match=r"the node closed the connection|the connection is lost"):
        connection.receive(soon())
    # It stays so, also after a send.
    connection.send(b"x")
    with pytest.raises(ConnectionLostError):
        connection.receive(soon())


def test_a_node_without_http2_is_an_error(node: ScriptedNode, dialled: Dialled) -> None:
    connection = dialled.accepted()
    node.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    with pytest.raises(ConnectionLostError, match="the node violates HTTP/2: a frame of"):
        connection.receive(soon())


def test_missing_credentials_are_an_error(node: ScriptedNode, short_dir: Path) -> None:
    with pytest.raises(ConnectionLostError, match="No such file"):
        dial(node.target, short_dir / "none", "/s/M")


def test_a_refused_connection_is_an_error(
    node: ScriptedNode, credentials: GuestCertificates, short_dir: Path
) -> None:
    issued = credentials.issue("sb").directory
    target = node.target
    node.close()
    with pytest.raises(ConnectionLostError, match=r"cannot connect, .*: Connection refused"):
        dial(target, issued, "/s/M")
    with pytest.raises(ConnectionLostError, match=r"cannot connect, .*: No such file"):
        dial(f"unix:{short_dir}/none.sock", issued, "/s/M")


def _refused(node: ScriptedNode, issued: Path) -> None:
    """Expect the handshake to fail on both sides."""

    def accept() -> None:
        with pytest.raises(OSError, match=r"."):
            node.accept()

    accepting = threading.Thread(target=accept, daemon=True)
    accepting.start()
    with pytest.raises(ConnectionLostError, match="certificate verify failed"):
        dial(node.target, issued, "/s/M")
    accepting.join(_DEADLINE_S)


def test_a_node_of_another_authority_is_rejected(node: ScriptedNode, short_dir: Path) -> None:
    _refused(node, GuestCertificates.open(short_dir / "other").issue("sb").directory)


def test_a_guest_certificate_is_no_node_certificate(credentials: GuestCertificates, short_dir: Path) -> None:
    theirs, ours = credentials.issue("theirs").directory, credentials.issue("ours").directory
    pems = ((theirs / name).read_bytes() for name in ("ca.crt", "tls.crt", "tls.key"))
    guest = ScriptedNode(short_dir, ServerIdentity(*pems))
    try:
        _refused(guest, ours)
    finally:
        guest.close()
