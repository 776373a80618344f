# SPDX-License-Identifier: Apache-2.0
"""Who may connect, what a restart finds, and what a probe sees of the socket."""

import os
import signal
import socket
import stat
from pathlib import Path

import pytest

from daemonkit.http2 import GOAWAY, PING, PREFACE, SETTINGS, frame
from tests import waiting
from tests.functional.vc_signer.signer_process import SignerProcess
from tests.signing_keys import AccountKey, files


def connected(signer: SignerProcess) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.settimeout(10)
    try:
        made.connect(str(signer.socket))
    except OSError:
        made.close()
        raise
    return made


def read_until(made: socket.socket, expected: bytes) -> None:
    received = b""
    while expected not in received:
        chunk = made.recv(100)
        assert chunk, received
        received += chunk


def test_only_its_user_may_connect(signer: SignerProcess) -> None:
    assert stat.S_IMODE(signer.socket.stat().st_mode) == 0o600
    with connected(signer) as made:
        assert made.recv(100), "SETTINGS"


def test_another_user_is_refused(tmp_path: Path, key: AccountKey) -> None:
    """With `--peer-uid` of the API server's user the group may open the socket, and others are closed."""
    signer = SignerProcess(tmp_path, files(key), "--peer-uid", str(os.geteuid() + 1))
    try:
        signer.wait_started()
        assert stat.S_IMODE(signer.socket.stat().st_mode) == 0o660
        with connected(signer) as made:
            assert made.recv(100) == b""
        assert "a connection of another user was refused" in signer.text()
    finally:
        signer.process.kill()
        signer.process.wait()


def test_a_killed_signer_is_replaced(signer: SignerProcess) -> None:
    signer.process.send_signal(signal.SIGKILL)
    signer.process.wait()
    assert signer.socket.exists()
    with pytest.raises(ConnectionRefusedError):
        connected(signer)
    signer.start_again()
    with connected(signer) as made:
        assert made.recv(100)
    assert signer.probe() == (200, "ok\n")
    assert [path.name for path in signer.socket.parent.glob("signer.sock*")] == ["signer.sock"]


def test_a_stop_says_goodbye(signer: SignerProcess) -> None:
    with connected(signer) as made:
        made.sendall(PREFACE + frame(SETTINGS, 0, 0, b""))
        read_until(made, frame(SETTINGS, 1, 0, b""))
        assert signer.stop() == 0
        assert made.recv(100) == frame(GOAWAY, 0, 0, bytes(8))


@pytest.mark.parametrize("path", ["/livez", "/readyz"])
def test_a_lost_socket_fails_the_probes(signer: SignerProcess, path: str) -> None:
    signer.socket.unlink()
    assert signer.probe(path) == (503, f"{signer.socket}: No such file or directory\n")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.bind(str(signer.socket))
        other.listen()
        assert signer.probe(path) == (503, f"{signer.socket}: another process listens there\n")


def test_a_peer_that_is_no_client_of_grpc_is_closed(signer: SignerProcess) -> None:
    with connected(signer) as made:
        made.sendall(b"GET / HTTP/1.1\r\n\r\n")
        while made.recv(100):
            pass
    waiting.wait_until(lambda: "it is no HTTP/2 client" in signer.text(), context=signer.text)
    assert signer.probe() == (200, "ok\n")


def test_a_slow_peer_is_closed(signer: SignerProcess) -> None:
    """It has 10 s for what it began; one that only waits stays."""
    with connected(signer) as slow, connected(signer) as idle:
        slow.settimeout(30)
        idle.sendall(PREFACE + frame(SETTINGS, 0, 0, b""))
        slow.sendall(PREFACE[:5])
        while slow.recv(100):
            pass
        assert signer.text().count("sends or reads too slowly") == 1
        idle.sendall(frame(PING, 0, 0, bytes(8)))
        read_until(idle, frame(PING, 1, 0, bytes(8)))


def test_a_socket_that_cannot_be_made_ends_the_start(tmp_path: Path, key: AccountKey) -> None:
    (tmp_path / "signer.sock").mkdir()
    signer = SignerProcess(tmp_path, files(key))
    assert signer.process.wait(10) == 1
    assert "cannot start" in signer.text()
