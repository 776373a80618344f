# SPDX-License-Identifier: Apache-2.0
"""The agent's relay of bytes; AF_VSOCK itself only where this machine can loop it back."""

import socket
import threading
from pathlib import Path

import pytest

from kata_bridge.guest.vsock import VsockDoor, join

_LOCAL_CID = 1
_PORT = 40_123


def pair() -> tuple[socket.socket, socket.socket]:
    one, other = socket.socketpair()
    for each in (one, other):
        each.settimeout(10)
    return one, other


def test_bytes_pass_both_ways_and_an_end_is_an_end() -> None:
    near, one = pair()
    other, far = pair()
    for each in (one, other):
        each.settimeout(None)
    joined = threading.Thread(target=join, args=(one, other))
    joined.start()
    sent = bytes(range(256)) * 4_000
    sender = threading.Thread(target=near.sendall, args=(sent,))
    sender.start()
    got = b""
    while len(got) < len(sent):
        got += far.recv(1 << 16)
    sender.join(10)
    assert got == sent
    far.sendall(b"back")
    assert near.recv(10) == b"back"
    far.close()
    assert near.recv(10) == b""
    near.close()
    joined.join(10)
    assert one.fileno() == other.fileno() == -1


def test_where_there_is_no_way_the_connection_ends_and_the_door_stays(tmp_path: Path) -> None:
    VsockDoor(tmp_path / "s", _LOCAL_CID, _PORT + 1)
    for _ in range(2):
        with socket.socket(socket.AF_UNIX) as near:
            near.settimeout(30)
            near.connect(str(tmp_path / "s"))
            assert near.recv(1) == b""
    assert (tmp_path / "s").stat().st_mode & 0o777 == 0o600


def test_over_vsock_itself(tmp_path: Path) -> None:
    with socket.socket(socket.AF_VSOCK) as listener, socket.socket(socket.AF_UNIX) as near:
        listener.settimeout(3)
        try:
            listener.bind((_LOCAL_CID, _PORT))
            listener.listen()
        except OSError as error:
            pytest.skip(f"no AF_VSOCK loopback: {error}")
        VsockDoor(tmp_path / "s", _LOCAL_CID, _PORT)
        near.settimeout(10)
        near.connect(str(tmp_path / "s"))
        try:
            far, _ = listener.accept()
        except TimeoutError:
            pytest.skip("no AF_VSOCK loopback: it binds and does not connect")
        with far:
            near.sendall(b"there")
            assert far.recv(10) == b"there"
